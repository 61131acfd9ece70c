"""What each check of the doctor is given, and what it says."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from proxy.accounts.registry import AccountRegistry
from proxy.accounts.spec import AccountSpec
from proxy.config.load import Config
from proxy.errors import ConfigError
from proxy.status.overview import Overview
from proxy.status.processes import Listener, Neighbour


class Level(StrEnum):
    GOOD = "good"
    WARNING = "warning"
    WRONG = "wrong"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """The result of one check. `mend` is the command that fixes it, or what else to do."""

    about: str
    level: Level = Level.GOOD
    said: str
    mend: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Reached:
    """`clock_off_seconds`: how far this machine's clock is ahead of the upstream's, if it sent a
    `Date` header."""

    problem: str | None = None
    seconds: float = 0.0
    clock_off_seconds: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckContext:
    """The things that checks look at, and how. `config` is the problem with the configuration, if
    it cannot be used; `file` is the file that it is read from, if there is one."""

    home: Path
    file: Path | None
    environment: Mapping[str, str]
    config: Config | ConfigError
    seen: Overview
    most_files: int | None
    listener: Callable[[str, int], Listener | None]
    neighbours: Callable[[], list[Neighbour] | None]
    reach: Callable[[str], Reached]


def good(about: str, said: str) -> Finding:
    return Finding(about=about, said=said)


def warning(about: str, said: str, mend: str | None = None) -> Finding:
    return Finding(about=about, level=Level.WARNING, said=said, mend=mend)


def wrong(about: str, said: str, mend: str | None = None) -> Finding:
    return Finding(about=about, level=Level.WRONG, said=said, mend=mend)


def editing(file: Path) -> str:
    """Say what to do about a file whose content is wrong, or about what is not a file at all."""
    if file.is_file():
        return f"$EDITOR {file}"
    return f"ls -ld {file}"


def specs_of(patient: CheckContext) -> dict[str, AccountSpec]:
    """Return every account that is described, by command or in the configuration."""
    try:
        known = {str(name): spec for name, spec in AccountRegistry(patient.home).all().items()}
    except ConfigError:
        known = {}
    if not isinstance(patient.config, ConfigError):
        known |= {str(name): spec for name, spec in patient.config.accounts.items()}
    return known
