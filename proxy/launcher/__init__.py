"""turnlane, a proxy between coding agents and model services.

This is the one name that an installation adds to site-packages. Importing it gives `__version__`
and changes nothing else; `sys.path` stays as it is. The folders `proxy`, `lifecycle` and `harness`
inside it import each other by these short names. Only the program (`turnlane` or
`python -m turnlane`) uses them: it puts the folder that holds them first on its own `sys.path`.
"""

from importlib.metadata import version

__version__ = version("turnlane")
