"""The operator's commands about accounts, on the pool and the registry of one home.

The same functions serve a process that runs and a home that no process holds: both have the
accounts in memory and in the registry. The files change first and then the pool, so what took
effect is what a restart will find. No answer holds a secret.
"""

import logging
from dataclasses import replace
from pathlib import Path
from typing import assert_never

from lifecycle import PrincipalId
from proxy.accounts.bindings import ThreadName
from proxy.accounts.claim import AccountRequest
from proxy.accounts.credentials.api_key import ApiKey
from proxy.accounts.credentials.auth_file import check_login, login_copy
from proxy.accounts.opening import ManagedAccounts
from proxy.accounts.pool import MOST_ACCOUNTS, AccountPool
from proxy.accounts.registry import KEY, LOGIN
from proxy.accounts.route import Withheld
from proxy.accounts.spec import AccountSpec, account_id
from proxy.accounts.statistics import AccountStatistics
from proxy.accounts.view import ANY, AccountId, Standing
from proxy.config.load import check_url
from proxy.control.commands import (
    AccountCommand,
    AccountPaused,
    AccountPut,
    AccountRemoved,
    AccountsListed,
    AddAccount,
    ImportAccount,
    ListAccounts,
    PauseAccount,
    PreviewedRoute,
    PreviewThread,
    RemoveAccount,
    ResumeAccount,
    ThreadPreviewed,
)
from proxy.errors import CommandFailed, ConfigError
from proxy.ingress.identity import LOCAL, Identity, from_frame
from proxy.keys import KeyRing

logger = logging.getLogger(__name__)


def about_accounts(managed: ManagedAccounts, keys: KeyRing, command: AccountCommand) -> object:
    """Carry out one command and return its answer. Raises CommandFailed."""
    try:
        match command:
            case ListAccounts():
                return AccountsListed(accounts=tuple(managed.pool.statistics()))
            case PreviewThread():
                return _preview(managed.pool, keys, command)
            case AddAccount():
                return _add(managed, command)
            case ImportAccount():
                return _import(managed, command)
            case RemoveAccount(name=name):
                return _remove(managed, account_id(name))
            case PauseAccount(name=name):
                return _pause(managed, AccountId(name), paused=True)
            case ResumeAccount(name=name):
                return _pause(managed, AccountId(name), paused=False)
            case _:
                assert_never(command)
    except (ConfigError, ValueError, OSError) as error:
        raise CommandFailed(str(error)) from error


def no_account(pool: AccountPool, account: str) -> CommandFailed:
    names = ", ".join(each.id for each in pool.all())
    there_are = f"; accounts are {names}" if names else ""
    return CommandFailed(f"there is no account {account}{there_are}")


def shown(pool: AccountPool, account: AccountId) -> AccountStatistics | None:
    """Return the statistics of one account; None once it is gone."""
    return next((each for each in pool.statistics() if each.id == account), None)


def _add(managed: ManagedAccounts, wish: AddAccount) -> AccountPut:
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


def _import(managed: ManagedAccounts, wish: ImportAccount) -> AccountPut:
    account = _may_be_put(managed, wish.name, wish.url)
    path = Path(wish.path)
    if managed.registry.owns(path) and not wish.copy:
        raise ValueError(f"{path} belongs to another account; import it with --copy")
    if wish.copy:
        own = managed.registry.secret_path(account, LOGIN)
        login_copy(path, own)
        path = own
    else:
        check_login(path)
    spec = AccountSpec(auth_json=str(path), url=wish.url, models=wish.models or None)
    return _put(managed, account, spec)


def _may_be_put(managed: ManagedAccounts, name: str, url: str | None) -> AccountId:
    account = account_id(name)
    check_url("its url", url)
    if account in managed.configured:
        raise ValueError(
            f"{account} is defined in the configuration file; change it there and restart"
        )
    if managed.pool.get(account) is None and len(managed.pool) >= MOST_ACCOUNTS:
        raise ValueError(f"there are already {MOST_ACCOUNTS} accounts")
    return account


