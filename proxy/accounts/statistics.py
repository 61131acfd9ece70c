"""AccountStatistics: one account as operators see it; nothing in here is secret."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from proxy.accounts.tally import AccountHour
from proxy.accounts.view import ANY, AccountId, Standing, Window

if TYPE_CHECKING:  # it needs trio, and the command line reads statistics without it
    from proxy.accounts.account import Account


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountStatistics:
    """`resets_at` is in seconds since the epoch; None where nothing is known or due."""

    id: AccountId
    kind: str
    plan: str | None
    standing: Standing
    score: float | None
    windows: tuple[Window, ...]
    resets_at: float | None
    cooling_models: tuple[str, ...]
    in_flight: int
    bindings: int
    last_hour: AccountHour
    url: str | None = None
    models: tuple[str, ...] | None = None
    problem: str | None = None
    """What is wrong with its credential, in words."""
    same_as: tuple[AccountId, ...] = ()
    """Other names of the same credential, whose quota is then one and the same."""


def statistics_of(
    accounts: Collection["Account"], bound: Mapping[AccountId, int], now: float
) -> list[AccountStatistics]:
    twins = twins_among(accounts)
    return [_statistics(each, twins[each.id], bound.get(each.id, 0), now) for each in accounts]


def twins_among(accounts: Collection["Account"]) -> dict[AccountId, tuple[AccountId, ...]]:
    """Return for each account the others that have the same credential."""
    marks = {each.id: each.credential.fingerprint for each in accounts}
    return {
        name: tuple(x for x, other in marks.items() if mark and other == mark and x != name)
        for name, mark in marks.items()
    }


def _statistics(
    account: "Account", twins: tuple[AccountId, ...], bindings: int, now: float
) -> AccountStatistics:
    view = account.view()
    score = view.score(now)
    cooling = {*view.spent, *view.trouble} - {ANY}
    return AccountStatistics(
        id=account.id,
        kind=account.spec.kind,
        plan=account.state.plan,
        standing=view.standing(ANY, now),
        score=score if view.seen() else None,
        windows=tuple(window for window in view.windows if window.live(now)),
        resets_at=view.spent_until(ANY, now),
        cooling_models=tuple(sorted(x for x in cooling if view.standing(x, now) != "ready")),
        in_flight=account.in_flight,
        bindings=bindings,
        last_hour=account.tally.last_hour(now),
        url=account.spec.url,
        models=account.spec.models,
        problem=account.problem(now),
        same_as=twins,
    )
