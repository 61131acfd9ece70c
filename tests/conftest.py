"""What holds for every test: Hypothesis tries the same examples each time; no secret is logged."""

from collections.abc import Generator
from typing import Final

import pytest
from hypothesis import Phase, settings

settings.register_profile(
    "thorough",
    derandomize=True,
    deadline=None,
    phases=[Phase.explicit, Phase.generate, Phase.shrink],  # to explain takes longer than to fix
)
settings.register_profile("quick", settings.get_profile("thorough"), max_examples=30)
settings.load_profile("quick")
"""CI asks for the thorough one: `make test PROFILE=thorough`."""

MARK: Final = "-secret-"
"""Stands in what tests use as keys and tokens: `sk-secret-1`, `rt-secret-1`."""


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.when == "call" and report.passed and MARK in report.caplog:
        report.outcome = "failed"
        report.longrepr = f"a secret was logged:\n{report.caplog}"
    return report
