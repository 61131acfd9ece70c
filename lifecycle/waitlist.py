"""Lines: workers that wait for a turn of their root, where `workflow.hold_seconds` lets them.

Theory of operation
-------------------
A line is first come first served. It is served in the step that frees a turn, whatever frees it:
who is first is decided about there and then, so it holds its lease before its task runs, and
nobody overtakes. While somebody waits, the root has no turn for a worker, so who comes next is
refused by the ledger too, and joins behind. Waiting holds nothing but the place in line.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

import trio

from lifecycle.ask import AdmissionReason, Ask, Refusal, RootId
from lifecycle.ledger import Granted, Ledger, Waiting
from lifecycle.limits import WorkflowLimits

Decision = Granted | Waiting | Refusal


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitlistStatistics:
    """Workers that wait, over all roots."""

    waiting: int


@dataclass(slots=True, eq=False)
class _Waiter:
    ask: Ask
    decision: Decision | None = None
    called: trio.Event = field(default_factory=trio.Event)


class Waitlist:
    """`undo` is told what was decided for somebody who was cancelled in the same moment."""

    def __init__(
        self, limits: WorkflowLimits, ledger: Ledger, undo: Callable[[Decision], None]
    ) -> None:
        self._limits = limits
        self._ledger = ledger
        self._undo = undo
        self._lines: dict[RootId, deque[_Waiter]] = {}  # none of them empty

    async def ask(self, ask: Ask) -> Decision:
        """Ask the ledger, after waiting in line where there is reason to."""
        now = trio.current_time()
        root = self._ledger.workflows.root(ask)
        if root is None or not self._may_wait(ask, root, now):
            return self._ledger.ask(ask, now)
        me = _Waiter(ask)
        self._lines.setdefault(root, deque()).append(me)
        try:
            with trio.move_on_after(self._limits.hold_seconds):
                await me.called.wait()
        except BaseException:
            if me.decision is not None:
                self._undo(me.decision)
            raise
        finally:
            if me.decision is None:
                self._lines[root].remove(me)
                self._drop_if_empty(root)
        return me.decision or self._ledger.ask(ask, trio.current_time())

    def serve(self) -> None:
        """Turns may have come free, or a drain begun: call whoever need not wait, in order."""
        now = trio.current_time()
        for root, line in list(self._lines.items()):
            while line and not self._must_wait(line[0].ask, now):
                first = line.popleft()
                first.decision = self._ledger.ask(first.ask, now)
                first.called.set()
            self._drop_if_empty(root)

    def statistics(self) -> WaitlistStatistics:
        return WaitlistStatistics(waiting=sum(len(line) for line in self._lines.values()))

    def _may_wait(self, ask: Ask, root: RootId, now: float) -> bool:
        if not ask.worker or self._limits.hold_seconds <= 0:
            return False
        has_room = len(self._lines.get(root, ())) < self._limits.line
        return has_room and self._ledger.lacks_only_a_turn_of_its_root(ask, now)

    def _must_wait(self, ask: Ask, now: float) -> bool:
        """Who is first waits for its root alone: what else it lacks is found when that is there."""
        refused = None if self._ledger.draining else self._ledger.workflows.refusal(ask, now)
        return (
            refused is not None and refused.reason is AdmissionReason.WORKFLOW_CONCURRENCY_EXHAUSTED
        )

    def _drop_if_empty(self, root: RootId) -> None:
        if not self._lines[root]:
            del self._lines[root]
