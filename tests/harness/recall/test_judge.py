"""Each flaw fails the check that is about it, and no other."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.recall.evidence import (
    SHOWN,
    Check,
    CheckVerdict,
    RunEvidence,
    WaveSample,
    clean,
    passed,
)
from harness.recall.faults import End, Fault, RecallTransport
from harness.recall.judge import judge
from harness.recall.line import LineRefused
from harness.recall.plan import Plan
from harness.recall.probe import Unreadable
from harness.recall.watch import SeenAnswer
from tests.harness.recall.kit import planned_fault, small_plan, sound, status

PLAN = small_plan(transport=RecallTransport.WS, sessions=12, rounds=2, beyond=2)

EVERY_TURN = "every session took every turn"
ENDS = "every request ended as planned"
CALLS = "no call lost, doubled or foreign"
TERMINALS = "exactly one terminal event a turn"
CROSSED = "nothing crossed, nothing out of order"
WHOLE = "the upstream saw the whole input"
SENDS = "sent upstream as often as allowed"
CUT = "what clients left was cut upstream"
ADVICE = "refusals say when to retry"
PEAK = "peak is exactly 12 lanes, 384 bytes"
BEYOND = "lane 13 is refused, and nothing kept for it"
NEVER = "refused turns never reach the upstream"
OTHERS = "as many refusals as planned"
ZERO = "everything is zero afterwards"


def failed(evidence: RunEvidence) -> set[str]:
    return {check.says for check in judge(evidence) if check.verdict is CheckVerdict.FAIL}


@given(st.integers(0, 99), st.sampled_from(RecallTransport), st.integers(1, 6), st.integers(1, 3))
def test_a_run_without_a_flaw_passes(
    seed: int, transport: RecallTransport, sessions: int, rounds: int
) -> None:
    plan = small_plan(seed=seed, transport=transport, sessions=sessions, rounds=rounds)

    assert passed(judge(sound(plan)))
    assert failed(sound(PLAN)) == set()


def amend(change: Callable[[SeenAnswer], SeenAnswer], fault: Fault | None = None) -> RunEvidence:
    """A sound run, but for one request: the first with this fault, or the first of all."""
    planned = planned_fault(PLAN, fault) if fault else next(PLAN.exchanges())
    tag = planned.exchange.tag
    evidence = sound(PLAN)
    seen = tuple(change(s) if s.exchange.tag == tag else s for s in evidence.seen)
    return replace(evidence, seen=seen)


@pytest.mark.parametrize(
    ("change", "check"),
    [
        (lambda seen: replace(seen, call_ids=seen.call_ids[1:]), CALLS),
        (lambda seen: replace(seen, call_ids=(*seen.call_ids, seen.call_ids[0])), CALLS),
        (lambda seen: replace(seen, call_ids=(*seen.call_ids, "call_foreign")), CALLS),
        (lambda seen: replace(seen, terminals=()), TERMINALS),
        (lambda seen: replace(seen, terminals=seen.terminals * 2), TERMINALS),
        (lambda seen: replace(seen, problems=("a secret crossed",)), CROSSED),
        (lambda seen: replace(seen, end=End.TIMED_OUT, terminals=()), ENDS),
    ],
)
def test_what_a_client_saw_wrong(change: Callable[[SeenAnswer], SeenAnswer], check: str) -> None:
    assert failed(amend(change)) == {check}


def told(status: int | None, **headers: str) -> Callable[[SeenAnswer], SeenAnswer]:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return lambda seen: replace(seen, refused=LineRefused(status=status, code="x", headers=named))


@pytest.mark.parametrize(
    ("change", "checks"),
    [
        (told(429), {ADVICE}),
        (told(429, retry_after="0"), {ADVICE}),
        (told(429, retry_after="1.5"), {ADVICE}),
        (told(503, retry_after="2"), {ENDS}),
        (told(None), {ENDS, ADVICE}),
    ],
)
def test_what_a_refused_client_is_told(
    change: Callable[[SeenAnswer], SeenAnswer], checks: set[str]
) -> None:
    assert failed(amend(change, Fault.STATUS_429)) == checks


def test_over_http_the_answer_of_the_upstream_is_passed_on_as_it_is() -> None:
    plan = small_plan(transport=RecallTransport.HTTP, sessions=12)
    tag = planned_fault(plan, Fault.STATUS_503).exchange.tag
    evidence = sound(plan)
    bare = told(503)
    seen = tuple(bare(s) if s.exchange.tag == tag else s for s in evidence.seen)

    assert failed(replace(evidence, seen=seen)) == set()


def test_a_turn_that_never_began() -> None:
    evidence = sound(PLAN)

    assert failed(replace(evidence, seen=evidence.seen[1:])) == {EVERY_TURN}


def test_what_sessions_and_upstream_found_out_themselves() -> None:
    assert failed(sound(PLAN, client_problems=("left over",))) == {CROSSED}
    assert failed(sound(PLAN, upstream_problems=("input differs",))) == {WHOLE}


def test_a_request_sent_twice_or_never() -> None:
    tag = next(PLAN.exchanges()).exchange.tag
    sends = sound(PLAN).sends

    assert failed(sound(PLAN, sends={**sends, tag: 2})) == {SENDS}
    assert failed(sound(PLAN, sends={**sends, tag: 0})) == {SENDS}


def test_what_fails_before_its_first_event_may_be_sent_twice_and_no_more() -> None:
    tag = planned_fault(PLAN, Fault.STATUS_503).exchange.tag
    sends = sound(PLAN).sends

    assert failed(sound(PLAN, sends={**sends, tag: 2})) == set()
    assert failed(sound(PLAN, sends={**sends, tag: 3})) == {SENDS}


def test_what_clients_left_must_be_cut_and_nothing_else() -> None:
    left = planned_fault(PLAN, Fault.HANG_UP_STREAMING).exchange.tag
    healthy = next(PLAN.exchanges()).exchange.tag
    cuts = sound(PLAN).cuts

    assert failed(sound(PLAN, cuts={**cuts, left: 0})) == {CUT}
    assert failed(sound(PLAN, cuts={**cuts, healthy: 1})) == {CUT}


def test_a_client_that_left_before_anything_was_sent() -> None:
    tag = planned_fault(PLAN, Fault.HANG_UP_WAITING).exchange.tag
    evidence = sound(PLAN)
    sends, cuts = {**evidence.sends, tag: 0}, {**evidence.cuts, tag: 0}

    assert failed(replace(evidence, sends=sends, cuts=cuts)) == set()


@pytest.mark.parametrize(
    "sample",
    [
        WaveSample(wave=0, arrived=12, status=status(active=11, peak=12)),
        WaveSample(wave=0, arrived=11, status=status(active=12, peak=12)),
        WaveSample(wave=0, arrived=12, status=Unreadable("gone")),
    ],
)
def test_a_wave_that_does_not_stand_as_it_should(sample: WaveSample) -> None:
    assert failed(sound(PLAN, waves=(sample,))) == {PEAK}


def test_a_peak_that_is_not_exact() -> None:
    assert failed(sound(PLAN, after=status(peak=13, refused=2))) == {PEAK}
    assert failed(sound(PLAN, waves=())) == {PEAK}


def test_what_is_still_held_in_the_end() -> None:
    assert failed(sound(PLAN, after=status(active=1, peak=12, refused=2))) == {ZERO}
    assert failed(sound(PLAN, after=status(held=5, peak=12, refused=2))) == {ZERO}


def beyond(change: Callable[[SeenAnswer], SeenAnswer]) -> RunEvidence:
    evidence = sound(PLAN)
    *others, last = evidence.seen
    return replace(evidence, seen=(*others, change(last)))


def test_a_lane_too_many_that_is_not_refused_as_it_should() -> None:
    def served(seen: SeenAnswer) -> SeenAnswer:
        return replace(seen, refused=None, end=End.COMPLETED, terminals=("response.completed",))

    assert failed(beyond(served)) == {BEYOND}
    assert failed(beyond(told(503, retry_after="2"))) == {BEYOND}
    assert failed(beyond(told(429, x_turnlane_refusal="lanes_at_capacity"))) == {BEYOND}


def test_a_lane_too_many_that_was_not_asked_for_or_that_left_something() -> None:
    evidence = sound(PLAN)

    assert failed(replace(evidence, seen=evidence.seen[:-1])) == {BEYOND}
    assert failed(replace(evidence, beyond=None)) == {BEYOND}
    assert failed(replace(evidence, beyond=status(active=13, refused=2))) == {BEYOND}
    assert failed(replace(evidence, beyond=status(active=12, refused=1))) == {BEYOND}


def test_a_refused_turn_that_was_sent_all_the_same() -> None:
    tag = next(iter(PLAN.refused())).exchange.tag

    assert failed(sound(PLAN, sends={**sound(PLAN).sends, tag: 1})) == {NEVER}


def test_a_refusal_that_was_not_planned() -> None:
    after = replace(status(peak=12, refused=2), refusals={"lanes_at_capacity": 2, "lane_busy": 1})

    assert failed(sound(PLAN, after=after)) == {OTHERS}


def test_with_others_about_peaks_are_not_judged() -> None:
    busy = status(active=1, admitted=10)
    after = status(active=2, peak=70, admitted=9999, refused=2)
    evidence = sound(PLAN, own_child=False, before=busy, after=after)
    verdicts = {check.says: check.verdict for check in judge(evidence)}

    assert verdicts[PEAK] is verdicts[ZERO] is CheckVerdict.NOT_JUDGED
    assert verdicts[CALLS] is CheckVerdict.PASS


def test_alone_at_a_running_proxy_its_earlier_life_is_subtracted() -> None:
    plan: Plan = PLAN
    before = status(held=100, admitted=50, peak=40, refused=7)
    after = replace(
        status(held=100, admitted=60, peak=40, refused=9), refusals={"lanes_at_capacity": 9}
    )
    evidence = sound(
        plan,
        own_child=False,
        before=before,
        after=after,
        beyond=status(active=12, refused=9, held=100),
    )

    assert failed(evidence) == set()
    assert all(check.verdict is CheckVerdict.PASS for check in judge(evidence))


def test_a_check_names_a_few_offenders_and_counts_the_rest() -> None:
    many = clean("says", [f"offender {n}" for n in range(SHOWN + 2)])

    assert many.detail.endswith("; and 2 more")
    assert clean("says", [], good="all of it") == Check(
        says="says", verdict=CheckVerdict.PASS, detail="all of it"
    )
    assert not passed([many])
    assert passed([replace(many, verdict=CheckVerdict.NOT_JUDGED)])
