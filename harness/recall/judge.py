"""PURE the judgement: each check is a sentence that is true of a sound proxy, and its verdict."""

from collections import Counter
from collections.abc import Iterator, Sequence

from harness.recall.budget import family_of, fan_out_checks
from harness.recall.evidence import Check, RunEvidence, clean
from harness.recall.faults import (
    UNTIL_CUT,
    End,
    Fault,
    RecallTransport,
    Step,
    ends_allowed,
    sends_allowed,
    statuses_allowed,
)
from harness.recall.lanes import lane_checks
from harness.recall.plan import Planned
from harness.recall.watch import SeenAnswer

Rows = Sequence[tuple[Planned, SeenAnswer]]

_WITH_TERMINAL = frozenset({End.COMPLETED, End.FAILED, End.INCOMPLETE, End.REFUSED})


def judge(evidence: RunEvidence) -> tuple[Check, ...]:
    """Return all checks of a run, in the order in which its report shows them."""
    rows = list(_rows(evidence))
    return (
        clean("every session took every turn", _missing(evidence)),
        clean("every request ended as planned", _wrong_ends(rows, evidence)),
        clean("no call lost, doubled or foreign", _wrong_calls(rows)),
        clean("exactly one terminal event a turn", _wrong_terminals(rows)),
        clean("nothing crossed, nothing out of order", _crossed(rows, evidence)),
        clean("the upstream saw the whole input", evidence.upstream_problems),
        clean("sent upstream as often as allowed", _wrong_sends(rows, evidence)),
        clean("what clients left was cut upstream", _not_cut(rows, evidence)),
        clean("refusals say when to retry", _without_advice(rows, evidence)),
        *fan_out_checks(evidence),
        *lane_checks(evidence),
    )


def _rows(evidence: RunEvidence) -> Iterator[tuple[Planned, SeenAnswer]]:
    """Pair what was planned with what was seen, except refusals in a fan-out."""
    seen = {seen.exchange.tag: seen for seen in evidence.seen}
    for planned in evidence.plan.exchanges():
        if planned.exchange.tag in seen:
            yield planned, seen[planned.exchange.tag]
    family = family_of(evidence.plan)
    for told in evidence.seen:
        session = family.get(told.exchange.thread_id)
        if session is not None and not told.refused_here:
            turn = session.turns[told.exchange.turn]
            yield Planned(session=session, turn=turn, exchange=told.exchange, fault=None), told


def _missing(evidence: RunEvidence) -> Iterator[str]:
    seen = {seen.exchange.tag for seen in evidence.seen}
    for planned in evidence.plan.exchanges():
        if planned.exchange.tag not in seen:
            yield f"{planned.where} never began"


def _wrong_ends(rows: Rows, evidence: RunEvidence) -> Iterator[str]:
    for planned, seen in rows:
        refused = seen.refused
        told = f" with {refused}" if refused else ""
        right = seen.end in ends_allowed(planned.fault, evidence.plan.transport)
        if not right or (refused and refused.status not in statuses_allowed(planned.fault)):
            yield f"{planned.where} {seen.end}{told}"


def _wrong_calls(rows: Rows) -> Iterator[str]:
    for planned, seen in rows:
        if planned.exchange.step is Step.CALLS and seen.end is End.COMPLETED:
            expected = Counter(call.call_id for call in planned.turn.calls)
            got = Counter(seen.call_ids)
            lost, extra = expected - got, got - expected
            doubled = sum(count for call_id, count in extra.items() if call_id in expected)
            foreign = extra.total() - doubled
            if lost or extra:
                yield f"{planned.where}: {lost.total()} lost, {doubled} doubled, {foreign} foreign"


def _wrong_terminals(rows: Rows) -> Iterator[str]:
    for planned, seen in rows:
        if len(seen.terminals) != (seen.end in _WITH_TERMINAL):
            yield f"{planned.where} {seen.end}: {list(seen.terminals)}"


def _crossed(rows: Rows, evidence: RunEvidence) -> Iterator[str]:
    for planned, seen in rows:
        for problem in seen.problems:
            yield f"{planned.where}: {problem}"
    yield from evidence.client_problems


def _wrong_sends(rows: Rows, evidence: RunEvidence) -> Iterator[str]:
    for planned, seen in rows:
        sends = evidence.sends.get(planned.exchange.tag, 0)
        allowed = range(1) if seen.refused_here else sends_allowed(planned.fault)
        if sends not in allowed:
            yield f"{planned.where} sent {sends} times"


def _not_cut(rows: Rows, evidence: RunEvidence) -> Iterator[str]:
    """Yield what its client left and the upstream was not cut from, and the reverse."""
    for planned, _seen in rows:
        tag = planned.exchange.tag
        sends, cuts = evidence.sends.get(tag, 0), evidence.cuts.get(tag, 0)
        if planned.fault in UNTIL_CUT and cuts != sends:
            yield f"{planned.where}: sent {sends} times, cut {cuts} times"
        if planned.fault not in UNTIL_CUT and cuts:
            yield f"{planned.where}: cut although its client was there"


def _without_advice(rows: Rows, evidence: RunEvidence) -> Iterator[str]:
    """Over HTTP an upstream's own answer is passed on as it is; an error frame must advise."""
    frames = evidence.plan.transport is RecallTransport.WS
    for planned, seen in rows:
        must = frames or planned.fault is Fault.STATUS_429
        if must and seen.refused and not seen.refused.says_when:
            yield f"{planned.where} {seen.refused}"
