"""Routing, pure: which account serves a turn, and why; the one rule, for serving and preview alike.

Theory of operation
-------------------
Prompt caches are kept per account, so a thread that is bound to an account stays there until that
account cannot serve it: spent, paused, gone, not in its plan, its credential refused or replaced,
or unused for a day. A cooler account is not a reason to move, unless the settings put capacity
first; and even then a thread moves only from above the threshold to below it, so while usage only
rises it never comes back to where it was.

Trouble that passes by itself ends no binding. While it lasts, the thread makes a detour to one
account, remembered so that its cache is used again, and one request at a time tries the way home.
An account that no thread is bound to is tried by a new thread, or the end of its trouble would
never be noticed. With nowhere else to go a turn goes to the troubled account: a provider's hiccup
never becomes an outage of our own. Only what is known to be of no use (spent, refused, paused) is
withheld.

`route` changes nothing. It returns what is to be remembered; the pool keeps it.
"""

from collections import Counter
from collections.abc import Sequence
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
    Strategy,
    Withheld,
)
from proxy.accounts.strategy import Places
from proxy.accounts.view import (
    ANY,
    UNSEEN_SCORE,
    AccountId,
    AccountView,
    Cooldown,
    Family,
    Standing,
    Window,
    family_of,
)

__all__ = [
    "ANY",
    "UNSEEN_SCORE",
    "AccountId",
    "AccountView",
    "Binding",
    "Cooldown",
    "Family",
    "Move",
    "MoveReason",
    "Route",
    "RouteMemory",
    "RouteRequest",
    "RoutingSettings",
    "Strategy",
    "Window",
    "Withheld",
    "family_of",
    "route",
]


def route(
    views: Sequence[AccountView],
    wish: RouteRequest,
    memory: RouteMemory,
    settings: RoutingSettings,
    now: float,
    excluded: AbstractSet[AccountId] = frozenset(),
) -> Route | Withheld:
    """Return where a request goes at `now` (seconds since the epoch).

    `views` in the order in which they are configured. `excluded` have failed this very turn: they
    are avoided, and that is all it means.
    """
    field_ = _Decision(views, wish, memory, settings, now, excluded)
    binding = memory.binding
    if binding is None:
        return field_.place(Move.NEW, None)
    released = field_.released(binding)
    if released is None:
        return field_.stay(binding)
    return field_.place(Move.NEW if released is MoveReason.IDLE else Move.REBOUND, released)


_RELEASES: Final = MappingProxyType(
    {
        Standing.PAUSED: MoveReason.PAUSED,
        Standing.PLAN: MoveReason.PLAN,
        Standing.INVALID: MoveReason.CREDENTIAL,
        Standing.SPENT: MoveReason.QUOTA,
    }
)


