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

A turn holds a `Place`. One that follows another of the same root and kind inherits its place: the
place is counted once, whoever holds it.
"""

from dataclasses import dataclass

from lifecycle.ask import Ask, RootId, ThreadId
from lifecycle.errors import Refusal
from lifecycle.limits import WorkflowLimits
from lifecycle.workflow import Workflow, WorkflowStatistics


@dataclass(slots=True, eq=False)
class Place:
    """A turn's share of its root: `announced` until its first send, `inherits` until it is passed
    on to it."""

    root: RootId
    worker: bool
    inherits: bool
    announced: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkflowsStatistics:
    tracked: int
    active: int
    refused: int
    limit: int


class Workflows:
    def __init__(self, limits: WorkflowLimits) -> None:
        self._limits = limits
        self._roots: dict[RootId, Workflow] = {}  # longest unseen first
        self._root_of: dict[ThreadId, RootId] = {}  # longest unseen first
        self._refused = 0

    def root(self, ask: Ask) -> RootId | None:
        """Whose budget pays."""
        if ask.parent is not None and ask.thread is not None:
            return self._root_of.get(ask.parent, ask.root)
        return ask.root

    def refusal(
        self, ask: Ask, now: float, inherits: Place | None = None, freed: Place | None = None
    ) -> Refusal | None:
        """Why `ask` cannot have a place; `freed` is one that would be given back for it."""
        root = self.root(ask)
        if root is None:
            return None
        workflow = self._roots.get(root)
        if workflow is None:
            full = len(self._roots) >= self._limits.roots
            if full and self._forgettable(now) is None:
                return Refusal.WORKFLOW_TRACKING_EXHAUSTED
            return None
        same = freed if freed is not None and freed.root == root else None
        if same is not None:
            self._withdraw(workflow, same)
        refusal = workflow.refusal(
            worker=ask.worker,
            child=_child(ask),
            inherits=_fits(inherits, root, ask),
            now=now,
        )
        if same is not None:
            workflow.enter(worker=same.worker, child=None, inherits=same.inherits, now=now)
        return refusal

    def count_refusal(self, ask: Ask) -> None:
        self._refused += 1
        root = self.root(ask)
        if root in self._roots:
            self._roots[root].refused += 1

    def enter(self, ask: Ask, now: float, inherits: Place | None = None) -> Place | None:
        """Take the place that `refusal` has found free; None where no workflow pays."""
        root = self.root(ask)
        if root is None:
            return None
        workflow = self._seen(root, now)
        if ask.thread is not None:
            self._remember(ask.thread, root)
        place = Place(root, ask.worker, _fits(inherits, root, ask))
        workflow.enter(worker=ask.worker, child=_child(ask), inherits=place.inherits, now=now)
        return place

    def leave(self, place: Place | None, heir: Place | None = None) -> None:
        """Give a place back, or pass it to the heir that inherits it."""
        if place is None:
            return
        passes = heir is not None and heir.inherits
        self._roots[place.root].leave(
            worker=place.worker, announced=place.announced, stays=passes or place.inherits
        )
        if heir is not None:
            heir.inherits = False

    def sent(self, place: Place | None, now: float) -> bool:
        """Count a physical send; False for a further one that nothing is left for."""
        if place is None:
            return True
        announced, place.announced = place.announced, False
        return self._roots[place.root].sent(worker=place.worker, announced=announced, now=now)

    def retry_seconds(self, ask: Ask, refusal: Refusal, now: float) -> float | None:
        root = self.root(ask)
        workflow = self._roots.get(root) if root is not None else None
        rolls = (Refusal.WORKFLOW_CHILDREN_EXHAUSTED, Refusal.WORKFLOW_SENDS_EXHAUSTED)
        if workflow is None or refusal not in rolls:
            return None
        return workflow.retry_seconds(refusal, worker=ask.worker, now=now)

    def clear(self, root: RootId) -> bool:
        """Forgive a root its window; False when it is not tracked."""
        workflow = self._roots.get(root)
        if workflow is None:
            return False
        workflow.clear()
        return True

    def each(self, now: float) -> dict[RootId, WorkflowStatistics]:
        return {root: workflow.statistics(now) for root, workflow in self._roots.items()}

    def statistics(self) -> WorkflowsStatistics:
        return WorkflowsStatistics(
            tracked=len(self._roots),
            active=sum(1 for workflow in self._roots.values() if not workflow.idle()),
            refused=self._refused,
            limit=self._limits.roots,
        )

    def _seen(self, root: RootId, now: float) -> Workflow:
        workflow = self._roots.pop(root, None)
        if workflow is None:
            if len(self._roots) >= self._limits.roots:
                forgettable = self._forgettable(now)
                assert forgettable is not None, "refusal has found one"
                del self._roots[forgettable]
            workflow = Workflow(self._limits)
        self._roots[root] = workflow  # at the young end
        return workflow

    def _forgettable(self, now: float) -> RootId | None:
        for root, workflow in self._roots.items():
            if workflow.idle() and not workflow.at_ceiling(now):
                return root
        return None

    def _remember(self, thread: ThreadId, root: RootId) -> None:
        self._root_of.pop(thread, None)
        self._root_of[thread] = root
        if len(self._root_of) > self._limits.threads:
            del self._root_of[next(iter(self._root_of))]

    def _withdraw(self, workflow: Workflow, place: Place) -> None:
        workflow.leave(worker=place.worker, announced=place.announced, stays=place.inherits)


def _child(ask: Ask) -> ThreadId | None:
    return ask.thread if ask.counted else None


def _fits(inherits: Place | None, root: RootId, ask: Ask) -> bool:
    """Whether a place can be inherited: it has to be of the same root and kind."""
    return inherits is not None and (inherits.root, inherits.worker) == (root, ask.worker)
