"""Runtime: what a turn works with, and the only place where collaborators are constructed."""

import logging
import sqlite3
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import trio

from lifecycle import Admission
from proxy.accounts.account import Account
from proxy.accounts.bindings import Bindings
from proxy.accounts.credentials.refresh import Post, Refresher
from proxy.accounts.health import PersistedHealth
from proxy.accounts.opening import ManagedAccounts, Opener, inspect
from proxy.accounts.persistence import AccountStore, open_shelf
from proxy.accounts.pool import AccountPool
from proxy.accounts.registry import AccountRegistry
from proxy.accounts.view import AccountId
from proxy.config.load import Config
from proxy.config.settings import is_loopback
from proxy.errors import ConfigError
from proxy.journal.journal import RECENT_RECORDS, Journal
from proxy.journal.record import TurnRecord
from proxy.journal.store import Store, open_store
from proxy.journal.summary import HOUR_SECONDS
from proxy.keys import KeyRing
from proxy.upstream.client import JsonPost, open_http_upstream
from proxy.upstream.interface import Upstream

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Runtime:
    """`wall` is seconds since the epoch; every deadline uses trio's clock instead."""

    config: Config
    admission: Admission
    upstream: Upstream
    journal: Journal
    keys: KeyRing
    accounts: AccountPool
    book: AccountRegistry
    opener: Opener
    shelf: AccountStore | None = None
    wall: Callable[[], float] = time.time
    started: float = field(default_factory=trio.current_time)


@asynccontextmanager
async def open_runtime(config: Config) -> AsyncIterator[Runtime]:
    """Build everything, in order. The caller holds the lock of `config.home`.

    Raises ConfigError for an address that would be open to strangers, or a journal that is none.
    """
    keys = KeyRing(config.home)
    if not len(keys) and not is_loopback(config.server.host):
        problem = "an address that is not loopback needs keys: `turnlane keys add NAME` first"
        raise ConfigError("server.host", problem)
    async with open_http_upstream(config.upstream) as upstream:
        with (
            closing(open_store(config.home, time.time())) as store,
            open_accounts(config, JsonPost(upstream)) as (accounts, shelf),
        ):
            journal = Journal(store, _recent(store, config.home))
            try:
                yield Runtime(
                    config=config,
                    admission=Admission(config.limits),
                    upstream=upstream,
                    journal=journal,
                    keys=keys,
                    accounts=accounts.pool,
                    book=accounts.book,
                    opener=accounts.opener,
                    shelf=shelf,
                )
            finally:
                journal.flush()


async def _not_serving(url: str, body: Mapping[str, str]) -> tuple[int, bytes]:
    raise ConnectionError("only a process that serves refreshes tokens")


@contextmanager
def open_accounts(
    config: Config, post: Post = _not_serving, *, reading: bool = False, anyway: bool = False
) -> Iterator[tuple[ManagedAccounts, AccountStore]]:
    """The accounts of a home; what has changed of them is written down at the end.

    Unless it is for `reading`, the caller holds the lock of `config.home`. `anyway`: also where one
    that is configured cannot serve. Raises ConfigError.
    """
    book = AccountRegistry(config.home)
    with closing(open_shelf(config.home)) as shelf:
        refresher = Refresher(post, config.upstream.refresh_url)
        opener = Opener(
            refresher=refresher, environment=config.secrets, known=_known(config.home, shelf)
        )
        bindings = Bindings(shelf.bindings())
        accounts = _accounts(config, book, opener, anyway=anyway)
        pool = AccountPool(accounts, config.routing, time.time, bindings)
        try:
            yield (
                ManagedAccounts(pool=pool, book=book, opener=opener, configured=config.accounts),
                shelf,
            )
        finally:
            if not reading:
                pool.scribe.flush(shelf)


def _accounts(
    config: Config, book: AccountRegistry, opener: Opener, *, anyway: bool
) -> Iterator[Account]:
    """Those of the configuration first. Raises ConfigError for one of these that cannot serve;
    one that was added by command is only out of use then."""
    for account, spec in config.accounts.items():
        try:
            yield (opener.open_anyway if anyway else opener.open)(account, spec)
        except ValueError as error:
            raise ConfigError(f"accounts.{account}.key", str(error)) from error
    for account, spec in book.all().items():
        if account not in config.accounts:
            yield opener.open_anyway(account, spec)
        else:
            logger.warning(
                "account %s: config.toml's serves, the one that was added does not", account
            )


def inspect_accounts(config: Config) -> list[str]:
    """What is to be known of the configured accounts before they serve. Raises ConfigError for one
    that cannot."""
    warnings = []
    for account, spec in config.accounts.items():
        try:
            said = inspect(spec, config.secrets)
        except ValueError as error:
            raise ConfigError(f"accounts.{account}.key", str(error)) from error
        if said is not None:
            warnings.append(f"accounts.{account}: {said}")
    return warnings


def _known(home: Path, shelf: AccountStore) -> dict[AccountId, PersistedHealth]:
    try:
        return shelf.lasting()
    except sqlite3.Error as error:
        raise ConfigError(
            str(home), f"what is known of accounts cannot be read: {error}"
        ) from error


def _recent(store: Store, home: Path) -> list[TurnRecord]:
    """What a status of the last hour is to know of before this process."""
    since = time.time() - HOUR_SECONDS
    try:
        return [record for record in store.newest(RECENT_RECORDS) if record.wall > since]
    except sqlite3.Error as error:
        raise ConfigError(str(home), f"its journal cannot be read: {error}") from error
