"""What holds for every test: Hypothesis tries the same examples on every run."""

from hypothesis import Phase, settings

settings.register_profile(
    "repeatable",
    derandomize=True,
    deadline=None,
    phases=[Phase.explicit, Phase.generate, Phase.shrink],  # to explain takes longer than to fix
)
settings.load_profile("repeatable")
