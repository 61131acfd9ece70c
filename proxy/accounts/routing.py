"""Routing, pure: which account serves a turn, and why. Serving and preview call the same function.

Theory of operation
-------------------
Prompt caches are kept per account, so a thread that is bound to an account stays there until that
account cannot serve it: spent, paused, gone, not in its plan, its credential refused or replaced,
or unused for a day. A cooler account is not a reason to move, unless the settings put capacity
first. Even then a thread moves only from above the threshold to below it, so while usage only
rises it never returns to an account that it has left.

Trouble that passes by itself ends no binding. While it lasts, the thread makes a detour to another
account, remembered so that its cache is used again, and one request at a time tries the way home.
An account that no thread is bound to is tried by a new thread, or the end of its trouble would
never be noticed. With no other account to go to, a turn goes to the troubled one: a provider's
hiccup must not become an outage of our own. A turn is withheld only if every account is known to
be of no use (spent, refused, paused, not in its plan).

`route` changes nothing. It returns what is to be remembered, and the pool keeps it.
"""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from functools import cached_property
from types import MappingProxyType
from typing import Final

from proxy.accounts.route import (
    Binding,
    Move,
    MoveReason,
    Route,
    RouteMemory,
    RouteRequest,
    RoutingSettings,
    Withheld,
)
from proxy.accounts.view import AccountId, AccountView, Standing

IN_FLIGHT_POINTS: Final = 5.0
"""Percentage points of usage that a running turn counts for. Usage is reported only afterwards, so
without them a burst would all go to the account that was a point cooler when it began."""
_RELEASES: Final = MappingProxyType(
    {
        Standing.PAUSED: MoveReason.PAUSED,
        Standing.PLAN: MoveReason.PLAN,
        Standing.INVALID: MoveReason.CREDENTIAL,
        Standing.SPENT: MoveReason.QUOTA,
    }
)
"""The standings that make an account of no use, and so end its bindings."""


def route(
    views: Sequence[AccountView],
    request: RouteRequest,
    memory: RouteMemory,
    settings: RoutingSettings,
    now: float,
    excluded: AbstractSet[AccountId] = frozenset(),
) -> Route | Withheld:
    """Return where a request goes at `now`, in seconds since the epoch.

    `views` are in the order of the configuration. Accounts that are `excluded` have failed in this
    very turn: others are preferred, but a turn is not withheld because of them.
    """
    decision = _Decision(views, request, memory, settings, now, excluded)
    binding = memory.binding
    if binding is None:
        return decision.start(Move.NEW, None)
    released = decision.released(binding)
    if released is None:
        return decision.stay(binding)
    return decision.start(Move.NEW if released is MoveReason.IDLE else Move.REBOUND, released)


