"""Checks of what is turnlane's own: configuration, home, files, lock, port, limits."""

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
"""Open files: a WebSocket and its upstream connection are two, and 256 of them may be open."""
PRIVATE: Final = (
    KEYS_NAME,
    REGISTRY_NAME,
    *(f"{DATABASE_NAME}{end}" for end in ("", "-wal", "-shm")),
    NOTE_NAME,
    LOCK_NAME,
)
"""In the home; SQLite keeps what it has not moved yet in files beside its own."""


def inside(patient: CheckContext) -> Iterator[Finding]:
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
        where = str(patient.file or "no file, so every default")
        yield good("config", where + (f"; TURNLANE_UPSTREAM is {upstream}" if upstream else ""))


def _home(patient: CheckContext) -> Iterator[Finding]:
    home = patient.home
    if (refused := home_problem(home)) is not None:
        yield wrong("home", *refused)
    elif not home.exists():
        yield good("home", f"{home} is not there yet; `turnlane serve` makes it")
    elif stat.S_IMODE(home.stat().st_mode) & 0o077:
        yield warning("home", f"others may look into {home}", f"chmod 700 {home}")
    else:
        yield good("home", str(home))


def _modes(patient: CheckContext) -> Iterator[Finding]:
    """Files with secrets, or about them, are their owner's alone."""
    paths = [patient.home / name for name in PRIVATE]
    with suppress(OSError):
        paths += sorted((patient.home / SECRETS_NAME).iterdir())
    for account, spec in specs_of(patient).items():
        for named in (spec.auth_json, (spec.key or "").removeprefix("file:")):
            if named and not named.startswith("env:"):
                path = Path(named).expanduser()
                if not os.access(path, os.R_OK):
                    said = f"{path} of account {account} is not there, or not readable"
                    yield wrong("secrets", said, _again(account, spec))
                paths.append(path)
    open_ones = [path for path in dict.fromkeys(paths) if _is_open(path)]
    for path in open_ones:
        yield wrong("secrets", f"{path} can be read by others", f"chmod 600 {path}")
    if not open_ones:
        yield good("secrets", "every file with a secret is its owner's alone")


def _again(account: str, spec: AccountSpec) -> str:
    if spec.kind == "chatgpt":
        return f"sign in again (codex login), then turnlane accounts import {account}"
    return f"turnlane accounts add {account}"


def _is_open(path: Path) -> bool:
    try:
        return bool(stat.S_IMODE(path.stat().st_mode) & 0o077)
    except OSError:
        return False


def _lock(patient: CheckContext) -> Finding:
    """It ends with its process; a file that is left is no lock."""
    seen = patient.seen
    if seen.running is not None:
        return good("lock", f"held by the turnlane that answers, pid {seen.running.get('pid')}")
    if seen.held_by is not None:
        return wrong(
            "lock",
            f"pid {seen.held_by} holds this home and does not answer",
            f"look at it first: ps -p {seen.held_by}; kill -9 {seen.held_by}, then turnlane serve",
        )
    return good("lock", "free: no turnlane holds this home")


def _port(patient: CheckContext) -> Finding:
    if patient.seen.serving:
        return good("port", f"{patient.seen.url} is answered by this turnlane")
    if patient.seen.running is not None:
        return warning("port", f"{patient.seen.problem}")
    if isinstance(patient.config, ConfigError):
        return warning("port", "not looked at: the configuration cannot be read")
    server = patient.config.server
    taken = patient.listener(server.host, server.port)
    where = f"{server.host}:{server.port}"
    if taken is None:
        return good("port", f"{where} is free")
    if taken.problem is not None:
        said = f"nobody can listen on {where}: {taken.problem}"
        return wrong("port", said, "set server.host or server.port")
    if taken.pid is not None and str(taken.pid) == patient.seen.held_by:
        return warning("port", f"{where} is kept by that pid {taken.pid}")
    mend = f"turnlane serve --port {server.port + 1}"
    return wrong("port", f"{where} is taken by {taken.whom}{taken.named}", mend)


def _files(patient: CheckContext) -> Finding:
    most = patient.most_files
    if most is not None and most < FEW_FILES:
        return warning("files", f"only {most} files may be open", f"ulimit -Hn {FEW_FILES}")
    return good("files", "enough files may be open")


def _journal(patient: CheckContext) -> Finding:
    problem = patient.seen.journal_problem
    if problem is None:
        return good("journal", "it can be read, or is not there yet")
    journal = patient.home / DATABASE_NAME
    return wrong("journal", problem, f"mv {journal} {journal}.away, then start turnlane anew")


def most_files() -> int | None:
    """How many files a process may have open, at most; None where that has no limit."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    return None if hard == resource.RLIM_INFINITY else hard
