"""The line that most tests of this folder stand in: a client, the proxy, a scripted upstream."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.e2e.proxy import Proxy, open_proxy
from tests.e2e.upstream import Upstream, open_upstream


@pytest.fixture
async def upstream() -> AsyncIterator[Upstream]:
    async with open_upstream() as upstream:
        yield upstream


@pytest.fixture
async def proxy(upstream: Upstream) -> AsyncIterator[Proxy]:
    async with open_proxy(upstream.url) as proxy:
        yield proxy
