"""Body: what a client sends, within its bounds of size, time and memory."""

from collections.abc import Awaitable, Callable

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from lifecycle import Lease
from proxy.ingress.body import EARLY_BYTES, Body
from proxy.refusal import Reason, Refused
from tests.proxy.ingress.bodies import MIB, admitted, held

SILENT_SECONDS = 10.0
SECONDS = 120.0
TIMEOUT = Refused(reason=Reason.BODY_TIMEOUT)


class Reading:
    """`Body.read` in a task of its own: its result, and when it came."""

    def __init__(self) -> None:
        self.result: bytes | Refused | None = None
        self.at: float | None = None

    async def run(self, body: Body, lease: Lease) -> None:
        self.result = await body.read(lease, SILENT_SECONDS, SECONDS)
        self.at = trio.current_time()


Read = Callable[[Body, Lease], Awaitable[Reading]]


@pytest.fixture
def reading(nursery: trio.Nursery) -> Read:
    async def begin(body: Body, lease: Lease) -> Reading:
        found = Reading()
        nursery.start_soon(found.run, body, lease)
        await wait_all_tasks_blocked()
        return found

    return begin


@pytest.mark.parametrize(
    "chunks", [[b""], [b"abc"], [b"a", b"b", b"c"], [b"abc", b""], [b"", b"abc"]]
)
async def test_a_body_is_its_chunks_in_order(chunks: list[bytes]) -> None:
    body = Body(MIB, 0)
    async with admitted() as (lease, _):
        for index, chunk in enumerate(chunks):
            await body.feed(chunk, more=index < len(chunks) - 1)

        assert await body.read(lease, SILENT_SECONDS, SECONDS) == b"".join(chunks)


async def test_reading_waits_for_the_last_chunk(reading: Read) -> None:
    body = Body(MIB, 0)
    async with admitted() as (lease, _):
        read = await reading(body, lease)
        await body.feed(b"a", more=True)
        await wait_all_tasks_blocked()
        before = read.result
        await body.feed(b"b", more=False)
        await wait_all_tasks_blocked()

        assert (before, read.result) == (None, b"ab")


# Time.


async def test_a_body_that_falls_silent_is_given_up(
    reading: Read, autojump_clock: MockClock
) -> None:
    body = Body(MIB, 0)
    async with admitted() as (lease, _):
        read = await reading(body, lease)
        await trio.sleep(9)
        await body.feed(b"a", more=True)
        await trio.sleep(9)
        await body.feed(b"", more=True)  # a sign of life, too
        await trio.sleep(60)

        assert (read.result, read.at) == (TIMEOUT, 28)


async def test_a_body_that_trickles_is_given_up_however_steadily_it_comes(
    reading: Read, autojump_clock: MockClock
) -> None:
    body = Body(MIB, 0)
    async with admitted() as (lease, _):
        read = await reading(body, lease)
        while read.result is None:
            await trio.sleep(7)
            await body.feed(b"a", more=True)

        assert (read.result, read.at) == (TIMEOUT, SECONDS)


async def test_a_body_given_up_is_read_on_and_not_kept(
    reading: Read, autojump_clock: MockClock
) -> None:
    body = Body(MIB, 0)
    async with admitted() as (lease, admission):
        await reading(body, lease)
        await trio.sleep(60)
        await body.feed(bytes(EARLY_BYTES + 1), more=True)
        before = body.complete.is_set()
        await body.feed(b"", more=False)

        assert (before, body.complete.is_set()) == (False, True)
        assert held(admission) == 0


# Size and memory.


async def test_a_body_of_exactly_the_limit_is_taken(reading: Read) -> None:
    body = Body(100, 0)
    async with admitted() as (lease, _):
        read = await reading(body, lease)
        await body.feed(bytes(60), more=True)
        await body.feed(bytes(40), more=False)
        await wait_all_tasks_blocked()

        assert read.result == bytes(100)


async def test_a_larger_body_is_refused_before_it_has_ended(reading: Read) -> None:
    body = Body(100, 0)
    async with admitted() as (lease, admission):
        read = await reading(body, lease)
        await body.feed(bytes(60), more=True)
        await body.feed(bytes(41), more=True)
        await wait_all_tasks_blocked()
        result = read.result
        await body.feed(bytes(10**6), more=False)  # taken off the wire, and dropped

        assert result == Refused(reason=Reason.TOO_LARGE)
        assert held(admission) == 60


async def test_a_larger_body_that_came_before_the_lease_is_refused_too() -> None:
    body = Body(100, 0)
    await body.feed(bytes(101), more=False)
    async with admitted() as (lease, admission):
        assert await body.read(lease, SILENT_SECONDS, SECONDS) == Refused(reason=Reason.TOO_LARGE)
        assert held(admission) == 0


async def test_only_what_exceeds_the_announced_length_is_charged(reading: Read) -> None:
    body = Body(MIB, 100)
    async with admitted(announced=100) as (lease, admission):
        await body.feed(bytes(30), more=True)
        read = await reading(body, lease)
        await body.feed(bytes(70), more=True)
        announced = held(admission)
        await body.feed(bytes(57), more=False)
        await wait_all_tasks_blocked()

        assert (announced, held(admission)) == (100, 157)
        assert read.result == bytes(157)


async def test_what_came_before_the_lease_is_charged_to_it() -> None:
    body = Body(MIB, 0)
    await body.feed(bytes(30), more=False)
    async with admitted() as (lease, admission):
        await body.read(lease, SILENT_SECONDS, SECONDS)

        assert held(admission) == 30


async def test_growth_beyond_the_memory_gate_is_refused(reading: Read) -> None:
    body = Body(MIB, 0)
    async with admitted(memory=100) as (lease, admission):
        read = await reading(body, lease)
        await body.feed(bytes(100), more=True)
        await body.feed(bytes(1), more=True)
        await wait_all_tasks_blocked()

        assert read.result == Refused(reason=Reason.MEMORY_AT_CAPACITY)
        assert held(admission) == 100


@pytest.mark.parametrize("admit", [True, False])
async def test_only_64_kib_are_taken_in_before_the_decision(
    admit: bool, nursery: trio.Nursery
) -> None:
    body = Body(MIB, 0)
    fed = trio.Event()

    async def feed() -> None:
        await body.feed(bytes(1), more=True)
        fed.set()

    await body.feed(bytes(EARLY_BYTES), more=True)
    nursery.start_soon(feed)
    await wait_all_tasks_blocked()
    before = fed.is_set()
    async with admitted() as (lease, admission):
        if admit:
            nursery.start_soon(body.read, lease, SILENT_SECONDS, SECONDS)
        else:
            body.discard()
        await fed.wait()
        await body.feed(bytes(10), more=False)

        assert (before, body.complete.is_set()) == (False, True)
        assert held(admission) == (EARLY_BYTES + 11 if admit else 0)
