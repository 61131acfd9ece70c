"""Each flaw of a fan-out fails the check that is about it, and no other."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from harness.recall.budget import family_of
from harness.recall.evidence import CheckVerdict, FanOutSample, Moment, RunEvidence
from harness.recall.faults import End, RecallTransport, Step
from harness.recall.judge import judge
from harness.recall.line import LineRefused
from harness.recall.plan import FanOut
from harness.recall.probe import Unreadable
from harness.recall.watch import SeenAnswer
from tests.harness.recall.kit import small_plan, sound, status

PLAN = small_plan(transport=RecallTransport.WS, fan_out=True)

CHILDREN = "of 12 children at once 7 run, 5 are refused"
OWN_TURN = "the conversation's own turn is admitted at once"
BEGUN = "a stream that has begun frees nothing"
ENDED = "a stream that has ended lets one in"
ONE_BUDGET = "a whole fan-out pays from one budget"
WORDS = "its refusals are such as Codex waits out"
SERVED = "its every turn is served in the end"
NEVER = "refused turns never reach the upstream"
REFUSALS = "as many refusals as planned"
ZERO = "everything is zero afterwards"


def family() -> FanOut:
    assert PLAN.fan_out is not None
    return PLAN.fan_out


def verdicts(evidence: RunEvidence) -> dict[str, CheckVerdict]:
    return {check.says: check.verdict for check in judge(evidence)}


def failed(evidence: RunEvidence) -> set[str]:
    return {says for says, verdict in verdicts(evidence).items() if verdict is CheckVerdict.FAIL}


@pytest.mark.parametrize("transport", RecallTransport)
def test_a_fan_out_without_a_flaw(transport: RecallTransport) -> None:
    assert failed(sound(small_plan(transport=transport, fan_out=True))) == set()


def test_a_run_without_a_fan_out_has_no_such_check() -> None:
    assert not {CHILDREN, NEVER} & verdicts(sound(small_plan())).keys()
    assert family_of(small_plan()) == {}


def at(moment: Moment, change: Callable[[FanOutSample], FanOutSample | None]) -> RunEvidence:
    """A sound run, but for one moment of its fan-out."""
    evidence = sound(PLAN)
    assert evidence.fan_out is not None
    samples = dict(evidence.fan_out.samples)
    changed = change(samples.pop(moment))
    if changed is not None:
        samples[moment] = changed
    return replace(evidence, fan_out=replace(evidence.fan_out, samples=samples))


ABOUT = {
    Moment.FANNED: CHILDREN,
    Moment.JOINED: OWN_TURN,
    Moment.PRESSED: BEGUN,
    Moment.CHANGED: ENDED,
}


@pytest.mark.parametrize("moment", Moment)
def test_what_is_wrong_at_a_moment(moment: Moment) -> None:
    def status_says(turns: int, refused: int) -> Callable[[FanOutSample], FanOutSample]:
        told = status(active=turns, roots=(1, 1, refused))
        return lambda sample: replace(sample, status=told)

    assert failed(at(moment, lambda _: None)) == {ABOUT[moment]}
    assert failed(at(moment, lambda sample: replace(sample, standing=9))) == {ABOUT[moment]}
    assert failed(at(moment, lambda sample: replace(sample, refused=9))) == {ABOUT[moment]}
    assert failed(at(moment, lambda sample: replace(sample, status=Unreadable("gone")))) == {
        ABOUT[moment]
    }
    assert failed(at(moment, status_says(turns=9, refused=5))) == {ABOUT[moment]}
    assert failed(at(moment, status_says(turns=8, refused=9))) == {ABOUT[moment]}


def with_roots(sample: FanOutSample, tracked: int, active: int) -> FanOutSample:
    assert not isinstance(sample.status, Unreadable)
    roots = replace(sample.status.workflows, tracked=tracked, active=active)
    return replace(sample, status=replace(sample.status, workflows=roots))


def test_children_that_pay_from_other_budgets() -> None:
    last = Moment.CHANGED

    assert failed(at(last, lambda sample: with_roots(sample, 2, 1))) == {ONE_BUDGET}
    assert failed(at(last, lambda sample: with_roots(sample, 1, 2))) == {ONE_BUDGET}


def test_a_proxy_that_tracks_as_many_roots_as_it_may_takes_one_for_another() -> None:
    evidence = sound(PLAN)
    assert evidence.fan_out is not None
    full = replace(status(peak=2, roots=(512, 0, 0)))
    samples = {
        moment: with_roots(sample, 512, 1) for moment, sample in evidence.fan_out.samples.items()
    }
    found = replace(evidence.fan_out, before=full, samples=samples)

    assert failed(replace(evidence, fan_out=found)) == set()


def test_a_status_that_could_not_be_read_before() -> None:
    evidence = sound(PLAN)
    assert evidence.fan_out is not None
    found = replace(evidence.fan_out, before=Unreadable("gone"))

    assert failed(replace(evidence, fan_out=found)) == {ONE_BUDGET}


def amend(
    change: Callable[[SeenAnswer], SeenAnswer], fits: Callable[[SeenAnswer], bool]
) -> RunEvidence:
    """A sound run, but for the first request that fits."""
    evidence = sound(PLAN)
    first = next(seen for seen in evidence.seen if fits(seen))
    seen = tuple(change(seen) if seen is first else seen for seen in evidence.seen)
    return replace(evidence, seen=seen)


def told(status: int, code: str, **headers: str) -> Callable[[SeenAnswer], SeenAnswer]:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return lambda seen: replace(seen, refused=LineRefused(status=status, code=code, headers=named))


BUSY = {"x_turnlane_refusal": "workflow_concurrency_exhausted"}


@pytest.mark.parametrize(
    "change",
    [
        told(503, "queue_capacity_exceeded", retry_after="5", **BUSY),
        told(429, "server_busy", retry_after="5", **BUSY),
        told(429, "queue_capacity_exceeded", retry_after="5", x_turnlane_refusal="lane_busy"),
        told(429, "queue_capacity_exceeded", retry_after="0", **BUSY),
        told(429, "queue_capacity_exceeded", **BUSY),
    ],
)
def test_a_refusal_that_codex_would_not_wait_out(
    change: Callable[[SeenAnswer], SeenAnswer],
) -> None:
    assert failed(amend(change, lambda seen: seen.refused_here)) == {WORDS}


def of_root(seen: SeenAnswer) -> bool:
    return seen.exchange.thread_id == family().root.thread_id


def test_a_conversation_that_is_refused() -> None:
    busy = told(429, "queue_capacity_exceeded", retry_after="5", **BUSY)
    refused = amend(lambda seen: replace(busy(seen), end=End.REFUSED), of_root)

    assert failed(refused) == {OWN_TURN, SERVED, NEVER}


def test_a_turn_that_is_not_served() -> None:
    lost = amend(
        lambda seen: replace(seen, end=End.CUT, terminals=()),
        lambda seen: of_root(seen) and seen.exchange.step is Step.RECALL,
    )

    assert failed(lost) == {SERVED, "every request ended as planned"}


def test_a_child_that_was_refused_and_sent_all_the_same() -> None:
    refused = next(seen for seen in sound(PLAN).seen if seen.refused_here)
    sends = {**sound(PLAN).sends, refused.exchange.tag: 1}

    assert failed(sound(PLAN, sends=sends)) == {NEVER}


def test_a_refusal_too_few_and_a_root_that_stays_active() -> None:
    assert failed(sound(PLAN, after=status(peak=2, roots=(1, 0, 6)))) == {REFUSALS}
    assert failed(sound(PLAN, after=status(peak=2, roots=(1, 1, 7)))) == {ZERO}


def test_with_others_about_what_status_says_of_roots_is_not_judged() -> None:
    crowded = replace(
        at(Moment.CHANGED, lambda sample: with_roots(sample, 9, 9)),
        own_child=False,
        before=status(active=1),
    )

    assert verdicts(crowded)[ONE_BUDGET] is CheckVerdict.NOT_JUDGED
    assert verdicts(crowded)[ENDED] is CheckVerdict.PASS