class _Decision:
    """One decision: its inputs, and the steps that lead to it."""

    def __init__(
        self,
        views: Sequence[AccountView],
        request: RouteRequest,
        memory: RouteMemory,
        settings: RoutingSettings,
        now: float,
        excluded: AbstractSet[AccountId],
    ) -> None:
        self._views = {view.id: view for view in views}
        self._request = request
        self._memory = memory
        self._settings = settings
        self._now = now
        self._excluded = excluded

    # A healthy bound thread needs neither of these two, so they are computed on demand.

    @cached_property
    def _standing(self) -> dict[AccountId, Standing]:
        return {x.id: x.standing(self._request.family, self._now) for x in self._views.values()}

    @cached_property
    def _ready(self) -> list[AccountView]:
        return [x for x in self._standing_as(Standing.READY) if x.id not in self._excluded]

    # A bound thread.

    def released(self, binding: Binding) -> MoveReason | None:
        """Return why a binding ends here; None while it lasts."""
        view = self._views.get(binding.account)
        if view is None:
            return MoveReason.REMOVED
        standing = view.standing(self._request.family, self._now)
        if standing in _RELEASES:
            return _RELEASES[standing]
        if view.generation != binding.generation:
            return MoveReason.REPLACED
        if self._now - binding.used_at >= self._settings.idle_seconds:
            return MoveReason.IDLE
        held = binding.held_since is not None and standing is Standing.TROUBLED
        if held and self._now - (binding.held_since or 0) >= self._settings.hold_seconds:
            # With no other account to go to, leaving the home would only lose the binding.
            return MoveReason.HOLD_EXPIRED if self._ready else None
        return None

    def stay(self, binding: Binding) -> Route:
        """Serve a bound thread at home while the home serves, otherwise on a detour."""
        home = self._views[binding.account]
        kept = replace(binding, used_at=self._now)
        # Excluded comes before standing: one failure is not trouble yet, so the home may be READY
        # and still be what has failed in this turn.
        if home.id in self._excluded:
            return self._detour(kept, MoveReason.RETRY)
        if home.standing(self._request.family, self._now) is Standing.READY:
            # `detour` is kept: the prompt is still cached there if the home fails again.
            if kept.held_since is not None:
                kept = replace(kept, held_since=None)
            return self._at_home(home, kept)
        # A hold begins with the first turn that meets the trouble, not with the trouble itself: a
        # thread that was idle meanwhile would otherwise lose its home at once.
        if binding.held_since is None:
            kept = replace(kept, held_since=self._now)
        if home.may_probe(self._request.family, self._now):
            return self._route(home.id, Move.HELD, MoveReason.PROBE, kept, probe=True)
        return self._detour(kept, MoveReason.TROUBLE)

    def _at_home(self, home: AccountView, kept: Binding) -> Route:
        score = home.score(self._now)
        settings = self._settings
        due = self._now - kept.scored_at >= settings.rescore_seconds
        if settings.cache_affinity or score < settings.auto_switch_threshold or not due:
            return self._route(home.id, Move.REUSED, MoveReason.BOUND, kept)
        kept = replace(kept, scored_at=self._now)
        # Real headroom is required: an account of unknown usage, on which a new thread may start,
        # takes no thread away from its cache. Headroom means below the threshold, and so strictly
        # below `score`; the home itself has none.
        cooler = [view for view in self._ready if self._has_headroom(view)]
        if not cooler:
            return self._route(home.id, Move.REUSED, MoveReason.BOUND, kept)
        return self._bind(self._least_used(cooler), Move.REBOUND, MoveReason.CAPACITY, self._now)

    def _detour(self, kept: Binding, reason: MoveReason) -> Route:
        others = [view for view in self._ready if view.id != kept.account]
        remembered = [view for view in others if view.id == kept.detour]
        if others:
            # The same detour each time: by now the prompt is cached there, too.
            detour = (remembered or [self._first(others)])[0].id
            return self._route(detour, Move.DETOUR, reason, replace(kept, detour=detour))
        if kept.account in self._excluded:  # another in trouble is better than the same again
            for view in self._standing_as(Standing.TROUBLED):
                if view.id not in self._excluded:
                    return self._route(view.id, Move.DETOUR, reason, kept)
        return self._route(kept.account, Move.HELD, MoveReason.ALONE, kept)

    # A thread that is not bound, or not any more.

    def start(self, move: Move, why: MoveReason | None) -> Route | Withheld:
        """Choose where a thread starts; `why` says what released it, if it was bound."""
        if self._ready:
            view, reason = self._last_detour() or self._choose([*self._ready, *self._due(move)])
            if self._standing[view.id] is not Standing.READY:
                return replace(self._bind(view, move, MoveReason.PROBE), probe=True)
            return self._bind(view, move, why or reason)
        # `_ready` is empty, so whatever is READY here has failed in this turn.
        again = [*self._standing_as(Standing.TROUBLED), *self._standing_as(Standing.READY)]
        if again:
            view, _ = self._choose([x for x in again if x.id not in self._excluded] or again)
            return self._bind(view, move, why or MoveReason.ALONE)
        return self._probe(move) or self._withheld(why)

    def _due(self, move: Move) -> list[AccountView]:
        """Return the troubled accounts that are due for a probe. Only a new thread may make one,
        because it has no cache to lose; and only on its first attempt, while another account can
        still be tried after it."""
        if move is not Move.NEW or self._excluded:
            return []
        troubled = self._standing_as(Standing.TROUBLED)
        return [view for view in troubled if view.may_probe(self._request.family, self._now)]

    def _last_detour(self) -> tuple[AccountView, MoveReason] | None:
        """Return the recent detour of a released thread, which has its latest prompt in cache."""
        binding = self._memory.binding
        if binding is None or binding.held_since is None:
            return None
        if self._now - binding.used_at >= self._settings.hold_seconds:
            return None
        return next(((x, MoveReason.BOUND) for x in self._ready if x.id == binding.detour), None)

    def _choose(self, among: Sequence[AccountView]) -> tuple[AccountView, MoveReason]:
        able = {view.id: view for view in among}
        # The account of a parent or sibling has the common prefix in its cache, but is passed over
        # if it is hot and another is not. An anchor never is: no other knows the response.
        roomy = any(self._may_start(view) for view in among)
        memory = self._memory
        for account, reason in (
            (self._request.anchor, MoveReason.ANCHOR),
            (memory.parent, MoveReason.PARENT),
            (memory.sibling, MoveReason.SIBLING),
        ):
            view = able.get(account) if account is not None else None
            if view is None:
                continue
            if reason is MoveReason.ANCHOR or self._may_start(view) or not roomy:
                return view, reason
        return self._first(among), MoveReason.STRATEGY

    # The strategy.

    def _has_headroom(self, view: AccountView) -> bool:
        return view.score(self._now) < self._settings.auto_switch_threshold

    def _may_start(self, view: AccountView) -> bool:
        """Whether a new thread is welcome: there is headroom, or nothing is known."""
        return not view.seen() or self._has_headroom(view)

    def _first(self, among: Sequence[AccountView]) -> AccountView:
        """Choose by strategy among those with headroom; without any, the one that is used least."""
        roomy = [view for view in among if self._may_start(view)]
        if not roomy:
            return self._least_used(among)
        match self._settings.strategy:
            case "fill_first":
                return roomy[0]
            case "round_robin":
                return min(roomy, key=self._distance)
            case "reset_first":
                return min(roomy, key=lambda view: (self._next_reset(view), self._distance(view)))
            case "quota":
                return self._least_used(roomy)

    def _least_used(self, among: Iterable[AccountView]) -> AccountView:
        """Choose by usage and turns in flight; of equals, the next in the ring.

        An account of unknown usage counts as the least used of the others: it is either new or
        never reports any, and should get neither every thread nor none.
        """
        views = list(among)
        scores = {view.id: view.score(self._now) for view in views}
        best = min(scores.values())

        def burden(view: AccountView) -> tuple[float, int]:
            used = scores[view.id] if view.seen() else best
            running = self._memory.in_flight.get(view.id, 0)
            return used + IN_FLIGHT_POINTS * running, self._distance(view)

        return min(views, key=burden)

    def _distance(self, view: AccountView) -> int:
        """How many places after the cursor an account comes in the ring; 0 is the next."""
        return self._distances[view.id]

    @cached_property
    def _distances(self) -> dict[AccountId, int]:
        numbers = {account: number for number, account in enumerate(self._views)}
        cursor = self._memory.cursor
        start = numbers[cursor] + 1 if cursor in numbers else 0
        return {account: (number - start) % len(numbers) for account, number in numbers.items()}

    def _next_reset(self, view: AccountView) -> float:
        resets = (window.resets_at for window in view.windows if window.live(self._now))
        return min(resets, default=math.inf)

    # When no account is ready.

    def _probe(self, move: Move) -> Route | None:
        """Let one request try an account that is out of use: hints about resets can be wrong."""
        home = self._memory.binding.account if self._memory.binding else None
        out = [*self._standing_as(Standing.SPENT), *self._standing_as(Standing.INVALID)]
        for view in sorted(out, key=lambda view: view.id != home):
            if view.id not in self._excluded and view.may_probe(self._request.family, self._now):
                moved = Move.HELD if view.id == home else move
                return replace(self._bind(view, moved, MoveReason.PROBE), probe=True)
        return None

    def _withheld(self, why: MoveReason | None) -> Withheld:
        spent = self._standing_as(Standing.SPENT)
        until = [view.spent_until(self._request.family, self._now) for view in spent]
        tries = [
            view.invalid.probe_at
            for view in self._standing_as(Standing.INVALID)
            if view.invalid is not None
        ]
        # Quota returns at a stated time. The next probe of a refused login matters only if there is
        # no quota to wait for.
        ends = [at for at in until or tries if at is not None]
        releases = [_RELEASES[x] for x in self._standing.values() if x in _RELEASES]
        first = MoveReason.QUOTA if spent else next(iter(releases), MoveReason.REMOVED)
        return Withheld(
            spent=bool(spent),
            retry_at=max(min(ends), self._now + 1) if ends else None,
            move=None if why is None else Move.CLEARED,
            reason=why or first,
            standings=MappingProxyType(Counter(self._standing.values())),
        )

    # Building blocks.

    def _standing_as(self, wanted: Standing) -> list[AccountView]:
        return [view for view in self._views.values() if self._standing[view.id] is wanted]

    def _bind(
        self, view: AccountView, move: Move, reason: MoveReason, scored_at: float = 0.0
    ) -> Route:
        fresh = Binding(
            account=view.id,
            generation=view.generation,
            used_at=self._now,
            scored_at=scored_at,
        )
        return self._route(view.id, move, reason, fresh)

    def _route(
        self,
        account: AccountId,
        move: Move,
        reason: MoveReason,
        kept: Binding,
        *,
        probe: bool = False,
    ) -> Route:
        binding = kept if self._request.bound else None
        return Route(account=account, move=move, reason=reason, binding=binding, probe=probe)
