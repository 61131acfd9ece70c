"""Runtime: what a turn works with, and the only place where collaborators are constructed."""

import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass, field

import trio

from lifecycle import Admission
from proxy.config import Config, is_loopback
from proxy.errors import ConfigError
from proxy.journal import Journal
from proxy.keys import KeyRing
from proxy.store import Store
from proxy.upstream.base import Upstream
from proxy.upstream.http import open_http_upstream


@dataclass(frozen=True, slots=True, kw_only=True)
class Runtime:
    """`wall` is seconds since the epoch; every deadline uses trio's clock instead."""

    config: Config
    admission: Admission
    upstream: Upstream
    journal: Journal
    keys: KeyRing
    wall: Callable[[], float] = time.time
    started: float = field(default_factory=trio.current_time)


@asynccontextmanager
async def open_runtime(config: Config) -> AsyncIterator[Runtime]:
    """Build everything, in order. The caller holds the lock of `config.home`.

    Raises ConfigError for an address that would be open to strangers.
    """
    keys = KeyRing(config.home)
    if not len(keys) and not is_loopback(config.server.host):
        problem = "an address that is not loopback needs keys: `turnlane keys add NAME` first"
        raise ConfigError("server.host", problem)
    with closing(Store(config.home)) as store:
        async with open_http_upstream(config.upstream) as upstream:
            yield Runtime(
                config=config,
                admission=Admission(config.limits),
                upstream=upstream,
                journal=Journal(store),
                keys=keys,
            )
