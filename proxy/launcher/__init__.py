"""turnlane, a proxy between coding agents and model services.

This is the one name that an installation adds to site-packages. Importing it gives `__version__`
and changes nothing else; `sys.path` stays as it is. The folders `proxy`, `lifecycle` and `harness`
inside it import each other by these short names. Only the program (`turnlane` or
`python -m turnlane`) uses them: it puts the folder that holds them first on its own `sys.path`.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    __version__: str
else:

    def __getattr__(name: str) -> str:
        """Look the version up when it is asked for (PEP 562), which takes a while."""
        if name != "__version__":
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from importlib.metadata import version

        return version("turnlane")
