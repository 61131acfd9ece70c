"""A watch tells a sound answer from every way in which one can be spoilt."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.recall.faults import End, RecallTransport
from harness.recall.line import LineClosed, LineMessage, LineRefused, StreamEvent
from harness.recall.plan import Planned
from harness.recall.script import events
from harness.recall.watch import SeenAnswer, Watch
from tests.harness.recall.kit import small_plan

PLAN = small_plan(transport=RecallTransport.WS, sessions=3, rounds=2)
FIRST = next(PLAN.exchanges())
SAID = events(PLAN, FIRST.session, FIRST.exchange)


def watched(*messages: LineMessage, planned: Planned = FIRST) -> tuple[SeenAnswer, End | None]:
    watch = Watch(planned.session, planned.exchange)
    for message in messages:
        watch.note(message)
    end = watch.end()
    return watch.seen(end or End.CUT, 0.5), end


def event(fields: dict[str, Any], data: bytes = b"") -> StreamEvent:
    return StreamEvent(fields, data)


@given(st.sampled_from([p for p in PLAN.exchanges() if p.fault is None]))
def test_a_sound_answer(planned: Planned) -> None:
    said = map(event, events(PLAN, planned.session, planned.exchange))
    seen, end = watched(*said, LineClosed(clean=True), planned=planned)
    calls = planned.turn.calls if planned.exchange.step == "calls" else ()

    assert end is End.COMPLETED
    assert (seen.terminals, seen.problems) == (("response.completed",), ())
    assert seen.call_ids == tuple(call.call_id for call in calls)


@given(st.integers(0, len(SAID) - 1))
def test_an_event_lost_doubled_or_foreign_is_noticed(place: int) -> None:
    said = [event(fields) for fields in SAID]
    foreign = event({**SAID[place], "recall": "another"})
    lost = [*said[:place], *said[place + 1 :]]
    doubled = [*said[:place], said[place], *said[place:]]

    assert watched(*doubled)[0].problems
    assert watched(*said[:place], foreign, *said[place + 1 :])[0].problems
    assert watched(*lost)[0].problems or watched(*lost)[1] is None


def test_what_a_proxy_may_add_of_its_own() -> None:
    added = [event({"type": "keepalive"}), event({"type": "codex.rate_limits"})]
    seen, end = watched(*added, *map(event, SAID))

    assert (end, seen.problems) == (End.COMPLETED, ())


def test_an_interrupted_response_ends_with_the_proxys_own_word() -> None:
    details = {"incomplete_details": {"reason": "interrupted"}}
    cut_short = event({"type": "response.incomplete", "response": details})
    seen, end = watched(event(SAID[0]), cut_short)

    assert (end, seen.terminals, seen.problems) == (End.INCOMPLETE, ("response.incomplete",), ())


def test_an_incomplete_response_that_was_not_interrupted() -> None:
    seen, _ = watched(event({"type": "response.incomplete", "response": {}}))

    assert seen.problems == ("an incomplete response that was not interrupted",)


@pytest.mark.parametrize(
    ("messages", "end"),
    [
        ([], None),
        ([LineClosed(clean=False)], None),
        ([LineRefused(status=503, code="server_busy")], End.REFUSED),
        ([event({"type": "response.failed"})], End.FAILED),
    ],
)
def test_how_a_request_ends(messages: list[LineMessage], end: End | None) -> None:
    assert watched(*messages)[1] is end


def test_nothing_may_follow_the_terminal_event() -> None:
    late = event(SAID[-1])
    seen, _ = watched(*map(event, SAID), late, LineClosed(clean=False))

    assert "response.completed after the terminal event" in seen.problems
    assert "the stream was cut after its terminal event" in seen.problems
    assert seen.terminals == ("response.completed", "response.completed")


def test_the_secret_of_another_session() -> None:
    foreign = PLAN.waves[1].secret.encode()
    own = FIRST.session.secret.encode()

    assert watched(event({"type": "keepalive"}, foreign))[0].problems
    assert not watched(event({"type": "keepalive"}, own))[0].problems
