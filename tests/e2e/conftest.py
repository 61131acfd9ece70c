"""The line that most tests of this folder stand in: a client, the proxy, a scripted upstream."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Iterator

import pytest

from harness.wire.upstream import ScriptedUpstream, open_upstream
from tests.e2e.proxy import Proxy, open_proxy


@pytest.fixture(autouse=True)
def _no_fault_of_ours(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Whatever a peer does, nothing is logged as an error: that is kept for bugs."""
    yield
    faults = [record for record in caplog.get_records("call") if record.levelno >= logging.ERROR]
    assert not faults


@pytest.fixture
async def upstream() -> AsyncIterator[ScriptedUpstream]:
    async with open_upstream() as upstream:
        yield upstream


@pytest.fixture
async def proxy(upstream: ScriptedUpstream) -> AsyncIterator[Proxy]:
    async with open_proxy(upstream.url) as proxy:
        yield proxy