class _Decision:
    """One decision: everything that it is made of, and the steps of making it."""

    def __init__(
        self,
        views: Sequence[AccountView],
        wish: RouteRequest,
        memory: RouteMemory,
        settings: RoutingSettings,
        now: float,
        excluded: AbstractSet[AccountId],
    ) -> None:
        self._views = {view.id: view for view in views}
        self._wish = wish
        self._memory = memory
        self._settings = settings
        self._now = now
        self._excluded = excluded
        self._places = Places(self._views, memory, settings, now)

    @cached_property
    def _standing(self) -> dict[AccountId, Standing]:
        """The standing of every account; needed only where a thread is not served at home."""
        return {x.id: x.standing(self._wish.family, self._now) for x in self._views.values()}

    @cached_property
    def _ready(self) -> list[AccountView]:
        return [x for x in self._standing_as(Standing.READY) if x.id not in self._excluded]

    # A thread that is bound.

    def released(self, binding: Binding) -> MoveReason | None:
        """Return why a binding ends here; None while it lasts."""
        view = self._views.get(binding.account)
        if view is None:
            return MoveReason.REMOVED
        standing = view.standing(self._wish.family, self._now)
        if standing in _RELEASES:
            return _RELEASES[standing]
        if view.generation != binding.generation:
            return MoveReason.REPLACED
        if self._now - binding.used_at >= self._settings.idle_seconds:
            return MoveReason.IDLE
        held = binding.held_since is not None and standing is Standing.TROUBLED
        if held and self._now - (binding.held_since or 0) >= self._settings.hold_seconds:
            # With no other account to go to, giving up the home would only lose the binding.
            return MoveReason.HOLD_EXPIRED if self._ready else None
        return None

    def stay(self, binding: Binding) -> Route:
        """Serve a bound thread at home while home serves, else on a detour."""
        home = self._views[binding.account]
        kept = replace(binding, used_at=self._now)
        # Excluded comes before standing: one failure is not trouble yet, so the home may be READY
        # and still be what has failed in this turn.
        if home.id in self._excluded:
            return self._go_round(kept, MoveReason.RETRY)
        if home.standing(self._wish.family, self._now) is Standing.READY:
            if kept.held_since is not None:
                kept = replace(kept, held_since=None)
            return self._at_home(home, kept)
        # The time of a hold counts from its first turn, and starts again after each turn at home.
        if binding.held_since is None:
            kept = replace(kept, held_since=self._now)
        if home.may_probe(self._wish.family, self._now):
            return self._route(home.id, Move.HELD, MoveReason.PROBE, kept, probe=True)
        return self._go_round(kept, MoveReason.TROUBLE)

    def _at_home(self, home: AccountView, kept: Binding) -> Route:
        score = home.score(self._now)
        settings = self._settings
        due = self._now - kept.scored_at >= settings.rescore_seconds
        if settings.cache_affinity or score < settings.auto_switch_threshold or not due:
            return self._route(home.id, Move.REUSED, MoveReason.BOUND, kept)
        kept = replace(kept, scored_at=self._now)
        cooler = [x for x in self._ready if x.id != home.id and x.score(self._now) < score]
        cooler = [x for x in cooler if self._places.has_headroom(x)]
        if not cooler:
            return self._route(home.id, Move.REUSED, MoveReason.BOUND, kept)
        return self._bind(
            self._places.least_used(cooler), Move.REBOUND, MoveReason.CAPACITY, self._now
        )

    def _go_round(self, kept: Binding, reason: MoveReason) -> Route:
        others = [view for view in self._ready if view.id != kept.account]
        remembered = [view for view in others if view.id == kept.detour]
        if others:
            # The same detour each time: by now the prompt is cached there, too.
            detour = (remembered or [self._places.first(others)])[0].id
            return self._route(detour, Move.DETOUR, reason, replace(kept, detour=detour))
        if kept.account in self._excluded:  # another in trouble is better than the same again
            for view in self._standing_as(Standing.TROUBLED):
                if view.id not in self._excluded:
                    return self._route(view.id, Move.DETOUR, reason, kept)
        return self._route(kept.account, Move.HELD, MoveReason.ALONE, kept)

    # A thread that is not.

    def place(self, move: Move, why: MoveReason | None) -> Route | Withheld:
        """Choose where to begin; `why` says what released the thread, if it was bound."""
        if self._ready:
            view, reason = self._way_round() or self._start([*self._ready, *self._due(move)])
            if self._standing[view.id] is not Standing.READY:
                return replace(self._bind(view, move, MoveReason.PROBE), probe=True)
            return self._bind(view, move, why or reason)
        # Those that are READY have failed in this turn, or `_ready` would not be empty.
        again = [*self._standing_as(Standing.TROUBLED), *self._standing_as(Standing.READY)]
        if again:
            view, _ = self._start([x for x in again if x.id not in self._excluded] or again)
            return self._bind(view, move, why or MoveReason.ALONE)
        return self._probe(move) or self._withheld(why)

    def _due(self, move: Move) -> list[AccountView]:
        """In trouble, and due for a probe. Only a new thread may be one: it has no cache to lose;
        and only at first, while there is a send left for another account."""
        if move is not Move.NEW or self._excluded:
            return []
        troubled = self._standing_as(Standing.TROUBLED)
        return [view for view in troubled if view.may_probe(self._wish.family, self._now)]

    def _way_round(self) -> tuple[AccountView, MoveReason] | None:
        """Return the detour of a thread released while on it, which has its latest prompt."""
        binding = self._memory.binding
        if binding is None or binding.held_since is None:
            return None
        if self._now - binding.used_at >= self._settings.hold_seconds:
            return None
        return next(((x, MoveReason.BOUND) for x in self._ready if x.id == binding.detour), None)

    def _start(self, among: Sequence[AccountView]) -> tuple[AccountView, MoveReason]:
        able = {view.id: view for view in among}
        # A parent's or sibling's account has the common prefix in its cache, but is passed over
        # when it is hot and another is not. An anchor never is: no other knows the response.
        roomy = any(self._places.may_begin(view) for view in among)
        memory = self._memory
        for account, reason in (
            (self._wish.anchor, MoveReason.ANCHOR),
            (memory.parent, MoveReason.PARENT),
            (memory.sibling, MoveReason.SIBLING),
        ):
            view = able.get(account) if account is not None else None
            if view is None:
                continue
            if reason is MoveReason.ANCHOR or self._places.may_begin(view) or not roomy:
                return view, reason
        return self._places.first(among), MoveReason.STRATEGY

    # When no account is ready.

    def _probe(self, move: Move) -> Route | None:
        """Have one request try what is out of use now and then, because hints can be wrong."""
        home = self._memory.binding.account if self._memory.binding else None
        out = [*self._standing_as(Standing.SPENT), *self._standing_as(Standing.INVALID)]
        for view in sorted(out, key=lambda view: view.id != home):
            if view.id not in self._excluded and view.may_probe(self._wish.family, self._now):
                moved = Move.HELD if view.id == home else move
                return replace(self._bind(view, moved, MoveReason.PROBE), probe=True)
        return None

    def _withheld(self, why: MoveReason | None) -> Withheld:
        spent = self._standing_as(Standing.SPENT)
        until = [view.spent_until(self._wish.family, self._now) for view in spent]
        tries = [
            view.invalid.probe_at
            for view in self._standing_as(Standing.INVALID)
            if view.invalid is not None
        ]
        # Quota comes back at a stated time. When a refused login is tried again matters only where
        # no quota is waited for.
        ends = [at for at in until or tries if at is not None]
        return Withheld(
            spent=bool(spent),
            retry_at=max(min(ends), self._now + 1) if ends else None,
            move=None if why is None else Move.CLEARED,
            reason=why or (MoveReason.QUOTA if spent else self._why_not()),
            standings=MappingProxyType(Counter(self._standing.values())),
        )

    def _why_not(self) -> MoveReason:
        reasons = [_RELEASES[x] for x in self._standing.values() if x in _RELEASES]
        return reasons[0] if reasons else MoveReason.REMOVED

    # Words for the above.

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
        binding = kept if self._wish.bound else None
        return Route(account=account, move=move, reason=reason, binding=binding, probe=probe)
