"""What one connection raises: only our own faults are logged."""

from __future__ import annotations

from typing import Any, cast

import pytest
import trio

from proxy.server.protocol import ConnectionEnded
from proxy.server.server import Server
from tests.testkit.runtime import Bench


class BrokenWire:
    """A stream that cannot even be tuned."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    @property
    def socket(self) -> object:
        raise self._error


@pytest.mark.parametrize(
    ("error", "lines"),
    [
        (OSError("reset"), 0),
        (trio.BrokenResourceError(), 0),
        (ConnectionEnded("told"), 0),
        (ExceptionGroup("", [ConnectionEnded("told"), OSError("reset")]), 0),
        (ExceptionGroup("", [ConnectionEnded("told"), ValueError("a bug")]), 1),
        (ValueError("a bug"), 1),
    ],
    ids=repr,
)
async def test_a_fault_ends_its_connection_alone_and_is_logged_if_it_is_ours(
    nursery: trio.Nursery, caplog: pytest.LogCaptureFixture, error: Exception, lines: int
) -> None:
    await Server(Bench(nursery).runtime)._converse(cast(Any, BrokenWire(error)))

    assert len(caplog.records) == lines
