"""Reading on after a second request, in the moments that real sockets rarely meet."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, cast

import h11
import pytest
import trio
import trio.testing
from hypercorn.events import Closed

from proxy.server.protocol import ConnectionEnded, ReadingOn


@dataclass(slots=True)
class Below:
    """As much of a protocol and its stream as reading on needs."""

    our_state: Any
    answered: bool
    hang_up: trio.Event = field(default_factory=trio.Event)
    handled: list[object] = field(default_factory=list)

    @property
    def connection(self) -> Below:
        return self

    async def handle(self, event: object) -> None:
        await trio.lowlevel.checkpoint()
        self.handled.append(event)

    async def read_on(self) -> None:
        await self.hang_up.wait()


def reading_on(below: Below) -> ReadingOn:
    return ReadingOn(cast(Any, below), cast(Any, below))


async def _let_go(reading: ReadingOn) -> None:
    await trio.testing.wait_all_tasks_blocked()
    await reading.set()


async def test_a_request_right_after_an_answer_waits_until_it_can_be_read(
    nursery: trio.Nursery,
) -> None:
    below = Below(h11.IDLE, answered=True)
    reading = reading_on(below)
    await reading.clear()
    assert not reading.is_set()
    nursery.start_soon(_let_go, reading)
    await reading.wait()

    assert reading.is_set()
    assert below.handled == []


async def test_a_request_right_after_the_last_answer_of_a_drain_ends_the_connection(
    nursery: trio.Nursery,
) -> None:
    reading = reading_on(Below(h11.DONE, answered=True))
    nursery.start_soon(_let_go, reading)

    with pytest.raises(ConnectionEnded):
        await reading.wait()


async def test_a_hang_up_after_a_second_request_is_noticed() -> None:
    below = Below(h11.SEND_BODY, answered=False)
    below.hang_up.set()

    with pytest.raises(ConnectionEnded):
        await reading_on(below).wait()
    assert [type(event) for event in below.handled] == [Closed]


async def test_a_second_request_ends_the_connection_once_the_answer_is_written(
    nursery: trio.Nursery,
) -> None:
    below = Below(h11.SEND_BODY, answered=False)
    reading = reading_on(below)
    nursery.start_soon(_let_go, reading)

    with pytest.raises(ConnectionEnded):
        await reading.wait()
    assert below.handled == []
