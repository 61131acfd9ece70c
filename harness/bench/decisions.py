"""The cost of a decision, in this process: a lease taken and given back, an account claimed.

The books are as full as they may be: 64 lanes and 512 roots, of which 63 have a turn, 2,048
bindings. Each figure is of batches, because a clock that is read around one decision costs as much
as a part of it; the least is what the machine does undisturbed.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from time import perf_counter_ns

from rich.table import Table

from lifecycle import Ask, Granted, LaneId, Ledger, Limits, PrincipalId, RootId, ThreadId
from proxy.accounts.account import Account
from proxy.accounts.bindings import MOST_BINDINGS, ThreadName
from proxy.accounts.claim import AccountRequest
from proxy.accounts.credentials.api_key import NoCredential
from proxy.accounts.credentials.refresh import CredentialFailure
from proxy.accounts.pool import AccountPool
from proxy.accounts.route import RoutingSettings
from proxy.accounts.spec import AccountSpec
from proxy.accounts.usage import QuotaUsage
from proxy.accounts.view import AccountId, Window

BATCH = 50
BATCHES = 60
BUSY = 63
"""Lanes that are held meanwhile, each under a root of its own: the decision has the last one."""
WALL = 1_800_000_000.0
NOW = 1.0
BODY_BYTES = 30_000

Decide = Callable[[], object]


@dataclass(frozen=True, slots=True)
class Cost:
    median_us: float
    least_us: float


def costs(batches: int = BATCHES) -> Mapping[str, Cost]:
    return {name: _cost(decide, batches) for name, decide in _decisions()}


def table(found: Mapping[str, Cost]) -> Table:
    shown = Table("a decision", "median us", "least us")
    for name, cost in found.items():
        shown.add_row(name, f"{cost.median_us:.1f}", f"{cost.least_us:.1f}")
    return shown


def _cost(decide: Decide, batches: int) -> Cost:
    decide()  # what is found out once a slot is found out here
    spent = []
    for _ in range(batches):
        began = perf_counter_ns()
        for _ in range(BATCH):
            decide()
        spent.append((perf_counter_ns() - began) / BATCH / 1000)
    return Cost(median(spent), min(spent))


def _decisions() -> Iterator[tuple[str, Decide]]:
    limits = Limits()
    roots = limits.workflow.roots
    many = BATCH * BATCHES + 1
    fresh = [top(roots + n) for n in range(many)]
    yield "a lease under a known root", _leases(full_ledger(limits), [top(roots - 1)] * many)
    yield "a lease under a fresh root", _leases(full_ledger(limits), fresh)
    yield (
        "the same, of the others all but one spent",
        _leases(full_ledger(limits, unspent=1), fresh),
    )
    yield "refused, all others spent", _leases(full_ledger(limits, unspent=0), fresh)
    for accounts in (1, 5, 64):
        pool = _pool(accounts)
        known = [_asked(n) for n in range(MOST_BINDINGS)] * (1 + many // MOST_BINDINGS)
        yield f"a claim of a bound thread, {accounts} accounts", _claims(pool, known)
        new = [_asked(MOST_BINDINGS + n) for n in range(many)]
        yield f"a claim of a new thread, {accounts} accounts", _claims(pool, new)


def _leases(ledger: Ledger, asks: Sequence[Ask]) -> Decide:
    each = iter(asks)

    def decide() -> None:
        decided = ledger.ask(next(each), NOW)
        if isinstance(decided, Granted):
            ledger.give_back(decided.lease_id)

    return decide


def _claims(pool: AccountPool, asked: Sequence[AccountRequest]) -> Decide:
    each = iter(asked)

    def decide() -> None:
        with pool.claim(next(each)):
            pass

    return decide


def full_ledger(limits: Limits, unspent: int | None = None) -> Ledger:
    """Every root is tracked, the first ones have a turn. `unspent`: of the others all but so many
    have used up what their workers may send."""
    ledger = Ledger(limits)
    idle = range(BUSY, limits.workflow.roots)
    for number in range(limits.workflow.roots):
        decided = ledger.ask(top(number), NOW)
        assert isinstance(decided, Granted)
        if number in idle:
            ledger.give_back(decided.lease_id)
    for number in () if unspent is None else idle[: len(idle) - unspent]:
        decided = ledger.ask(_worker(number), NOW)
        assert isinstance(decided, Granted)
        while ledger.sent(decided.lease_id, NOW):
            pass
        ledger.give_back(decided.lease_id)
    return ledger


def top(number: int) -> Ask:
    lane, root, thread = LaneId(f"{number:032x}"), RootId(f"r{number}"), ThreadId(f"t{number}")
    principal = PrincipalId("local")
    return Ask(principal=principal, lane=lane, root=root, thread=thread, body_bytes=BODY_BYTES)


def _worker(number: int) -> Ask:
    root, thread = RootId(f"r{number}"), ThreadId(f"w{number}")
    return Ask(principal=PrincipalId("local"), root=root, thread=thread, worker=True)


def _pool(accounts: int) -> AccountPool:
    """Accounts with usage, and as many threads bound to them as there may be."""
    made = []
    none = NoCredential(failure=CredentialFailure(final=True, message="none"))
    for number in range(accounts):
        account = Account(AccountId(f"a{number}"), AccountSpec(key="env:UNUSED"), none)
        windows = (_window("primary", number % 50), _window("secondary", 5))
        account.health.learn(QuotaUsage(windows=windows), WALL)
        made.append(account)
    pool = AccountPool(made, RoutingSettings(), lambda: WALL)
    for number in range(MOST_BINDINGS):
        with pool.claim(_asked(number)):
            pass
    return pool


def _window(name: str, used: float) -> Window:
    return Window(name=name, used_percent=used, resets_at=WALL + 3600, minutes=300)


def _asked(number: int) -> AccountRequest:
    return AccountRequest(principal="local", thread=ThreadName(f"thread-{number}"), model="gpt-5")
