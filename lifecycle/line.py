"""Lines: workers that wait for a turn of their root, where `workflow.hold_seconds` lets them.

A line is served in the step that gives a turn back, first come first served; a worker that comes
while others wait joins behind them. Waiting holds nothing but the place in line.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

import trio

from lifecycle.ask import Ask, RootId
from lifecycle.errors import Refusal
from lifecycle.ledger import Granted, Ledger, Refused, Waiting
from lifecycle.limits import WorkflowLimits

Decision = Granted | Waiting | Refused | None


@dataclass(slots=True, eq=False)
class _InLine:
    ask: Ask
    decision: Decision = None
    called: trio.Event = field(default_factory=trio.Event)


class Lines:
    def __init__(self, limits: WorkflowLimits) -> None:
        self._limits = limits
        self._lines: dict[RootId, deque[_InLine]] = {}

    def joins(self, ledger: Ledger, ask: Ask, now: float) -> bool:
        """Whether this ask is to wait: a worker, its root without a turn, room in the line."""
        root = ledger.workflows.root(ask)
        if self._limits.hold_seconds <= 0 or root is None or not ask.worker or ledger.draining:
            return False
        line = self._lines.get(root)
        if line is not None:
            return len(line) < self._limits.line
        full = Refusal.WORKFLOW_CONCURRENCY_EXHAUSTED
        return self._limits.line > 0 and ledger.workflows.refusal(ask, now) is full

    async def wait(self, ledger: Ledger, ask: Ask, undo: Callable[[Decision], None]) -> Decision:
        """Wait to be called; None when the time is over. `undo` is for who was called and
        cancelled in the same moment: nobody will enter what was decided."""
        root = ledger.workflows.root(ask)
        assert root is not None
        line = self._lines.setdefault(root, deque())
        me = _InLine(ask)
        line.append(me)
        try:
            with trio.move_on_after(self._limits.hold_seconds):
                await me.called.wait()
        except BaseException:
            undo(me.decision)
            raise
        finally:
            if me.decision is None:
                line.remove(me)
            if not line and self._lines.get(root) is line:
                del self._lines[root]
        return me.decision

    def serve(self, ledger: Ledger, now: float) -> None:
        """Turns were given back: call whoever can be decided about, in order."""
        full = Refusal.WORKFLOW_CONCURRENCY_EXHAUSTED
        for line in list(self._lines.values()):
            while line and (
                ledger.draining or ledger.workflows.refusal(line[0].ask, now) is not full
            ):
                first = line.popleft()
                first.decision = ledger.ask(first.ask, now)
                first.called.set()
