"""Runtime: what a turn works with, and the only place where collaborators are constructed."""

import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import trio

from lifecycle import Admission
from proxy.config import Config
from proxy.journal import Journal
from proxy.upstream.base import Upstream
from proxy.upstream.http import open_http_upstream


@dataclass(frozen=True, slots=True, kw_only=True)
class Runtime:
    """`wall` is seconds since the epoch; every deadline uses trio's clock instead."""

    config: Config
    admission: Admission
    upstream: Upstream
    journal: Journal
    wall: Callable[[], float] = time.time
    started: float = field(default_factory=trio.current_time)


@asynccontextmanager
async def open_runtime(config: Config) -> AsyncIterator[Runtime]:
    async with open_http_upstream(config.upstream) as upstream:
        yield Runtime(
            config=config,
            admission=Admission(config.limits),
            upstream=upstream,
            journal=Journal(),
        )
