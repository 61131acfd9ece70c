"""Preflight: whether `turnlane serve` could start here: its home, its address, its settings."""

import os
import stat
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from proxy.config.load import load
from proxy.errors import ConfigError
from proxy.home.lock import control_path
from proxy.status.processes import Listener

ELSEWHERE: Final = "set TURNLANE_HOME to another directory"


def hindrance(
    home: Path,
    environment: Mapping[str, str],
    listener: Callable[[str, int], Listener | None],
) -> str | None:
    """Return why `turnlane serve` would fail in this environment; None if it would not."""
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
    """Return why `turnlane serve` refuses a home, and what to do about it.

    Changes nothing: a home that does not exist is judged by the folder it would be created in.
    """
    try:
        control_path(home)
    except ConfigError as error:
        return f"{home}: {error.problem}", "set TURNLANE_HOME to a shorter path"
    try:
        found = home.stat()
    except FileNotFoundError:
        return _unmade(home)
    except OSError as error:
        return f"{home} cannot be inspected: {error.strerror}", ELSEWHERE
    if not stat.S_ISDIR(found.st_mode):
        return f"{home} is not a directory", ELSEWHERE
    if found.st_uid != os.getuid():
        return f"{home} belongs to another user", "set TURNLANE_HOME to a directory of your own"
    if not os.access(home, os.W_OK | os.X_OK):
        return f"{home} is not writable", f"chmod u+rwx {home}"
    return None


def _unmade(home: Path) -> tuple[str, str] | None:
    if home.is_symlink():
        return f"{home} is a dangling symbolic link", ELSEWHERE
    there = next(folder for folder in home.absolute().parents if folder.exists())
    if os.access(there, os.W_OK | os.X_OK):
        return None
    return f"{home} cannot be created: {there} is not writable", ELSEWHERE
