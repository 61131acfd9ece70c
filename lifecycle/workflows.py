"""Workflows: the table of roots, and which root pays for a turn.

Rules for this file: pure; a refusal changes nothing but a count.

Theory of operation
-------------------
A child names its direct parent only, so a grandchild's root is not in its request. The table
remembers under which root each thread was last admitted, and a child joins the root of its parent.

Both tables are bounded. Roots: at the limit the longest unseen root that is idle and under its
ceilings is forgotten; one at a ceiling never is, since coming back it would find a fresh allowance;
if none can be forgotten, the new root is refused. Threads: the longest unseen is forgotten; its
children then pay where their own words put them.

An idle root at a ceiling stays there until a slot rolls off, or it is seen or cleared. So whoever
looks for one to forget passes over each of those once a slot, and not once a turn: a table that is
full of them costs no more than one that is not.

A turn without a root has no place, here `None`, and nothing limits it.
"""

from dataclasses import dataclass

from lifecycle.ask import AdmissionReason, Ask, Refusal, RootId, ThreadId
from lifecycle.budget import Place, Workflow, WorkflowStatistics
from lifecycle.limits import WorkflowLimits


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkflowsStatistics:
    """Roots tracked, and how many of them have a turn; refusals ever."""

    tracked: int
    active: int
    refused: int
    limit: int


class Workflows:
    """Every root there is. Every `now` is in seconds and never goes back."""

    def __init__(self, limits: WorkflowLimits) -> None:
        self._limits = limits
        self._roots: dict[RootId, Workflow] = {}  # longest unseen first
        self._hopeful: dict[RootId, Workflow] = {}  # of those, in order, who may be forgettable
        self._slot = 0  # in which the others were found at a ceiling
        self._next: RootId | None = None  # to be forgotten, until anything happens to any root
        self._root_of: dict[ThreadId, RootId] = {}  # longest unseen first
        self._refused = 0

    def root(self, ask: Ask) -> RootId | None:
        """Whose budget pays."""
        if ask.thread is not None and ask.parent is not None:
            return self._root_of.get(ask.parent, ask.root)
        return ask.root

    def refusal(
        self, ask: Ask, now: float, earlier: Place | None = None, freed: Place | None = None
    ) -> Refusal | None:
        """Why `ask` cannot follow `earlier`, or come by itself; `freed` gives way to it."""
        place = self._place(ask, earlier)
        if place is None:
            return None
        workflow = self._roots.get(place.root)
        if workflow is not None:
            return workflow.refusal(place, now, freed)
        if len(self._roots) >= self._limits.roots and self._forgettable(now) is None:
            return Refusal(AdmissionReason.WORKFLOW_TRACKING_EXHAUSTED)
        return None

    def count_refusal(self, ask: Ask) -> None:
        self._refused += 1
        root = self.root(ask)
        if root in self._roots:
            self._roots[root].refused += 1

    def reserve(self, ask: Ask, now: float, earlier: Place | None = None) -> Place | None:
        """Take the place for which `refusal` has found no reason in this same step."""
        place = self._place(ask, earlier)
        if place is not None:
            self._seen(place.root, now).reserve(place, now)
        return place

    def admit(self, place: Place | None) -> None:
        """The turn begins: its root is remembered for its children."""
        if place is None:
            return
        self._roots[place.root].admit(place)
        if place.thread is not None:
            self._root_of.pop(place.thread, None)  # to the young end
            self._root_of[place.thread] = place.root
            if len(self._root_of) > self._limits.threads:
                del self._root_of[next(iter(self._root_of))]

    def leave(self, place: Place | None, heir: Place | None = None) -> None:
        """Give a place back, or leave it to the one that waits to inherit it."""
        if place is not None:
            self._roots[place.root].leave(place)
            self._next = None
        if heir is not None:
            heir.inherits = None

    def sent(self, place: Place | None, now: float) -> bool:
        """Count a physical send; False for a further one that nothing is left for."""
        return place is None or self._roots[place.root].sent(place, now)

    def clear(self, root: RootId) -> bool:
        """Forgive a root its window; False when it is not tracked."""
        workflow = self._roots.get(root)
        if workflow is None:
            return False
        workflow.clear()
        self._hopeful, self._next = dict(self._roots), None
        return True

    def each(self, now: float) -> dict[RootId, WorkflowStatistics]:
        return {root: workflow.statistics(now) for root, workflow in self._roots.items()}

    def statistics(self) -> WorkflowsStatistics:
        return WorkflowsStatistics(
            tracked=len(self._roots),
            active=sum(not workflow.idle for workflow in self._roots.values()),
            refused=self._refused,
            limit=self._limits.roots,
        )

    def _place(self, ask: Ask, earlier: Place | None) -> Place | None:
        root = self.root(ask)
        if root is None:
            return None
        inherits = earlier if earlier is not None and earlier.root == root else None
        child = ask.thread if ask.counted else None
        return Place(root, ask.worker, ask.thread, child, inherits)

    def _seen(self, root: RootId, now: float) -> Workflow:
        workflow = self._roots.pop(root, None)
        self._hopeful.pop(root, None)
        if workflow is None:
            if len(self._roots) >= self._limits.roots:
                forgettable = self._forgettable(now)
                assert forgettable is not None, "`refusal` has found one"
                del self._roots[forgettable], self._hopeful[forgettable]
            workflow = Workflow(self._limits)
        self._roots[root] = self._hopeful[root] = workflow  # at the young end
        self._next = None
        return workflow

    def _forgettable(self, now: float) -> RootId | None:
        slot = self._limits.slot(now)
        if slot != self._slot:
            self._slot, self._hopeful, self._next = slot, dict(self._roots), None
        if self._next is None:
            self._look(now)
        return self._next

    def _look(self, now: float) -> None:
        spent = []
        for root, workflow in self._hopeful.items():
            if workflow.idle:
                if not workflow.at_ceiling(now):
                    self._next = root
                    break
                spent.append(root)
        for root in spent:
            del self._hopeful[root]
