"""Manage: the operator's commands about accounts, on the pool and the registry of one home.

The same functions serve a process that runs and a home that nobody holds
(`proxy.control.commands`): both bring the accounts as they are in memory and on disk. First the
files change, then the pool, so what took effect is what a restart will find. No answer holds a
secret.
"""

import logging
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from proxy.accounts.credentials.api_key import ApiKey
from proxy.accounts.credentials.auth_file import check_login, login_copy
from proxy.accounts.opening import ManagedAccounts
from proxy.accounts.pool import MOST_ACCOUNTS, AccountPool
from proxy.accounts.registry import KEY, LOGIN, checked
from proxy.accounts.spec import AccountSpec
from proxy.accounts.statistics import twins_among
from proxy.accounts.view import ANY, AccountId, Standing
from proxy.config.load import check_url
from proxy.errors import ConfigError

logger = logging.getLogger(__name__)

Answer = dict[str, Any]


class KeySpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What `accounts.add` brings."""

    command: str
    name: str
    secret: str
    url: str | None = None
    models: tuple[str, ...] | None = None
    organization: str | None = None
    project: str | None = None

    def __repr__(self) -> str:
        return f"Key({self.name})"


class LoginSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What `accounts.import` brings; `path` is absolute, and `copy` asks for a copy of our own."""

    command: str
    name: str
    path: str
    copy: bool = False
    url: str | None = None
    models: tuple[str, ...] | None = None


def about_accounts(managed: ManagedAccounts, asked: Mapping[str, Any]) -> Answer:
    """Carry out one command. What cannot be done is said under `error`."""
    try:
        return _about_accounts(managed, asked)
    except (ConfigError, ValueError, OSError) as error:
        return {"error": str(error)}


def _about_accounts(managed: ManagedAccounts, asked: Mapping[str, Any]) -> Answer:
    match asked:
        case {"command": "accounts.list"}:
            return {"accounts": msgspec.to_builtins(managed.pool.statistics())}
        case {"command": "accounts.add"}:
            return _add(managed, msgspec.convert(asked, KeySpec))
        case {"command": "accounts.import"}:
            return _import(managed, msgspec.convert(asked, LoginSpec))
        case {"command": "accounts.remove", "name": str(name)}:
            return _remove(managed, AccountId(name))
        case {"command": "accounts.pause", "name": str(name)}:
            return _pause(managed, AccountId(name), paused=True)
        case {"command": "accounts.resume", "name": str(name)}:
            return _pause(managed, AccountId(name), paused=False)
        case _:
            return {"error": f"unknown command {asked.get('command')!r}"}


def unknown(pool: AccountPool, account: str) -> Answer:
    names = ", ".join(each.id for each in pool.all())
    there_are = f"; there are {names}" if names else ""
    return {"error": f"there is no account {account}{there_are}"}


def shown(managed: ManagedAccounts, account: AccountId) -> Answer | None:
    """The statistics of one account, as an answer has them; None once it is gone."""
    found = [each for each in managed.pool.statistics() if each.id == account]
    answer: Answer | None = msgspec.to_builtins(found[0]) if found else None
    return answer


def _add(managed: ManagedAccounts, wish: KeySpec) -> Answer:
    account = _may_be_put(managed, wish.name, wish.url)
    ApiKey(secret=wish.secret, organization=wish.organization, project=wish.project)
    path = managed.registry.keep_secret(account, wish.secret.encode(), KEY)
    spec = AccountSpec(
        key=f"file:{path}",
        url=wish.url,
        models=wish.models or None,
        organization=wish.organization,
        project=wish.project,
    )
    return _put(managed, account, spec)


def _import(managed: ManagedAccounts, wish: LoginSpec) -> Answer:
    account = _may_be_put(managed, wish.name, wish.url)
    path = Path(wish.path)
    if managed.registry.owns(path) and not wish.copy:
        raise ValueError(f"{path} goes with the account that it belongs to: import it with --copy")
    if wish.copy:
        own = managed.registry.secret_path(account, LOGIN)
        login_copy(path, own)
        path = own
    else:
        check_login(path)
    spec = AccountSpec(auth_json=str(path), url=wish.url, models=wish.models or None)
    return _put(managed, account, spec)


def _may_be_put(managed: ManagedAccounts, name: str, url: str | None) -> AccountId:
    account = checked(name)
    check_url("its url", url)
    if account in managed.configured:
        raise ValueError(f"{account} is described by config.toml: change it there, and restart")
    if managed.pool.get(account) is None and len(managed.pool) >= MOST_ACCOUNTS:
        raise ValueError(f"there are {MOST_ACCOUNTS} accounts already")
    return account


def _put(managed: ManagedAccounts, account: AccountId, spec: AccountSpec) -> Answer:
    """Put an account into the registry, and into the pool with what is known about it.

    In the answer, `kept` is what stays of an earlier description, and `moved` says whether the
    credential has changed, which ends the bindings to the account.
    """
    pool = managed.pool
    before, known = pool.get(account), pool.known(account)
    spec, kept = _kept(spec, managed.registry.all().get(account))
    opener = managed.opener if known is None else replace(managed.opener, known={account: known})
    managed.registry.put(account, spec)
    fresh = opener.open(account, spec)
    pool.add(fresh)
    logger.info("account %s: %s by the operator", account, "replaced" if before else "added")
    return {
        "account": shown(managed, account),
        "replaced": before is not None,
        "kept": kept,
        "moved": before is not None and before.state.generation != fresh.state.generation,
        "same_as": twins_among(pool.all())[account],
    }


def _kept(spec: AccountSpec, before: AccountSpec | None) -> tuple[AccountSpec, dict[str, Any]]:
    """What is not said anew stays as it was, unless the account is of another kind now."""
    if before is None or before.kind != spec.kind:
        return spec, {}
    names = ("url", "models", "organization", "project")
    kept = {x: getattr(before, x) for x in names if getattr(spec, x) is None}
    kept = {name: value for name, value in kept.items() if value is not None}
    return replace(spec, **kept), kept


def _remove(managed: ManagedAccounts, account: AccountId) -> Answer:
    configured = account in managed.configured
    if not managed.registry.remove(checked(account)):
        if configured:
            return {"error": f"config.toml describes {account}: take it out there, and restart"}
        return unknown(managed.pool, account)
    if not configured:
        managed.pool.remove(account)
        managed.opener.known.pop(account, None)
    logger.info("account %s: removed by the operator", account)
    return {"removed": account, "left": len(managed.pool), "configured": configured}


def _pause(managed: ManagedAccounts, account: AccountId, *, paused: bool) -> Answer:
    if not managed.pool.pause(account, paused=paused):
        return unknown(managed.pool, account)
    logger.info("account %s: %s by the operator", account, "paused" if paused else "resumed")
    return {"account": shown(managed, account), "usable": _usable(managed)}


def _usable(managed: ManagedAccounts) -> int:
    """How many accounts turns can be sent to, or could if they had quota."""
    out = {Standing.PAUSED, Standing.INVALID}
    now = managed.opener.wall()
    return sum(view.standing(ANY, now) not in out for view in managed.pool.views())
