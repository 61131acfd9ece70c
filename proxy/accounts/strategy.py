"""Placing, pure: which of some accounts a new thread begins on, by the strategy that is set."""

from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Final

from proxy.accounts.route import RouteMemory, RoutingSettings
from proxy.accounts.view import UNSEEN_SCORE, AccountId, AccountView

IN_FLIGHT_POINTS: Final = 5.0
"""What a running turn counts for beside usage in percent, so that a burst does not all go to the
account that was a point cooler when it began."""


class Places:
    """Accounts as a new thread sees them. `ring` is every account, in order of configuration."""

    def __init__(
        self, ring: Iterable[AccountId], memory: RouteMemory, settings: RoutingSettings, now: float
    ) -> None:
        self._ring = ring
        self._memory = memory
        self._settings = settings
        self._now = now

    def has_headroom(self, view: AccountView) -> bool:
        return view.score(self._now) < self._settings.auto_switch_threshold

    def may_begin(self, view: AccountView) -> bool:
        """Whether a new thread is welcome: there is headroom, or nothing is known."""
        return not view.seen() or self.has_headroom(view)

    def first(self, among: Sequence[AccountView]) -> AccountView:
        """By strategy among those with headroom; without any, the one that is used least."""
        roomy = [view for view in among if self.may_begin(view)]
        if not roomy:
            return self.least_used(among)
        match self._settings.strategy:
            case "fill_first":
                return roomy[0]
            case "round_robin":
                return min(roomy, key=self._distance)
            case "reset_first":
                return min(roomy, key=lambda view: (self._next_reset(view), self._distance(view)))
            case "quota":
                return self.least_used(roomy)

    def least_used(self, among: Iterable[AccountView]) -> AccountView:
        """By usage and turns in flight; whoever comes next in the ring where that is equal.

        An account without usage shares with the best of the others: it is either new or reports
        none, and should neither take everything nor nothing.
        """
        views = list(among)
        scores = {view.id: view.score(self._now) for view in views}
        best = min((score for score in scores.values() if score < UNSEEN_SCORE), default=0.0)

        def burden(view: AccountView) -> tuple[float, int]:
            used = scores[view.id] if view.seen() else best
            running = self._memory.in_flight.get(view.id, 0)
            return used + IN_FLIGHT_POINTS * running, self._distance(view)

        return min(views, key=burden)

    def _distance(self, view: AccountView) -> int:
        """How far behind the cursor in the ring; 0 is next."""
        return self._distances[view.id]

    @cached_property
    def _distances(self) -> dict[AccountId, int]:
        numbers = {account: number for number, account in enumerate(self._ring)}
        cursor = self._memory.cursor
        start = numbers[cursor] + 1 if cursor in numbers else 0
        return {account: (number - start) % len(numbers) for account, number in numbers.items()}

    def _next_reset(self, view: AccountView) -> float:
        resets = (window.resets_at for window in view.windows if window.live(self._now))
        return min(resets, default=float("inf"))
