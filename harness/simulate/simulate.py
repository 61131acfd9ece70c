"""`turnlane simulate`: one load under three rules of routing, on virtual time; exit 0, 1, 2.

Theory of operation
-------------------
A plain loop over events, no clock and no network. Every conversation asks for its turns one after
the other; each turn is routed by the rule under test, its account says how much of the prompt it
had cached, and its quota fills accordingly. Two of the rules are the proxy's own `route`, called as
the proxy calls it; the third is the rule of the incident that this simulates, and lives only here.
A turn that no account may serve is refused, and asked for again some minutes later.
"""

import argparse
import heapq
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import NamedTuple

import msgspec
from rich.console import Console

from harness.simulate.load import Load, SimTurn, turns
from harness.simulate.pool import HOUR_SECONDS, Provider, SimAccount, open_accounts
from harness.simulate.report import Rule, RuleTally, document, report
from proxy.accounts.route import Binding, Move, RouteMemory, RouteRequest, RoutingSettings, Withheld
from proxy.accounts.routing import route
from proxy.accounts.view import AccountId, AccountView, Window, family_of

BEGIN = 1_000_000.0
"""Seconds since the epoch: late enough that "never" lies long ago."""
FIRST_SECONDS = 3.0
"""From the first turn of one conversation to that of the next."""
FAMILY = family_of("simulated")


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """An account, or None and when to ask again."""

    account: str | None
    retry_at: float = 0.0


@dataclass(slots=True, kw_only=True)
class RuleMemory:
    """The past as every rule may know it."""

    served_by: dict[str, str] = field(default_factory=dict)
    sibling: dict[str, str] = field(default_factory=dict)
    """Parent -> the account of its latest child."""
    in_flight: Counter[str] = field(default_factory=Counter)


Choose = Callable[[SimTurn, list[SimAccount], RuleMemory, float], Chosen]


def hop_to_cooler(
    turn: SimTurn, accounts: list[SimAccount], seen: RuleMemory, now: float
) -> Chosen:
    """Choose the account with the lowest score, whichever holds the prompt."""
    able = [account for account in accounts if account.spent_until(now) is None]
    if not able:
        return Chosen(account=None, retry_at=min(x.spent_until(now) or now for x in accounts))
    home = seen.served_by.get(turn.thread)
    return Chosen(account=min(able, key=lambda x: (x.score(now), x.name != home)).name)


class ByRoute:
    """The proxy's rule, with the memory that the proxy keeps for it."""

    def __init__(self, settings: RoutingSettings) -> None:
        self._settings = settings
        self._bindings: dict[str, Binding] = {}
        self._cursor: AccountId | None = None

    def __call__(
        self, turn: SimTurn, accounts: list[SimAccount], seen: RuleMemory, now: float
    ) -> Chosen:
        binding = self._bindings.get(turn.thread)
        memory = RouteMemory(
            binding=binding,
            parent=_account(seen.served_by.get(turn.parent or "")),
            sibling=_account(seen.sibling.get(turn.parent or "")),
            cursor=self._cursor,
            in_flight={AccountId(name): count for name, count in seen.in_flight.items()},
        )
        views = [_view(account, now) for account in accounts]
        found = route(views, RouteRequest(family=FAMILY), memory, self._settings, now)
        if isinstance(found, Withheld):
            return Chosen(account=None, retry_at=found.retry_at or float("inf"))
        if found.binding is not None:
            self._bindings[turn.thread] = found.binding
        if found.move in (Move.NEW, Move.REBOUND):
            self._cursor = found.account
        return Chosen(account=found.account)


def _account(name: str | None) -> AccountId | None:
    return None if name is None else AccountId(name)


def _view(account: SimAccount, now: float) -> AccountView:
    told = zip(account.quotas, account.percents(now), strict=True)
    windows = (Window(name=x.name, used_percent=used, resets_at=x.resets_at) for x, used in told)
    return AccountView(id=AccountId(account.name), windows=tuple(windows))


