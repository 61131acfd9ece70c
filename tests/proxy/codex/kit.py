"""Homes on a disk that may stop working, or have its process killed, between any two steps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from proxy.codex.connect import connect, disconnect
from proxy.codex.files import Disk

T = TypeVar("T")
URL = "http://127.0.0.1:10110/v1"
OTHER_URL = "http://127.0.0.1:10111/v1"
WALL = 1_800_000_000.0


class Killed(BaseException):
    """The process is gone: nothing after this line runs, no cleaning up either."""


@dataclass
class FragileDisk(Disk):
    """Counts its steps. At number `last` `failure` is raised in place of it; a write that fails
    has written half."""

    last: int | None = None
    failure: Callable[[], BaseException] = Killed
    steps: int = 0
    broken: bool = field(default=False, init=False)

    def resolve(self, path: Path) -> Path:
        self._step()
        return super().resolve(path)

    def read(self, path: Path) -> bytes | None:
        self._step()
        return super().read(path)

    def make_directory(self, path: Path) -> None:
        self._step()
        super().make_directory(path)

    def write_beside(self, path: Path, content: bytes, *, like: bool) -> Path:
        try:
            self._step()
        except BaseException:
            super().write_beside(path, content[: len(content) // 2], like=like)
            raise
        return super().write_beside(path, content, like=like)

    def replace(self, fresh: Path, path: Path) -> None:
        self._step()
        super().replace(fresh, path)

    def unlink(self, path: Path) -> None:
        self._step()
        super().unlink(path)

    def _step(self) -> None:
        if self.steps == self.last:
            self.last = None
            self.broken = True
            raise self.failure()
        self.steps += 1


@dataclass(frozen=True)
class Homes:
    """turnlane's home and Codex's."""

    root: Path

    @property
    def home(self) -> Path:
        return self.root / "turnlane"

    @property
    def codex(self) -> Path:
        return self.root / "codex"

    @property
    def config(self) -> Path:
        return self.codex / "config.toml"

    def on(self, files: Disk | None = None, value: str = URL) -> str:
        return connect(files or Disk(), self.home, self.config, value, lambda: WALL)

    def off(self, files: Disk | None = None) -> str:
        return disconnect(files or Disk(), self.home)

    def everything(self) -> dict[str, tuple[int, bytes | str]]:
        """Every file of Codex's home, and of the folder a link may lead to, with its mode."""
        return {
            str(path.relative_to(self.root)): _state(path)
            for folder in (self.codex, self.root / "dotfiles")
            for path in sorted(folder.rglob("*"))
        }

    def left_behind(self) -> set[str]:
        """What turnlane has in its home, but for the lock."""
        names = {path.name for path in self.home.iterdir()} if self.home.exists() else set()
        return names - {"codex.lock"}


def _state(path: Path) -> tuple[int, bytes | str]:
    if path.is_symlink():
        return 0, str(path.readlink())
    return path.stat().st_mode & 0o7777, path.read_bytes()
