"""Control: the operator's commands, on the running process's own objects.

A running turnlane is the only writer of its home, so commands reach it over its control socket.
Those about keys and accounts also work while none runs: then this process takes the home's lock and
does it.
"""

import socket
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec
import trio

from lifecycle import RootId
from proxy.accounts.account import AccountId
from proxy.checkup import check_account
from proxy.config import Config
from proxy.errors import HomeTaken
from proxy.home import CONTROL_NAME, control_path, if_it_hangs, locked
from proxy.hour import past
from proxy.keys import Key, KeyRing
from proxy.manage import Managed, about_accounts, shown, unknown
from proxy.outbox import Outcome
from proxy.preview import preview
from proxy.record import TurnRecord
from proxy.runtime import Runtime, open_accounts
from proxy.status import status

ANSWER_SECONDS = 10.0
LOOK_SECONDS = 3.0
"""For those who only look: somebody waits for what they see."""
LOCK_AGAIN_SECONDS = 0.05
LOCK_TRIES = 60
"""For another command to be done with the home: 3 s."""
READING = frozenset({"keys.list", "accounts.list", "accounts.preview"})
"""Commands that change nothing, and so need no lock."""
LOOKING = READING | {"status", "past", "url", "workflows"}
"""The same among those that need a turnlane that runs."""

Answer = dict[str, Any]
Pause = Callable[[float], None]


class NotRunning(Exception):  # noqa: N818
    """No turnlane holds this home."""


class NoAnswer(NotRunning):
    """One does, and has not answered in time. It may carry the command out all the same."""


async def answer(runtime: Runtime, asked: Mapping[str, Any]) -> Answer:
    """Carry out one command. What cannot be done is said under `error`."""
    match asked:
        case {"command": "accounts.test", "name": str(name)}:
            return await _test(runtime, name)
        case {"command": str(command)} if command.startswith("accounts."):
            said = _about_accounts(managed_by(runtime), runtime.keys, asked)
            if command not in READING and "error" not in said:
                _note(runtime, Outcome.CHANGED, account=str(asked.get("name")), reason=command)
            return said
        case {"command": "status"}:
            return status(runtime)
        case {"command": "past"}:
            found = past(tuple(runtime.journal.recent), runtime.wall())
            return {"past": msgspec.to_builtins(found)}
        case {"command": "workflows"}:
            _note(runtime, Outcome.LISTED)
            return {"workflows": _workflows(runtime)}
        case {"command": "workflows.clear", "root": str(root)}:
            return _clear(runtime, root)
        case _:
            return about_keys(runtime.keys, asked)


def about_keys(keys: KeyRing, asked: Mapping[str, Any]) -> Answer:
    try:
        return _about_keys(keys, asked)
    except (ValueError, OSError) as error:
        return {"error": str(error)}


def _about_keys(keys: KeyRing, asked: Mapping[str, Any]) -> Answer:
    match asked:
        case {"command": "keys.add", "name": str(name)}:
            made = keys.add(name)
            return {"key": _shown(made.key), "secret": made.secret}
        case {"command": "keys.list"}:
            return {"keys": [_shown(key) for key in keys.all()]}
        case {"command": "keys.revoke", "id": str(key_id)}:
            if not keys.revoke(key_id):
                return {"error": f"there is no key {key_id}"}
            return {"revoked": key_id, "left": len(keys)}
        case _:
            return {"error": f"unknown command {asked.get('command')!r}"}


