"""Outbox: bounded, in order, and an end that nothing can hold up."""

from collections.abc import Awaitable, Callable

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from proxy.errors import ClientStalled
from proxy.responses.sse import Batch
from proxy.turn.ended import Broken, Delivered, Head
from proxy.turn.outbox import Outbox, Taken

LIMIT = 10
STALL_SECONDS = 30.0
HEAD = Head(status=200, headers=[])
DONE = Delivered()


def event(size: int, name: str = "") -> Batch:
    return Batch(b"x" * size, (name.encode(),))


class Watched:
    """Something that waits, and when it stopped waiting."""

    def __init__(self) -> None:
        self.returned_at: float | None = None
        self.stalled_at: float | None = None

    @property
    def waits(self) -> bool:
        return self.returned_at is None and self.stalled_at is None

    async def run(self, call: Callable[[], Awaitable[object]]) -> None:
        await trio.lowlevel.checkpoint()
        try:
            await call()
        except ClientStalled:
            self.stalled_at = trio.current_time()
        else:
            self.returned_at = trio.current_time()


async def watch(nursery: trio.Nursery, call: Callable[[], Awaitable[object]]) -> Watched:
    """Start it, and return once it has ended or waits."""
    watched = Watched()
    nursery.start_soon(watched.run, call)
    await wait_all_tasks_blocked()
    return watched


@pytest.fixture
def outbox() -> Outbox:
    return Outbox(LIMIT, STALL_SECONDS)


# Taking.


async def test_what_came_together_is_taken_together_in_order_and_only_the_end_twice(
    outbox: Outbox,
) -> None:
    batches = [event(1, "a"), event(2, "b"), event(3, "c")]
    outbox.begin(HEAD)
    for batch in batches:
        await outbox.put(batch)
    outbox.end(DONE)

    assert await outbox.take() == Taken(head=HEAD, batches=batches, ended=DONE)
    assert await outbox.take() == Taken(head=None, batches=[], ended=DONE)


@pytest.mark.parametrize("way", ["put", "inject", "end"])
async def test_taking_waits_for_the_first_thing_that_comes(
    way: str, outbox: Outbox, nursery: trio.Nursery
) -> None:
    taking = await watch(nursery, outbox.take)
    assert taking.waits
    match way:
        case "put":
            await outbox.put(event(1))
        case "inject":
            outbox.inject(b"x")
        case "end":
            outbox.end(DONE)
    await wait_all_tasks_blocked()

    assert not taking.waits


async def test_a_head_waits_for_the_first_event(outbox: Outbox, nursery: trio.Nursery) -> None:
    taking = await watch(nursery, outbox.take)
    outbox.begin(HEAD)
    await wait_all_tasks_blocked()

    assert taking.waits


async def test_taking_can_be_given_up_and_nothing_is_lost(
    outbox: Outbox, autojump_clock: MockClock
) -> None:
    with trio.move_on_after(1):
        await outbox.take()
    await outbox.put(event(1, "a"))

    assert (await outbox.take()).batches == [event(1, "a")]


# The bound.


