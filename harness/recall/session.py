"""One simulated client that follows its plan, and misbehaves where the plan says."""

from typing import Self

import trio

from harness.recall.acts import SHOWN_BEFORE_CUT
from harness.recall.calls import OUTPUT_TYPES, Item, output_item
from harness.recall.faults import KEEPS_LINE, End, Fault, PlannedFault, Step
from harness.recall.line import LineClosed, LineMessage, SessionLine, StreamEvent
from harness.recall.plan import ScriptedExchange, SessionPlan, TurnPlan
from harness.recall.requests import instructions
from harness.recall.script import asked, steering
from harness.recall.watch import Notes, SeenAnswer, Watch

REQUEST_SECONDS = 30.0
"""Longer than any honest answer takes; a request that is still open then has been forgotten."""


HANG_UP_SECONDS = 1.0
"""Closing does not wait for the peer."""


class ClientSession:
    """Follows what arrives, not what was planned: tools run for the calls that were received."""

    def __init__(self, plan: SessionPlan, line: SessionLine, notes: Notes) -> None:
        self._plan = plan
        self._line = line
        self._notes = notes
        self._items: list[Item] = [instructions()]

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_raised: object) -> None:
        """Hang up, whatever has happened."""
        with trio.move_on_after(HANG_UP_SECONDS, shield=True):
            await self._line.drop()

    async def run(self) -> bool:
        """Take all turns; return False at the first that cannot be completed."""
        async with self:
            for turn in self._plan.turns:
                if not await self.take(turn):
                    return False
            await self.note_leftovers()
        return True

    async def ask_once(self) -> End:
        """Send the first request alone, for a session that is expected to be refused."""
        turn = self._plan.turns[0]
        self.begin(turn)
        async with self:
            seen, _items = await self.ask(turn, Step.CALLS)
        return seen.end

    def begin(self, turn: TurnPlan) -> None:
        """Let the user speak."""
        self._items += asked(self._plan, turn, Step.CALLS)

    async def take(self, turn: TurnPlan) -> bool:
        """Take a whole turn; return whether it was completed."""
        self.begin(turn)
        for step in Step:
            if not await self._take(turn, step):
                return False
        return True

    async def ask(
        self, turn: TurnPlan, step: Step, attempt: int = 1, fault: PlannedFault | None = None
    ) -> tuple[SeenAnswer, list[Item]]:
        """Send one request; return what was seen and the items that came back."""
        thread_id = self._plan.thread_id
        exchange = ScriptedExchange(
            thread_id=thread_id, turn=turn.number, step=step, attempt=attempt
        )
        watch = Watch(self._plan, exchange)
        began = trio.current_time()
        end = End.TIMED_OUT
        with trio.move_on_after(REQUEST_SECONDS):
            await self._line.send(exchange, self._items)
            end = await self._read(watch, fault)
        seen = watch.seen(end, trio.current_time() - began)
        self._notes.add(seen)
        return seen, watch.items

    async def start_over(self) -> None:
        """Leave the connection, as Codex does before it tries again."""
        await self._line.drop()

    async def note_leftovers(self) -> None:
        for message in await self._line.leftovers():
            self._notes.problems.append(f"{self._plan.name}: {message} though nothing runs")

    async def _take(self, turn: TurnPlan, step: Step) -> bool:
        """Take one step of a turn; after a planned fault, try it once more."""
        fault = turn.fault if turn.fault_at(step, 1) else None
        seen, items = await self.ask(turn, step, 1, fault)
        if fault is not None and seen.end is not End.COMPLETED:
            if fault.kind is Fault.INTERRUPT:
                self._items += [*items, steering(self._plan, turn)]
            if fault.kind not in KEEPS_LINE:
                await self._line.drop()
            seen, items = await self.ask(turn, step, 2)
        if seen.end is not End.COMPLETED:
            return False
        await self.run_tools(turn, items)
        return True

    async def run_tools(self, turn: TurnPlan, items: list[Item]) -> None:
        """Run the tools in parallel, so that the slowest decides; their outputs go up together."""
        calls = [item for item in items if item.get("type") in OUTPUT_TYPES]
        if calls:
            await trio.sleep(max(call.latency_seconds for call in turn.calls))
        self._items += [*items, *(output_item(call, self._plan.secret) for call in calls)]

    async def _read(self, watch: Watch, fault: PlannedFault | None) -> End:
        if fault is not None and fault.kind is Fault.HANG_UP_WAITING:
            await trio.sleep(fault.delay_seconds)
            return End.LEFT
        while True:
            message = await self._line.receive()
            watch.note(message)
            if isinstance(message, LineClosed):
                return watch.end() or End.CUT
            if not self._line.ends_itself and (end := watch.end()):
                return end
            if fault is not None and (end := await self._misbehave(fault, watch, message)):
                return end

    async def _misbehave(
        self, fault: PlannedFault, watch: Watch, message: LineMessage
    ) -> End | None:
        """Act out the fault when its moment has come; return an End if that ends the request."""
        match fault.kind:
            case Fault.SLOW_READER if watch.marked == 1:
                await trio.sleep(fault.delay_seconds)
            case Fault.HANG_UP_STREAMING if watch.marked == SHOWN_BEFORE_CUT:
                return End.LEFT
            case Fault.REPLACE if watch.marked == SHOWN_BEFORE_CUT:
                return End.REPLACED
            case Fault.INTERRUPT if isinstance(message, StreamEvent) and message.is_item:
                return None if await self._line.interrupt() else End.LEFT
        return None
