"""Runtime: what a process works with, and the only place where collaborators are constructed."""

import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import trio

from lifecycle import Admission
from proxy.accounts.credentials.refresh import Refresher
from proxy.accounts.opening import Opener, open_accounts
from proxy.accounts.pool import AccountPool
from proxy.accounts.registry import AccountRegistry
from proxy.config.load import Config
from proxy.database import Database, open_database
from proxy.errors import ConfigError
from proxy.headers import is_loopback
from proxy.journal.journal import Journal, open_journal
from proxy.keys import KeyRing
from proxy.turn.attempts import SendTools
from proxy.turn.run import TurnRunner
from proxy.upstream.client import JsonPost, open_http_upstream
from proxy.upstream.interface import Upstream


@dataclass(frozen=True, slots=True, kw_only=True)
class Runtime:
    """`wall` is seconds since the epoch; every deadline uses trio's clock instead."""

    config: Config
    admission: Admission
    upstream: Upstream
    journal: Journal
    keys: KeyRing
    accounts: AccountPool
    registry: AccountRegistry
    opener: Opener
    database: Database | None = None
    wall: Callable[[], float] = time.time
    started: float = field(default_factory=trio.current_time)
    turns: TurnRunner = field(init=False)

    def __post_init__(self) -> None:
        tools = SendTools(
            upstream=self.upstream,
            settings=self.config.upstream,
            accounts=self.accounts,
            keys=self.keys,
            wall=self.wall,
        )
        turns = TurnRunner(admission=self.admission, tools=tools, journal=self.journal)
        object.__setattr__(self, "turns", turns)


@asynccontextmanager
async def open_runtime(config: Config, *, rehearsal: bool = False) -> AsyncIterator[Runtime]:
    """Build everything, in order. The caller holds the lock of `config.home`, unless it is a
    `rehearsal`, which serves no turn.

    Raises ConfigError for an address that would be open to strangers, and for a file of the home
    that cannot be used.
    """
    keys = KeyRing(config.home)
    if not len(keys) and not is_loopback(config.server.host):
        problem = "an address other than loopback requires keys; run `turnlane keys add NAME` first"
        raise ConfigError("server.host", problem)
    async with open_http_upstream(config.upstream) as upstream:
        with open_database(config.home) as database:
            journal = open_journal(database, time.time())
            refresher = Refresher(JsonPost(upstream), config.upstream.refresh_url)
            accounts = open_accounts(config, database, refresher, reading=rehearsal)
            yield Runtime(
                config=config,
                admission=Admission(config.limits),
                upstream=upstream,
                journal=journal,
                keys=keys,
                accounts=accounts.pool,
                registry=accounts.registry,
                opener=accounts.opener,
                database=database,
            )
