"""Run as an ordinary user for a while, in a folder that this user may use."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

NOBODY: Final = 65534


@contextmanager
def as_somebody() -> Iterator[Path]:
    """Brings a folder that is open to others all the way down, which those of tests are not. Root
    may read and write everything, so this process is not root meanwhile."""
    with tempfile.TemporaryDirectory() as named:
        root = Path(named)
        root.chmod(0o777)
        if os.geteuid() != 0:
            yield root
            return
        os.setresuid(NOBODY, NOBODY, 0)
        try:
            yield root
        finally:
            os.setresuid(0, 0, 0)
