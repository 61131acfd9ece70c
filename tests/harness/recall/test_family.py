"""Every member of a fan-out pauses until it is told to go on, or until the fan-out ends."""

import trio
from trio.testing import wait_all_tasks_blocked

from harness.recall.family import At, FanOutFamily


async def test_a_member_goes_on_when_it_alone_is_told_to(nursery: trio.Nursery) -> None:
    family = FanOutFamily()
    gone: dict[str, bool] = {}

    async def stand(member: str) -> None:
        gone[member] = await family.pause(member, At.STANDING)

    nursery.start_soon(stand, "a")
    nursery.start_soon(stand, "b")
    await wait_all_tasks_blocked()
    family.go_on("a")
    await wait_all_tasks_blocked()
    before = dict(gone)
    going = family.members(At.GOING)
    family.end()
    await wait_all_tasks_blocked()

    assert (before, going) == ({"a": True}, ["a"])
    assert gone == {"a": True, "b": False}


async def test_a_family_is_settled_when_no_member_is_going(nursery: trio.Nursery) -> None:
    family = FanOutFamily()
    settled = trio.Event()
    family.move("a", At.GOING)
    family.move("b", At.GOING)

    async def wait() -> None:
        await family.wait_settled()
        settled.set()

    nursery.start_soon(wait)
    await wait_all_tasks_blocked()
    family.move("a", At.SERVED)
    await wait_all_tasks_blocked()
    early = settled.is_set()
    family.move("b", At.LOST)
    await settled.wait()

    assert not early
    assert (family.members(At.SERVED), family.members(At.LOST)) == (["a"], ["b"])


async def test_no_member_pauses_once_the_fan_out_has_ended() -> None:
    family = FanOutFamily()
    family.end()

    assert not await family.pause("a", At.REFUSED)
    await family.wait_over()
