"""A wave is held until every session has arrived and the conductor lets it go."""

import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from harness.recall.stage import Stage


async def test_no_session_passes_before_the_wave_is_let_go(nursery: trio.Nursery) -> None:
    stage = Stage(["a", "b"])
    passed: list[str] = []

    async def arrive(member: str) -> None:
        await stage.wait_opened(0, member)
        passed.append(member)

    nursery.start_soon(arrive, "a")
    nursery.start_soon(arrive, "b")
    await stage.wait_full(0)
    await wait_all_tasks_blocked()
    before = list(passed)
    stage.open(0)
    await wait_all_tasks_blocked()

    assert before == []
    assert sorted(passed) == ["a", "b"]
    assert stage.arrived(0) == 2


async def test_a_wave_is_not_full_while_a_session_is_missing(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    stage = Stage(["a", "b"])
    nursery.start_soon(stage.wait_opened, 0, "a")

    with trio.move_on_after(60) as waiting:
        await stage.wait_full(0)
    stage.open(0)

    assert waiting.cancelled_caught


async def test_a_session_that_leaves_is_not_waited_for(nursery: trio.Nursery) -> None:
    stage = Stage(["a", "b"])
    nursery.start_soon(stage.wait_opened, 0, "a")
    await wait_all_tasks_blocked()
    await stage.leave("b")
    await stage.wait_full(0)
    stage.open(0)

    assert stage.members == 1


async def test_a_session_that_arrives_twice_counts_once_and_late_ones_pass(
    nursery: trio.Nursery,
) -> None:
    stage = Stage(["a"])
    nursery.start_soon(stage.wait_opened, 3, "a")
    nursery.start_soon(stage.wait_opened, 3, "a")
    await stage.wait_full(3)
    stage.open(3)
    await stage.wait_opened(3, "a")

    assert stage.arrived(3) == 1