def rules() -> dict[Rule, Choose]:
    """Each with a memory of its own."""
    return {
        "hop_to_cooler": hop_to_cooler,
        "capacity_first": ByRoute(RoutingSettings(cache_affinity=False)),
        "cache_first": ByRoute(RoutingSettings()),
    }


def simulate(choose: Choose, load: Load, provider: Provider, seed: int) -> RuleTally:
    """One rule through all the hours."""
    run = _Run(choose, load, open_accounts(provider, seed, BEGIN))
    for lane in range(load.conversations):
        run.begin(lane, turns(load, seed, lane))
    run.go()
    return run.tally


class _Run:
    """The loop: a turn is asked for, ends, and after a rest its conversation asks for the next."""

    def __init__(self, choose: Choose, load: Load, accounts: list[SimAccount]) -> None:
        self.tally = RuleTally(hours=load.hours)
        self._choose = choose
        self._load = load
        self._accounts = {account.name: account for account in accounts}
        self._seen = RuleMemory()
        self._lanes: list[Iterator[SimTurn]] = []
        self._due: list[_Due] = []
        self._order = count()

    def begin(self, lane: int, planned: Iterator[SimTurn]) -> None:
        self._lanes.append(planned)
        self._push(BEGIN + FIRST_SECONDS * lane, lane, next(planned))

    def go(self) -> None:
        end = BEGIN + self._load.hours * HOUR_SECONDS
        while self._due and (due := heapq.heappop(self._due)).at < end:
            if due.served_by is None:
                self._ask(due)
            else:
                self._seen.in_flight[due.served_by] -= 1
                self._push(due.at + due.turn.rest_seconds, due.lane, next(self._lanes[due.lane]))

    def _ask(self, due: "_Due") -> None:
        turn, seen = due.turn, self._seen
        chosen = self._choose(turn, list(self._accounts.values()), seen, due.at)
        if chosen.account is None:
            self.tally.refuse()
            self._push(min(chosen.retry_at, due.at + self._load.retry_seconds), due.lane, turn)
            return
        cached = self._accounts[chosen.account].serve(turn.prompt, turn.tokens, due.at)
        moved = seen.served_by.get(turn.thread, chosen.account) != chosen.account
        self.tally.serve(turn, cached, due.at - BEGIN, moved=moved)
        seen.served_by[turn.thread] = chosen.account
        if turn.parent is not None:
            seen.sibling[turn.parent] = chosen.account
        seen.in_flight[chosen.account] += 1
        self._push(due.at + self._load.turn_seconds, due.lane, turn, chosen.account)

    def _push(self, at: float, lane: int, turn: SimTurn, served_by: str | None = None) -> None:
        due = _Due(at, next(self._order), lane, turn, served_by)
        heapq.heappush(self._due, due)


class _Due(NamedTuple):
    """A turn to be asked for or, once `served_by` an account, to be ended."""

    at: float
    order: int
    lane: int
    turn: SimTurn
    served_by: str | None


def simulate_all(load: Load, provider: Provider, seed: int) -> dict[Rule, RuleTally]:
    return {rule: simulate(choose, load, provider, seed) for rule, choose in rules().items()}


def main(argv: list[str] | None = None, load: Load | None = None) -> int:
    """The exit code; argparse itself ends a wrong command line, with 2."""
    parser = _parser()
    told = parser.parse_args(argv)
    if told.json and not told.json.absolute().parent.is_dir():
        parser.error(f"--json: there is no folder {told.json.absolute().parent}")
    load, provider = load or Load(), Provider()
    tallies = simulate_all(load, provider, told.seed)
    shown = document(tallies, load, provider, told.seed)
    Console().print(report(tallies, shown))
    if told.json is not None:
        try:
            told.json.write_bytes(msgspec.json.format(msgspec.json.encode(shown), indent=2) + b"\n")
        except OSError as error:
            Console(stderr=True).print(f"turnlane simulate: {error}", markup=False)
            return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="turnlane simulate",
        description="Route one seeded load by three rules and count what no cache knew.",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there too")
    parser.add_argument("--seed", type=int, default=1, help="the same seed is the same run; 1")
    return parser


if __name__ == "__main__":
    raise SystemExit(main())
