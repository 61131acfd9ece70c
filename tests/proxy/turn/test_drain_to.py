"""Handing on: everything in order, and a filler exactly when nothing has come for long."""

import pytest
import trio
from trio.testing import MockClock

from proxy.responses.sse import Batch
from proxy.turn.ended import Delivered
from proxy.turn.outbox import Outbox, Taken, hand_on

SECONDS = 20.0
DONE = Delivered()


class Client:
    """Takes what it is given, each write in so many seconds, and notes when."""

    def __init__(self, takes_seconds: float = 0.0) -> None:
        self.outbox = Outbox(100, 300.0)
        self.got: list[tuple[float, bytes]] = []
        self._takes_seconds = takes_seconds

    async def write(self, taken: Taken) -> bool:
        with trio.CancelScope(shield=True):
            await trio.sleep(self._takes_seconds)
        self.got += [(trio.current_time(), batch.raw) for batch in taken.batches]
        return taken.ended is None

    async def fill(self) -> None:
        await trio.lowlevel.checkpoint()
        self.got.append((trio.current_time(), b"filler"))

    async def run(self) -> Taken:
        return await hand_on(self.outbox, self.write, SECONDS, self.fill)

    async def say(self, *pauses: float) -> None:
        """An event after each of these pauses, then the end."""
        for pause in pauses:
            await trio.sleep(pause)
            await self.outbox.put(Batch(b"event"))
        self.outbox.end(DONE)


@pytest.mark.parametrize(
    ("pauses", "fillers"),
    [
        ([0, 19, 19, 19], []),
        ([0, 21], [20]),
        ([5, 21], [25]),
        ([0, 19, 21, 1], [39]),
        ([0, 61], [20, 40, 60]),
        ([41, 5, 30], [20, 40, 66]),
    ],
)
async def test_a_filler_comes_when_nothing_has_come_for_long(
    pauses: list[float], fillers: list[float], nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    client = Client()
    nursery.start_soon(client.say, *pauses)
    await client.run()

    assert [at for at, what in client.got if what == b"filler"] == fillers
    assert [what for _, what in client.got if what != b"filler"] == [b"event"] * len(pauses)


async def test_a_write_that_takes_long_loses_nothing_and_is_not_a_silence(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    client = Client(takes_seconds=30)
    nursery.start_soon(client.say, 0, 1, 40)
    await client.run()

    assert client.got == [(30, b"event"), (60, b"event"), (80, b"filler"), (110, b"event")] or (
        client.got == [(30, b"event"), (60, b"event"), (90, b"event")]
    )


async def test_what_is_not_for_the_write_is_returned(nursery: trio.Nursery) -> None:
    client = Client()
    nursery.start_soon(client.say, 0)
    taken = await client.run()

    assert taken.ended == DONE
