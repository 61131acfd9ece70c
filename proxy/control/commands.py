"""Control: the operator's commands, on the running process's own objects.

A running turnlane is the only writer of its home, so commands reach it over its control socket.
Those about keys and accounts also work while none runs: then this process takes the home's lock and
does it.
"""

from collections.abc import Mapping
from typing import Any

import msgspec
import trio

from lifecycle import RootId
from proxy.accounts.opening import ManagedAccounts
from proxy.accounts.view import AccountId
from proxy.control.accounts import about_accounts, shown, unknown
from proxy.control.checkup import check_account
from proxy.control.client import READING, Answer
from proxy.control.preview import preview
from proxy.ingress.status import status
from proxy.journal.record import Outcome, Transport, TurnRecord
from proxy.journal.summary import past
from proxy.keys import Key, KeyRing
from proxy.runtime import Runtime


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


def managed_by(runtime: Runtime) -> ManagedAccounts:
    return ManagedAccounts(
        pool=runtime.accounts,
        registry=runtime.registry,
        opener=runtime.opener,
        configured=runtime.config.accounts,
    )


def _about_accounts(managed: ManagedAccounts, keys: KeyRing, asked: Mapping[str, Any]) -> Answer:
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
            transport=Transport.CONTROL,
            outcome=outcome,
            root=root,
            account=account,
            reason=reason,
        )
    )


def _shown(key: Key) -> Answer:
    return {"id": key.id, "name": key.name, "created": key.created}
