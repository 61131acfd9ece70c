"""Start: whether `turnlane serve` could begin here: its home, its address and its settings."""

import os
import stat
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from proxy.config.load import load
from proxy.errors import ConfigError
from proxy.home.lock import control_path
from proxy.status.processes import Listener

ELSEWHERE: Final = "set TURNLANE_HOME to another place"


def hindrance(
    home: Path,
    environment: Mapping[str, str],
    listener: Callable[[str, int], Listener | None],
) -> str | None:
    """Why it would fail, with what this environment says; None when nothing speaks against it."""
    named = environment.get("TURNLANE_CONFIG")
    try:
        server = load(Path(named) if named else None, environment, {}, offline=True).server
    except ConfigError as error:
        return str(error)
    if (refused := home_problem(home)) is not None:
        return refused[0]
    taken = listener(server.host, server.port)
    if taken is None:
        return None
    where = f"{server.host}:{server.port}"
    return taken.problem or f"{where} is taken by {taken.whom}{taken.named}"


def home_problem(home: Path) -> tuple[str, str] | None:
    """Why `serve` refuses a home, and what to do; changes nothing, so a home that is not there is
    judged by the folder that it would be made in."""
    try:
        control_path(home)
    except ConfigError as error:
        return f"{home}: {error.problem}", "set TURNLANE_HOME to a shorter path"
    try:
        found = home.stat()
    except FileNotFoundError:
        return _unmade(home)
    except OSError as error:
        return f"{home} cannot be looked into: {error.strerror}", ELSEWHERE
    if not stat.S_ISDIR(found.st_mode):
        return f"{home} is no directory", ELSEWHERE
    if found.st_uid != os.getuid():
        return f"{home} belongs to another user", "set TURNLANE_HOME to a place of yours"
    if not os.access(home, os.W_OK | os.X_OK):
        return f"{home} cannot be written", f"chmod u+rwx {home}"
    return None


def _unmade(home: Path) -> tuple[str, str] | None:
    if home.is_symlink():
        return f"{home} is a link that leads nowhere", ELSEWHERE
    there = next(folder for folder in home.absolute().parents if folder.exists())
    if os.access(there, os.W_OK | os.X_OK):
        return None
    return f"{home} cannot be made: {there} cannot be written", ELSEWHERE
