"""Checks of turnlane itself: configuration, home, files, lock, port, limits."""

import os
import resource
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from proxy.accounts.registry import REGISTRY_NAME, SECRETS_NAME
from proxy.accounts.spec import AccountSpec
from proxy.codex.saved import NOTE_NAME
from proxy.database_file import DATABASE_NAME
from proxy.errors import ConfigError
from proxy.home.lock import LOCK_NAME
from proxy.keys import KEYS_NAME
from proxy.status.finding import CheckContext, Finding, editing, good, specs_of, warning, wrong
from proxy.status.preflight import home_problem

FEW_FILES: Final = 4096
"""Open files: a WebSocket and its upstream connection need two, and 256 pairs may be open."""
PRIVATE: Final = (
    KEYS_NAME,
    REGISTRY_NAME,
    *(f"{DATABASE_NAME}{end}" for end in ("", "-wal", "-shm")),
    NOTE_NAME,
    LOCK_NAME,
)
"""Files in the home. SQLite keeps recent writes in `-wal` and `-shm` files beside its own."""


def inside(patient: CheckContext) -> Iterator[Finding]:
    """Check everything that needs neither the network nor other programs."""
    yield from _config(patient)
    yield from _home(patient)
    yield from _modes(patient)
    yield _lock(patient)
    yield _port(patient)
    yield _files(patient)
    yield _journal(patient)


def _config(patient: CheckContext) -> Iterator[Finding]:
    config = patient.config
    upstream = patient.environment.get("TURNLANE_UPSTREAM")
    if isinstance(config, ConfigError):
        yield wrong("config", str(config), editing(patient.file) if patient.file else None)
    else:
        where = str(patient.file or "no file: all defaults apply")
        yield good("config", where + (f"; TURNLANE_UPSTREAM is {upstream}" if upstream else ""))


def _home(patient: CheckContext) -> Iterator[Finding]:
    home = patient.home
    if (refused := home_problem(home)) is not None:
        yield wrong("home", *refused)
    elif not home.exists():
        yield good("home", f"{home} does not exist yet; `turnlane serve` creates it")
    elif stat.S_IMODE(home.stat().st_mode) & 0o077:
        yield warning("home", f"other users can enter {home}", f"chmod 700 {home}")
    else:
        yield good("home", str(home))


def _modes(patient: CheckContext) -> Iterator[Finding]:
    """Check that only the owner can use the files that hold secrets or refer to them."""
    paths = [patient.home / name for name in PRIVATE]
    with suppress(OSError):
        paths += sorted((patient.home / SECRETS_NAME).iterdir())
    for account, spec in specs_of(patient).items():
        for named in (spec.auth_json, (spec.key or "").removeprefix("file:")):
            if named and not named.startswith("env:"):
                path = Path(named).expanduser()
                if not os.access(path, os.R_OK):
                    said = f"{path}, used by account {account}, is missing or not readable"
                    yield wrong("secrets", said, _again(account, spec))
                paths.append(path)
    open_ones = [path for path in dict.fromkeys(paths) if _is_open(path)]
    for path in open_ones:
        yield wrong("secrets", f"other users can access {path}", f"chmod 600 {path}")
    if not open_ones:
        yield good("secrets", "only their owner can access the files with secrets")


def _again(account: str, spec: AccountSpec) -> str:
    if spec.kind == "chatgpt":
        return f"codex login, then turnlane accounts import {account}"
    return f"turnlane accounts add {account}"


def _is_open(path: Path) -> bool:
    try:
        return bool(stat.S_IMODE(path.stat().st_mode) & 0o077)
    except OSError:
        return False


def _lock(patient: CheckContext) -> Finding:
    """Check who holds the home. A lock ends with its process: a file that it leaves is not one."""
    seen = patient.seen
    if seen.running is not None:
        return good("lock", f"held by the running turnlane, pid {seen.running.get('pid')}")
    if seen.held_by is not None:
        return wrong(
            "lock",
            f"pid {seen.held_by} holds this home but does not answer",
            f"ps -p {seen.held_by}; if it hangs, kill -9 {seen.held_by}, then turnlane serve",
        )
    return good("lock", "free: no turnlane holds this home")


def _port(patient: CheckContext) -> Finding:
    if patient.seen.serving:
        return good("port", f"this turnlane answers on {patient.seen.url}")
    if patient.seen.running is not None:
        return warning("port", f"{patient.seen.problem}")
    if isinstance(patient.config, ConfigError):
        return warning("port", "not checked: the configuration is not valid")
    server = patient.config.server
    taken = patient.listener(server.host, server.port)
    where = f"{server.host}:{server.port}"
    if taken is None:
        return good("port", f"{where} is free")
    if taken.problem is not None:
        said = f"cannot listen on {where}: {taken.problem}"
        return wrong("port", said, "set server.host or server.port")
    if taken.pid is not None and str(taken.pid) == patient.seen.held_by:
        return warning("port", f"{where} is held by pid {taken.pid}, which does not answer")
    mend = f"turnlane serve --port {server.port + 1}"
    return wrong("port", f"{where} is taken by {taken.whom}{taken.named}", mend)


def _files(patient: CheckContext) -> Finding:
    most = patient.most_files
    if most is not None and most < FEW_FILES:
        return warning("files", f"a process may open only {most} files", f"ulimit -Hn {FEW_FILES}")
    return good("files", "a process may open enough files")


def _journal(patient: CheckContext) -> Finding:
    problem = patient.seen.journal_problem
    if problem is None:
        return good("journal", "readable, or not created yet")
    journal = patient.home / DATABASE_NAME
    return wrong("journal", problem, f"mv {journal} {journal}.away, then restart turnlane")


def most_files() -> int | None:
    """Return how many files a process may open at most; None without a limit."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    return None if hard == resource.RLIM_INFINITY else hard