def ask(home: Path, command: Mapping[str, Any], seconds: float = ANSWER_SECONDS) -> Answer:
    """Send a command to the turnlane that holds `home`. Raises NotRunning or NoAnswer."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as peer:
        peer.settimeout(seconds)
        try:
            peer.connect(control_path(home))
            peer.sendall(msgspec.json.encode(command) + b"\n")
            line = b""
            while not line.endswith(b"\n") and (piece := peer.recv(65536)):
                line += piece
            return msgspec.json.decode(line, type=Answer)
        except (
            TimeoutError,
            BlockingIOError,
        ) as error:  # so does one with a line of them before it
            raise NoAnswer(_unanswered(home, command, seconds)) from error
        except (OSError, msgspec.DecodeError) as error:  # it may end before it has answered
            raise NotRunning(str(home / CONTROL_NAME)) from error


def _unanswered(home: Path, command: Mapping[str, Any], seconds: float) -> str:
    problem = f"the turnlane on {home} did not answer within {seconds:g} s"
    if command.get("command") not in LOOKING:
        problem += "; it may still do what was asked"
    return problem + if_it_hangs(home)


def ask_about_keys(
    home: Path,
    command: Mapping[str, Any],
    pause: Pause = time.sleep,
    seconds: float | None = None,
) -> Answer:
    """A command about keys, whether or not a turnlane runs. Raises ConfigError; so does a home that
    somebody else holds."""

    def here() -> Answer:
        return about_keys(KeyRing(home), command)

    return _ask_or_do(home, command, here, pause, seconds)


def ask_about_accounts(
    home: Path,
    command: Mapping[str, Any],
    configured: Callable[[], Config],
    pause: Pause = time.sleep,
) -> Answer:
    """The same about accounts. `configured` is called where none runs: an account may be described
    by config.toml. `running` in the answer says whether one does. Raises ConfigError."""

    def here() -> Answer:
        reading = command["command"] in READING
        with open_accounts(configured(), reading=reading, anyway=True) as (managed, _):
            return {**_about_accounts(managed, KeyRing(home), command), "running": False}

    return {"running": True, **_ask_or_do(home, command, here, pause, None)}


def _ask_or_do(
    home: Path,
    command: Mapping[str, Any],
    here: Callable[[], Answer],
    pause: Pause,
    seconds: float | None,
) -> Answer:
    """By the turnlane that runs, else here, as soon as the home is free."""
    if seconds is None:
        seconds = LOOK_SECONDS if command["command"] in READING else ANSWER_SECONDS
    tries = 0
    while True:
        try:
            return ask(home, command, seconds)
        except NoAnswer as error:
            return {"error": str(error)}
        except NotRunning:
            if command["command"] in READING:
                return here()
        try:
            with locked(home):
                return here()
        except HomeTaken:
            tries += 1
            if tries == LOCK_TRIES:
                raise
        pause(LOCK_AGAIN_SECONDS)


def managed_by(runtime: Runtime) -> Managed:
    return Managed(
        pool=runtime.accounts,
        book=runtime.book,
        opener=runtime.opener,
        configured=runtime.config.accounts,
    )


def _about_accounts(managed: Managed, keys: KeyRing, asked: Mapping[str, Any]) -> Answer:
    if asked.get("command") == "accounts.preview":
        return preview(managed, keys, asked)
    return about_accounts(managed, asked)


async def _test(runtime: Runtime, name: str) -> Answer:
    account = runtime.accounts.get(AccountId(name))
    if account is None:
        return unknown(runtime.accounts, name)
    found = await check_account(runtime, account)
    checkup: Answer = msgspec.to_builtins(found)
    return {"account": shown(managed_by(runtime), account.id), **checkup}


def _workflows(runtime: Runtime) -> list[Answer]:
    each = runtime.admission.workflows.each(trio.current_time())
    return [{"root": root, **msgspec.to_builtins(budget)} for root, budget in each.items()]


def _clear(runtime: Runtime, named: str) -> Answer:
    """A root may be named by the beginning of its digest, if that is one root's alone."""
    tracked = runtime.admission.workflows.each(trio.current_time())
    found = [root for root in tracked if root.startswith(named)]
    if len(found) != 1 or not named:
        return {"error": f"{len(found)} tracked roots begin with {named!r}"}
    runtime.admission.workflows.clear(found[0])
    _note(runtime, Outcome.CLEARED, root=found[0])
    return {"cleared": found[0]}


def _note(
    runtime: Runtime,
    outcome: Outcome,
    *,
    root: RootId | None = None,
    account: str | None = None,
    reason: str | None = None,
) -> None:
    runtime.journal.record(
        TurnRecord(
            wall=runtime.wall(),
            principal="operator",
            transport="control",
            outcome=outcome,
            root=root,
            account=account,
            reason=reason,
        )
    )


def _shown(key: Key) -> Answer:
    return {"id": key.id, "name": key.name, "created": key.created}
