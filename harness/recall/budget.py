"""PURE the checks of a fan-out: who of one conversation ran at once, and who was refused."""

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Final

from harness.recall.evidence import Check, FanOutEvidence, Moment, RunEvidence, clean
from harness.recall.faults import End, RecallTransport, Step
from harness.recall.lanes import if_alone
from harness.recall.plan import WORKERS, FanOut, Plan, SessionPlan
from harness.recall.probe import Status, Unreadable
from harness.recall.watch import SeenAnswer

REASON: Final = "workflow_concurrency_exhausted"
_CODE: Final = "queue_capacity_exceeded"
_STATUS: Final = MappingProxyType({RecallTransport.WS: 429, RecallTransport.HTTP: 503})
"""What Codex is told: over HTTP it waits out a 503 more often."""


def fan_out_checks(evidence: RunEvidence) -> tuple[Check, ...]:
    fan_out, found = evidence.plan.fan_out, evidence.fan_out
    if fan_out is None or found is None:
        return ()
    children = len(fan_out.children)
    own = [*_not_at_once(evidence, fan_out), *_wrong_moment(evidence, found, Moment.JOINED)]
    return (
        clean(
            f"of {children} children at once {WORKERS} run, {children - WORKERS} are refused",
            _wrong_moment(evidence, found, Moment.FANNED),
        ),
        clean("the conversation's own turn is admitted at once", own),
        clean(
            "a stream that has begun frees nothing", _wrong_moment(evidence, found, Moment.PRESSED)
        ),
        clean(
            "a stream that has ended lets one in", _wrong_moment(evidence, found, Moment.CHANGED)
        ),
        if_alone(evidence, clean("a whole fan-out pays from one budget", _other_roots(found))),
        clean("its refusals are such as Codex waits out", _wrong_words(evidence, fan_out)),
        clean("its every turn is served in the end", _not_served(evidence, fan_out)),
    )


def family_of(plan: Plan) -> Mapping[str, SessionPlan]:
    """Return the sessions of the fan-out, by thread."""
    family = (plan.fan_out.root, *plan.fan_out.workers) if plan.fan_out is not None else ()
    return {session.thread_id: session for session in family}


def expected(fan_out: FanOut, moment: Moment) -> tuple[int, int, int]:
    """Return the turns held upstream, the turns refused, and the refusals so far."""
    many = len(fan_out.children) - WORKERS
    match moment:
        case Moment.FANNED:
            return WORKERS, many, many
        case Moment.JOINED:
            return WORKERS + 1, many, many
        case Moment.PRESSED:
            return WORKERS + 1, many + 1, many + 2
        case _:
            return WORKERS + 1, 0, many + 2


def _wrong_moment(evidence: RunEvidence, found: FanOutEvidence, moment: Moment) -> Iterator[str]:
    sample = found.samples.get(moment)
    if sample is None or evidence.plan.fan_out is None:
        yield f"it never came to this: {moment}"
        return
    stand, refused, refusals = expected(evidence.plan.fan_out, moment)
    if (sample.standing, sample.refused) != (stand, refused):
        yield f"{sample.standing} were held and {sample.refused} were refused"
    if isinstance(sample.status, Unreadable):
        yield sample.status.reason
    elif isinstance(found.before, Status) and evidence.alone:
        yield from _wrong_counts(sample.status, found.before, stand, refusals)


def _wrong_counts(now: Status, before: Status, turns: int, refusals: int) -> Iterator[str]:
    active = now.turns.active - before.turns.active
    if active != turns:
        yield f"/status says {active} turns"
    refused = now.workflows.refused - before.workflows.refused
    if refused != refusals:
        yield f"/status says {refused} refusals"


def _other_roots(found: FanOutEvidence) -> Iterator[str]:
    if isinstance(found.before, Unreadable):
        yield found.before.reason
        return
    before = found.before.workflows
    for moment, sample in found.samples.items():
        if isinstance(sample.status, Status):
            now = sample.status.workflows
            tracked, active = now.tracked - before.tracked, now.active - before.active
            if active != 1 or (tracked != 1 and before.tracked < before.limit):
                yield f"{moment}: {tracked} roots more, {active} of them active"


def _of(evidence: RunEvidence, session: SessionPlan) -> list[SeenAnswer]:
    return [seen for seen in evidence.seen if seen.exchange.thread_id == session.thread_id]


def _not_at_once(evidence: RunEvidence, fan_out: FanOut) -> Iterator[str]:
    for seen in _of(evidence, fan_out.root):
        if seen.refused is not None:
            yield f"it was refused: {seen.refused}"


def _wrong_words(evidence: RunEvidence, fan_out: FanOut) -> Iterator[str]:
    right = (_STATUS[evidence.plan.transport], _CODE, REASON)
    for session in fan_out.workers:
        for seen in _of(evidence, session):
            if (refused := seen.refused) is None:
                continue
            if (refused.status, refused.code, refused.reason) != right:
                yield f"{session.name} was told {refused}"
            if not refused.says_when:
                yield f"{session.name} was not told when to retry"


def _not_served(evidence: RunEvidence, fan_out: FanOut) -> Iterator[str]:
    for session in (fan_out.root, *fan_out.workers):
        served = {
            (seen.exchange.turn, seen.exchange.step)
            for seen in _of(evidence, session)
            if seen.end is End.COMPLETED
        }
        for turn in session.turns:
            for step in Step:
                if (turn.number, step) not in served:
                    yield f"{session.name} turn {turn.number} {step}"
