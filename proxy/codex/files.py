"""The steps on the disk by which Codex is connected, each one able to be the last.

A kill may fall between any two; `proxy.codex.connect` puts right whatever they leave.
"""

import os
import stat
from pathlib import Path

from proxy.files import PRIVATE, move_over, remove_file, write_beside

MOST_BYTES = 4 * 2**20
"""A configuration has a few kB; a larger file is something else."""


class Disk:
    """The files of this machine. Paths are absolute and, except for `resolve`, no links. Every
    method raises OSError."""

    def resolve(self, path: Path) -> Path:
        """Follow a link, or several, to a file, which need not exist."""
        return Path(os.path.realpath(path))

    def read(self, path: Path) -> bytes | None:
        """Return the whole of a regular file; None if it does not exist."""
        try:
            status = path.stat()
        except FileNotFoundError:
            return None
        if not stat.S_ISREG(status.st_mode):
            raise OSError(f"{path} is not a regular file")
        if status.st_size > MOST_BYTES:
            raise OSError(f"{path} is larger than {MOST_BYTES} bytes")
        return path.read_bytes()

    def make_directory(self, path: Path) -> None:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)

    def write_beside(self, path: Path, content: bytes, *, like: bool) -> Path:
        """Write a new file beside `path`, through to the disk, and return where it is. With `like`
        it has the mode of `path`, if that exists, else 0600."""
        return write_beside(path, content, mode=None if like else PRIVATE)

    def replace(self, fresh: Path, path: Path) -> None:
        """Rename `fresh` to `path`, in one step that lasts."""
        move_over(fresh, path)

    def unlink(self, path: Path) -> None:
        """Remove a file, which may be gone already."""
        remove_file(path)
