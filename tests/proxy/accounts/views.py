"""Accounts, bindings and decisions for the tests of routing, in few words."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from proxy.accounts.route import (
    Binding,
    Route,
    RouteMemory,
    RouteRequest,
    RoutingSettings,
    Withheld,
)
from proxy.accounts.routing import route
from proxy.accounts.view import ANY, AccountId, AccountView, Cooldown, Family, Window

NOW = 1_800_000_000.0
RESET = NOW + 3600.0
MODEL = Family("gpt-5")
OTHER_MODEL = Family("gpt-4")
A, B, C, D = (AccountId(name) for name in "abcd")
NOBODY: Mapping[AccountId, int] = MappingProxyType({})
CACHE_FIRST = RoutingSettings()
CAPACITY_FIRST = RoutingSettings(cache_affinity=False)


def window(used: float, resets_at: float = RESET, name: str = "primary") -> Window:
    return Window(name=name, used_percent=used, resets_at=resets_at)


def view(account: str, used: float | None = 10.0, **changes: Any) -> AccountView:
    """An account with one window; with None nobody has seen its usage."""
    windows = () if used is None else (window(used),)
    return replace(AccountView(id=AccountId(account), windows=windows), **changes)


def cooldown(seconds: float = 600.0, *, probe_at: float = RESET, probing: bool = False) -> Cooldown:
    return Cooldown(since=NOW, until=NOW + seconds, probe_at=probe_at, probing=probing)


def spent(seconds: float = 600.0, family: Family = ANY, **more: Any) -> dict[str, Any]:
    return {"spent": {family: cooldown(seconds, **more)}}


def troubled(seconds: float = 600.0, family: Family = ANY, **more: Any) -> dict[str, Any]:
    return {"trouble": {family: cooldown(seconds, **more)}}


def invalid(probe_at: float = RESET, *, probing: bool = False) -> dict[str, Any]:
    return {"invalid": cooldown(probe_at=probe_at, probing=probing)}


def binding(account: AccountId = A, **changes: Any) -> Binding:
    return replace(Binding(account=account, generation=1, used_at=NOW - 60), **changes)


def bound(account: AccountId = A, **changes: Any) -> RouteMemory:
    return RouteMemory(binding=binding(account, **changes))


def decide(
    views: Sequence[AccountView],
    memory: RouteMemory | None = None,
    settings: RoutingSettings = CACHE_FIRST,
    now: float = NOW,
    excluded: Sequence[AccountId] = (),
    **wish: Any,
) -> Route | Withheld:
    asked = replace(RouteRequest(family=MODEL), **wish)
    return route(views, asked, memory or RouteMemory(), settings, now, frozenset(excluded))


def found(*arguments: Any, **more: Any) -> Route:
    """The same where an account must be found."""
    decided = decide(*arguments, **more)
    assert isinstance(decided, Route), decided
    return decided


def withheld(*arguments: Any, **more: Any) -> Withheld:
    decided = decide(*arguments, **more)
    assert isinstance(decided, Withheld), decided
    return decided


def said(decided: Route) -> tuple[str, str, str]:
    """Account, move and reason."""
    return decided.account, decided.move.value, decided.reason.value