async def test_putting_beyond_the_limit_waits_until_it_is_written(
    outbox: Outbox, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    putting = await watch(nursery, lambda: outbox.put(event(11)))
    taken = await outbox.take()
    await trio.sleep(20)
    assert putting.waits
    await watch(nursery, outbox.take)

    assert taken.batches == [event(11)]
    assert putting.returned_at == 20
    outbox.end(DONE)


async def test_what_is_being_written_takes_the_room_of_what_comes(
    outbox: Outbox, nursery: trio.Nursery
) -> None:
    await outbox.put(event(6))
    await outbox.take()
    within = await watch(nursery, lambda: outbox.put(event(4)))
    beyond = await watch(nursery, lambda: outbox.put(event(1)))
    assert (within.waits, beyond.waits) == (False, True)
    await outbox.take()
    await wait_all_tasks_blocked()

    assert not beyond.waits


async def test_a_writer_that_takes_something_has_its_time_again(
    outbox: Outbox, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    putting = await watch(nursery, lambda: outbox.put(event(11)))
    await trio.sleep(20)
    await outbox.take()
    outbox.inject(b"x" * 11)  # so there is no room again when the putting task looks
    await trio.sleep(100)

    assert putting.stalled_at == 20 + STALL_SECONDS


async def test_events_of_our_own_have_room_at_any_time(outbox: Outbox) -> None:
    outbox.inject(b"a" * 100)
    outbox.inject(b"b" * 100)

    assert (await outbox.take()).batches == [
        Batch(frame, (frame,)) for frame in (b"a" * 100, b"b" * 100)
    ]


async def test_events_of_our_own_are_counted_until_they_are_taken_or_dropped(
    outbox: Outbox,
) -> None:
    await outbox.put(event(1))
    for _ in range(3):
        outbox.inject(b"x")
    assert outbox.injected == 3
    await outbox.take()
    assert outbox.injected == 0
    outbox.inject(b"x")
    outbox.discard()

    assert outbox.injected == 0


# The last byte.


@pytest.mark.parametrize(("taken_at", "returned", "stalled"), [(29, 29, None), (99, None, 30)])
async def test_the_last_byte_is_waited_for_but_not_for_ever(
    outbox: Outbox,
    nursery: trio.Nursery,
    autojump_clock: MockClock,
    taken_at: float,
    returned: float | None,
    stalled: float | None,
) -> None:
    await outbox.put(event(1))
    waiting = await watch(nursery, outbox.wait_taken)
    assert waiting.waits
    await trio.sleep(taken_at)
    await outbox.take()
    await wait_all_tasks_blocked()

    assert (waiting.returned_at, waiting.stalled_at) == (returned, stalled)


async def test_a_head_alone_has_no_byte_to_wait_for(outbox: Outbox, nursery: trio.Nursery) -> None:
    outbox.begin(HEAD)
    waiting = await watch(nursery, outbox.wait_taken)

    assert not waiting.waits


# The end.


async def test_an_end_finds_its_place_in_a_full_outbox(
    outbox: Outbox, nursery: trio.Nursery
) -> None:
    putting = await watch(nursery, lambda: outbox.put(event(11)))
    outbox.end(DONE)

    assert putting.waits
    assert outbox.ended is DONE
    assert await outbox.take() == Taken(head=None, batches=[event(11)], ended=DONE)


def test_the_first_word_about_the_end_counts(outbox: Outbox) -> None:
    assert outbox.ended is None
    outbox.end(DONE)
    outbox.end(Broken())

    assert outbox.ended is DONE


# Discarding.


async def test_what_is_discarded_is_never_seen(outbox: Outbox, nursery: trio.Nursery) -> None:
    outbox.begin(HEAD)
    await outbox.put(event(5))
    outbox.discard()
    outbox.begin(HEAD)
    outbox.inject(b"x" * 50)
    putting = await watch(nursery, lambda: outbox.put(event(50)))
    outbox.end(DONE)

    assert not putting.waits
    assert await outbox.take() == Taken(head=None, batches=[], ended=DONE)


@pytest.mark.parametrize("way", ["put", "wait_taken"])
async def test_discarding_ends_every_wait_for_room(
    way: str, outbox: Outbox, nursery: trio.Nursery
) -> None:
    outbox.inject(b"x" * 11)
    call = outbox.wait_taken if way == "wait_taken" else lambda: outbox.put(event(1))
    waiting = await watch(nursery, call)
    assert waiting.waits
    outbox.discard()
    await wait_all_tasks_blocked()

    assert not waiting.waits


# How long the writer has been busy.


async def test_a_writer_is_busy_from_taking_to_taking_again(
    outbox: Outbox, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    assert outbox.stalled_seconds() == 0
    await outbox.put(event(1))
    await trio.sleep(5)
    assert outbox.stalled_seconds() == 0
    await outbox.take()
    await trio.sleep(7)
    assert outbox.stalled_seconds() == 7
    taking = await watch(nursery, outbox.take)
    await trio.sleep(9)

    assert taking.waits
    assert outbox.stalled_seconds() == 0
    outbox.end(DONE)


async def test_a_writer_that_gave_up_waiting_is_busy_with_something_else(
    outbox: Outbox, autojump_clock: MockClock
) -> None:
    with trio.move_on_after(20):
        await outbox.take()
    await trio.sleep(7)

    assert outbox.stalled_seconds() == 7


async def test_after_the_end_a_writer_is_not_stalled(
    outbox: Outbox, autojump_clock: MockClock
) -> None:
    await outbox.put(event(1))
    await outbox.take()
    await trio.sleep(7)
    outbox.end(DONE)

    assert outbox.stalled_seconds() == 0
