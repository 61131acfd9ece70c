"""Child processes of the harness: modules of turnlane, found before anything else of that name.

Others use the names of turnlane's folders too: `proxy` is also the package of PyPI's proxy.py. So a
child has the folder that holds them first on its path, and its working directory not at all.
"""

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
"""The folder that holds `harness`, `proxy` and `lifecycle`, installed or not."""


def python(module: str, *arguments: str) -> list[str]:
    """Return the command that runs `module`; it needs the environment of `with_path`.

    `-P` keeps the working directory, which would come before PYTHONPATH, out of the child's path.
    """
    return [sys.executable, "-P", "-m", module, *arguments]


def with_path(environment: Mapping[str, str]) -> dict[str, str]:
    """Return `environment` with turnlane's folder first in PYTHONPATH."""
    paths = [str(ROOT), *filter(None, [environment.get("PYTHONPATH")])]
    return {**environment, "PYTHONPATH": os.pathsep.join(paths)}
