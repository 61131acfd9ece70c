"""Fixtures that several packages use: benches on the virtual clock, transports, a ring of keys."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from proxy.journal.record import Transport
from proxy.keys import KeyRing
from tests.testkit.runtime import TRANSPORTS, Bench, OpenBench


def pytest_itemcollected(item: pytest.Item) -> None:
    """Run tests that open benches on the virtual clock. pytest-trio looks for a clock among the
    arguments of the test itself, and not among what its fixtures use."""
    if isinstance(item, pytest.Function) and "open_bench" in item.fixturenames:
        item.add_marker(pytest.mark.trio(run=_run_on_virtual_clock))


def _run_on_virtual_clock(
    test: Callable[..., Awaitable[object]], *, clock: None, **named: Any
) -> None:
    trio.run(test, clock=MockClock(autojump_threshold=0), **named)


@pytest.fixture
def open_bench(nursery: trio.Nursery) -> OpenBench:
    return OpenBench(nursery)


@pytest.fixture
def bench(open_bench: OpenBench) -> Bench:
    """A bench with default settings; its upstream needs scripts."""
    return open_bench()


@pytest.fixture(params=TRANSPORTS)
def transport(request: pytest.FixtureRequest) -> Transport:
    """Each transport in turn: the test runs over HTTP and over a WebSocket."""
    found: Transport = request.param
    return found


@pytest.fixture
def ring(tmp_path: Path) -> KeyRing:
    return KeyRing(tmp_path)
