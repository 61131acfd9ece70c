"""Leases that a test starts, and that are all back when it ends."""

from collections.abc import AsyncIterator

import pytest
import trio

from tests.lifecycle.holder import Holders


@pytest.fixture
async def start(nursery: trio.Nursery) -> AsyncIterator[Holders]:
    holders = Holders(nursery)
    yield holders
    await holders.finish()