def _put(managed: ManagedAccounts, account: AccountId, spec: AccountSpec) -> AccountPut:
    """Put an account into the registry, and into the pool with what is known of it."""
    pool = managed.pool
    before, known = pool.get(account), pool.known(account)
    spec, kept = _kept(spec, managed.registry.all().get(account))
    opener = managed.opener if known is None else replace(managed.opener, known={account: known})
    managed.registry.put(account, spec)
    fresh = opener.open(account, spec)
    pool.add(fresh)
    logger.info("account %s: %s by the operator", account, "replaced" if before else "added")
    return AccountPut(
        account=shown(pool, account),
        replaced=before is not None,
        kept=kept,
        moved=before is not None and before.health.generation != fresh.health.generation,
        same_as=pool.twins()[account],
    )


def _kept(
    spec: AccountSpec, before: AccountSpec | None
) -> tuple[AccountSpec, dict[str, str | tuple[str, ...]]]:
    """Keep what is not given again as it was, unless the account is of another kind now."""
    if before is None or before.kind != spec.kind:
        return spec, {}
    names = ("url", "models", "organization", "project")
    kept = {x: getattr(before, x) for x in names if getattr(spec, x) is None}
    kept = {name: value for name, value in kept.items() if value is not None}
    return replace(spec, **kept), kept


def _remove(managed: ManagedAccounts, account: AccountId) -> AccountRemoved:
    configured = account in managed.configured
    if not managed.registry.remove(account):
        if configured:
            raise CommandFailed(
                f"{account} is defined in the configuration file; remove it there and restart"
            )
        raise no_account(managed.pool, account)
    if not configured:
        managed.pool.remove(account)
        managed.opener.known.pop(account, None)
    logger.info("account %s: removed by the operator", account)
    return AccountRemoved(removed=account, left=len(managed.pool), configured=configured)


def _pause(managed: ManagedAccounts, account: AccountId, *, paused: bool) -> AccountPaused:
    if not managed.pool.pause(account, paused=paused):
        raise no_account(managed.pool, account)
    logger.info("account %s: %s by the operator", account, "paused" if paused else "resumed")
    return AccountPaused(account=shown(managed.pool, account), usable=_usable(managed))


def _usable(managed: ManagedAccounts) -> int:
    """Count the accounts that turns can be sent to, or could if they had quota."""
    out = {Standing.PAUSED, Standing.INVALID}
    now = managed.opener.wall()
    return sum(view.standing(ANY, now) not in out for view in managed.pool.views())


def _preview(pool: AccountPool, keys: KeyRing, wish: PreviewThread) -> ThreadPreviewed:
    """Return where the next turn of a thread would go; change nothing."""
    principal = LOCAL if wish.key is None else PrincipalId(wish.key)
    if principal is LOCAL and len(keys):
        raise CommandFailed("callers need keys here; name the key of the thread with --key ID")
    if principal is not LOCAL and not keys.knows(principal):
        raise CommandFailed(f"there is no key {principal}")
    caller = Identity(principal=principal)
    thread = from_frame({"thread_id": wish.thread}, caller).ask(0).thread
    if thread is None:
        raise CommandFailed("that is not a valid thread id")
    if not len(pool):
        raise CommandFailed("there are no accounts: each client's own login is used")
    name = ThreadName(thread)
    bound: list[str | None] = [*pool.families(name)]
    models = [wish.model] if wish.model else bound or [None]
    return ThreadPreviewed(thread=thread, routes=tuple(_route(pool, name, each) for each in models))


def _route(pool: AccountPool, thread: ThreadName, model: str | None) -> PreviewedRoute:
    found = pool.preview(AccountRequest(thread=thread, model=model))
    if isinstance(found, Withheld):
        return PreviewedRoute(
            model=model,
            account=None,
            move=found.move,
            reason=found.reason,
            why=found.words,
            spent=found.spent,
            retry_at=found.retry_at,
        )
    account = shown(pool, found.account)
    return PreviewedRoute(
        model=model,
        account=found.account,
        move=found.move,
        reason=found.reason,
        why=found.reason.words,
        probe=found.probe,
        score=None if account is None else account.score,
    )
