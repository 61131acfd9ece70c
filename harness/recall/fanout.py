"""The fan-out: one conversation whose children ask all at once, and what comes of it.

Theory of operation
-------------------
The upstream begins every stream and then holds it, so nothing ends before it is told to, and at
each moment it is exact which turns run and which were refused. Which of the children run is a race,
how many is not. A child that was refused asks again when the conductor says so, which is when a
stream has ended; Codex would wait as long as it was advised. Tools run until all streams have
ended, so that no turn makes its second request in between; then as many make it as may at once.
"""

from collections.abc import Awaitable, Callable
from itertools import count

import trio

from harness.recall.calls import Item
from harness.recall.evidence import FanOutEvidence, FanOutSample, Moment
from harness.recall.family import At, FanOutFamily
from harness.recall.faults import End, Step
from harness.recall.plan import WORKERS, FanOut, SessionPlan
from harness.recall.probe import Probe
from harness.recall.session import ClientSession


class Conductor:
    def __init__(
        self,
        plan: FanOut,
        family: FanOutFamily,
        open_session: Callable[[SessionPlan], ClientSession],
    ) -> None:
        self._plan = plan
        self._family = family
        self._open_session = open_session
        self._recalls = trio.CapacityLimiter(WORKERS)
        self._samples: dict[Moment, FanOutSample] = {}
        self._interactive_seconds: float | None = None

    async def run(self, probe: Probe, seconds: float) -> FanOutEvidence:
        """Conduct the fan-out; what is not settled within `seconds` is let go."""
        before = await probe.read()
        async with trio.open_nursery() as nursery:
            with trio.move_on_after(seconds):
                await self._conduct(nursery, probe)
            self._family.end()
        return FanOutEvidence(
            before=before, samples=self._samples, interactive_seconds=self._interactive_seconds
        )

    async def _conduct(self, nursery: trio.Nursery, probe: Probe) -> None:
        family, root = self._family, self._plan.root
        await self._start(nursery, self._lead, root)
        await self._start(nursery, self._work, *self._plan.children)
        await self._sample(Moment.FANNED, probe)
        if family.members(At.READY):
            began = trio.current_time()
            await self._go_on(root.thread_id)
            self._interactive_seconds = trio.current_time() - began
        await self._sample(Moment.JOINED, probe)
        for again in family.members(At.REFUSED)[:1]:
            await self._go_on(again)
        await self._start(nursery, self._work, self._plan.grandchild)
        await self._sample(Moment.PRESSED, probe)
        await self._let_in()
        await self._sample(Moment.CHANGED, probe)
        await self._go_on(*family.members(At.STANDING))

    async def _let_in(self) -> None:
        """End one stream after another, and let one refused child ask again each time."""
        family = self._family
        while refused := family.members(At.REFUSED):
            workers = set(family.members(At.STANDING)) - {self._plan.root.thread_id}
            if not workers:
                return
            await self._go_on(min(workers))
            await self._go_on(refused[0])

    async def _go_on(self, *members: str) -> None:
        for member in members:
            self._family.go_on(member)
        await self._family.wait_settled()

    async def _start(
        self,
        nursery: trio.Nursery,
        live: Callable[[SessionPlan], Awaitable[None]],
        *plans: SessionPlan,
    ) -> None:
        for plan in plans:
            self._family.move(plan.thread_id, At.GOING)
            nursery.start_soon(live, plan)
        await self._family.wait_settled()

    async def _sample(self, moment: Moment, probe: Probe) -> None:
        self._samples[moment] = FanOutSample(
            standing=len(self._family.members(At.STANDING)),
            refused=len(self._family.members(At.REFUSED)),
            status=await probe.read(),
        )

    async def _lead(self, plan: SessionPlan) -> None:
        """Play the conversation itself: one turn before the children, and one among them."""
        first, second = plan.turns
        async with self._open_session(plan) as session:
            if not await session.take(first):
                self._family.move(plan.thread_id, At.LOST)
            elif await self._family.pause(plan.thread_id, At.READY):
                session.begin(second)
                seen, items = await session.ask(second, Step.CALLS)
                if self._arrive(plan, seen.end):
                    await session.run_tools(second, items)
                    await session.ask(second, Step.RECALL)
                await session.note_leftovers()

    async def _work(self, plan: SessionPlan) -> None:
        (turn,) = plan.turns
        async with self._open_session(plan) as session:
            session.begin(turn)
            items = await self._ask_until_served(plan, session)
            if items is not None:
                await self._family.wait_over()
                await session.run_tools(turn, items)
                async with self._recalls:
                    await session.ask(turn, Step.RECALL)
                await session.note_leftovers()

    async def _ask_until_served(
        self, plan: SessionPlan, session: ClientSession
    ) -> list[Item] | None:
        attempts = count(1)
        while True:
            seen, items = await session.ask(plan.turns[0], Step.CALLS, next(attempts))
            if not seen.refused_here:
                return items if self._arrive(plan, seen.end) else None
            await session.start_over()
            if not await self._family.pause(plan.thread_id, At.REFUSED):
                return None

    def _arrive(self, plan: SessionPlan, end: End) -> bool:
        served = end is End.COMPLETED
        self._family.move(plan.thread_id, At.SERVED if served else At.LOST)
        return served
