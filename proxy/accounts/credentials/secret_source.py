"""References to secrets: the configuration says where a secret is, and never holds it."""

import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

SECRET_BYTES: Final = 64 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """A secret, and a warning about where it was found, if there is one."""

    secret: str = field(repr=False)
    note: str | None = None


def load_reference(reference: str, environment: Mapping[str, str]) -> Loaded:
    """Read `env:NAME` or `file:PATH`. Raises ValueError, whose text never holds the secret."""
    kind, _, where = reference.partition(":")
    if not where or kind not in {"env", "file"}:
        raise ValueError("must be env:NAME or file:PATH, never the secret itself")
    if kind == "env":
        if not environment.get(where):
            raise ValueError(f"the environment variable {where} is not set")
        return Loaded(secret=_line(environment[where], f"the environment variable {where}"))
    return _load_file(Path(where).expanduser())


def _load_file(path: Path) -> Loaded:
    try:
        with path.open("rb") as file:
            mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
            data = file.read(SECRET_BYTES + 1)
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror}") from error
    if len(data) > SECRET_BYTES:
        raise ValueError(f"{path} is too large for a secret")
    try:
        text = data.decode()
    except UnicodeDecodeError:
        raise ValueError(f"{path} is not text") from None
    others = mode & (stat.S_IRWXG | stat.S_IRWXO)
    note = f"other users can access {path}: run `chmod 600 {path}`" if others else None
    return Loaded(secret=_line(text, str(path)), note=note)


def _line(text: str, where: str) -> str:
    line = text.strip()
    if not line:
        raise ValueError(f"{where} is empty")
    if not line.isprintable():
        raise ValueError(f"{where} holds more than one line")
    return line
