"""A model of the budgets of roots: it remembers all that ever happened, and counts it again."""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain, combinations

from lifecycle import (
    AdmissionReason,
    Ask,
    LeaseId,
    RootId,
    ThreadId,
    WorkflowLimits,
    WorkflowStatistics,
)


@dataclass(eq=False)
class Turn:
    """A turn of a root, or of none, that was promised a lease at `since`."""

    root: RootId | None
    ask: Ask
    since: float
    sent: bool = False

    @property
    def child(self) -> ThreadId | None:
        return self.ask.thread if self.ask.counted else None


class Budgets:
    def __init__(self, limits: WorkflowLimits) -> None:
        self.limits = limits
        self.now = 0.0
        self.turns: dict[LeaseId, Turn] = {}
        self.followers: dict[LeaseId, Turn] = {}  # by the lease that each follows
        self.sends: list[tuple[RootId, float, bool]] = []
        self.children: list[tuple[RootId, float, ThreadId]] = []
        self.tracked: list[RootId] = []  # longest unseen first
        self.lineage: list[tuple[ThreadId, RootId]] = []  # longest unseen first
        self.refused: list[RootId] = []
        self.all_refused = 0

    # What is counted.

    def root(self, ask: Ask) -> RootId | None:
        if ask.parent is None:
            return ask.root
        return dict(self.lineage).get(ask.parent, ask.root)

    def in_window(self, then: float) -> bool:
        slot_seconds = self.limits.window_seconds / self.limits.slots
        return self.now // slot_seconds - then // slot_seconds < self.limits.slots

    def sends_of(self, root: RootId, live: Iterable[Turn] = ()) -> tuple[int, int]:
        """By workers and by interactive turns: those that were, and those that may still be."""
        sends = [worker for of, then, worker in self.sends if of == root and self.in_window(then)]
        sends += [turn.ask.worker for turn in live if turn.root == root and not turn.sent]
        return sends.count(True), sends.count(False)

    def children_of(self, root: RootId, live: Iterable[Turn]) -> set[ThreadId]:
        were = {child for of, then, child in self.children if of == root and self.in_window(then)}
        return were | {x.child for x in live if x.root == root and x.child is not None}

    def live(self) -> list[Turn]:
        return [*self.turns.values(), *self.followers.values()]

    def futures_of(
        self, root: RootId, turns: list[Turn], followers: dict[LeaseId, Turn]
    ) -> list[list[Turn]]:
        """Return the turns under a root, for each set of followers that may be granted."""
        every = range(len(followers) + 1)
        return [
            [
                turn
                for turn in (
                    *(x for x in turns if x not in [self.turns[at] for at in granted]),
                    *(followers[at] for at in granted),
                )
                if turn.root == root
            ]
            for granted in chain.from_iterable(combinations(followers, n) for n in every)
        ]

    def is_idle(self, root: RootId) -> bool:
        return all(turn.root != root for turn in self.live())

    def at_ceiling(self, root: RootId) -> bool:
        workers, interactive = self.sends_of(root)
        return (
            workers >= self.limits.sends
            or workers + interactive >= self.limits.sends + self.limits.sends_kept
            or len(self.children_of(root, ())) >= self.limits.children
        )

    def forgettable(self) -> RootId | None:
        can = (x for x in self.tracked if self.is_idle(x) and not self.at_ceiling(x))
        return next(can, None)

    def statistics(self) -> dict[RootId, WorkflowStatistics]:
        return {root: self._statistics_of(root) for root in self.tracked}

    def _statistics_of(self, root: RootId) -> WorkflowStatistics:
        futures = self.futures_of(root, list(self.turns.values()), self.followers)
        worker_sends, interactive_sends = self.sends_of(root)
        return WorkflowStatistics(
            active=max(len(running) for running in futures),
            workers=max(sum(x.ask.worker for x in running) for running in futures),
            children=len(self.children_of(root, self.live())),
            worker_sends=worker_sends,
            interactive_sends=interactive_sends,
            refused=self.refused.count(root),
        )

    # What is decided.

    def refusal(self, ask: Ask, earlier: LeaseId | None) -> AdmissionReason | None:
        """Return the refusal of an ask that follows `earlier`, instead of its follower, or none."""
        root = self.root(ask)
        if root is None:
            return None
        if root not in self.tracked:
            full = len(self.tracked) >= self.limits.roots and self.forgettable() is None
            return AdmissionReason.WORKFLOW_TRACKING_EXHAUSTED if full else None
        me, turns = Turn(root, ask, self.now), list(self.turns.values())
        followers = {at: x for at, x in self.followers.items() if at != earlier}
        if earlier is None:
            turns.append(me)
        else:
            followers[earlier] = me
        return self._refusal_of(root, ask, turns, followers)

    def _refusal_of(
        self, root: RootId, ask: Ask, turns: list[Turn], followers: dict[LeaseId, Turn]
    ) -> AdmissionReason | None:
        limits, live = self.limits, [*turns, *followers.values()]
        workers, interactive = self.sends_of(root, live)
        if len(self.children_of(root, live)) > limits.children:
            return AdmissionReason.WORKFLOW_CHILDREN_EXHAUSTED
        if (ask.worker and workers > limits.sends) or (
            workers + interactive > limits.sends + limits.sends_kept
        ):
            return AdmissionReason.WORKFLOW_SENDS_EXHAUSTED
        futures = self.futures_of(root, turns, followers)
        if any(
            len(running) > limits.turns
            or sum(turn.ask.worker for turn in running) > limits.turns - limits.kept
            for running in futures
        ):
            return AdmissionReason.WORKFLOW_CONCURRENCY_EXHAUSTED
        return None

    def may_send(self, lease_id: LeaseId) -> bool:
        turn = self.turns[lease_id]
        if turn.root is None or not turn.sent:
            return True
        workers, interactive = self.sends_of(turn.root, self.live())
        return (not turn.ask.worker or workers < self.limits.sends) and (
            workers + interactive < self.limits.sends + self.limits.sends_kept
        )

    def retry_seconds(self, ask: Ask, earlier: LeaseId | None, refusal: AdmissionReason) -> float:
        """When the same refusal is not due any more if nothing happens; a window if it stays."""
        now, slot_seconds = self.now, self.limits.window_seconds / self.limits.slots
        try:
            for ahead in range(1, self.limits.slots + 1):
                self.now = (now // slot_seconds + ahead) * slot_seconds
                if self.refusal(ask, earlier) is not refusal:
                    return self.now - now
            return self.limits.window_seconds
        finally:
            self.now = now

    # What happens.

    def granted(self, lease_id: LeaseId, ask: Ask) -> None:
        turn = Turn(self.root(ask), ask, self.now)
        self._see(turn.root)
        self._begin(lease_id, turn)

    def waits(self, earlier: LeaseId, ask: Ask) -> None:
        self.followers[earlier] = Turn(self.root(ask), ask, self.now)
        self._see(self.root(ask))

    def ended(self, lease_id: LeaseId, heir_id: LeaseId | None) -> None:
        del self.turns[lease_id]
        if heir_id is not None:
            self._begin(heir_id, self.followers.pop(lease_id))

    def sent(self, lease_id: LeaseId) -> None:
        turn = self.turns[lease_id]
        turn.sent = True
        if turn.root is not None:
            self.sends.append((turn.root, self.now, turn.ask.worker))

    def was_refused(self, ask: Ask) -> None:
        self.all_refused += 1
        root = self.root(ask)
        if root in self.tracked:
            self.refused.append(root)

    def clear(self, root: RootId) -> None:
        self.sends = [x for x in self.sends if x[0] != root]
        self.children = [x for x in self.children if x[0] != root]

    def _begin(self, lease_id: LeaseId, turn: Turn) -> None:
        self.turns[lease_id] = turn
        if turn.root is None:
            return
        if turn.child is not None:
            self.children.append((turn.root, turn.since, turn.child))
        assert turn.ask.thread is not None
        others = [x for x in self.lineage if x[0] != turn.ask.thread]
        self.lineage = [*others, (turn.ask.thread, turn.root)][-self.limits.threads :]

    def _see(self, root: RootId | None) -> None:
        if root is None:
            return
        if root in self.tracked:
            self.tracked.remove(root)
        elif len(self.tracked) >= self.limits.roots:
            forgotten = self.forgettable()
            assert forgotten is not None
            self.tracked.remove(forgotten)
            self.clear(forgotten)
            self.refused = [x for x in self.refused if x != forgotten]
        self.tracked.append(root)
