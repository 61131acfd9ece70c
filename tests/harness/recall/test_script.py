"""What the model says is numbered, marked, and the same however it is cut."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.recall.calls import Call, CallKind, call_item, output_item
from harness.recall.faults import Fault, RecallTransport, Step
from harness.recall.http_line import EventReader
from harness.recall.plan import Planned, ScriptedExchange
from harness.recall.requests import instructions
from harness.recall.script import (
    SLOW_DELTA_BYTES,
    SLOW_DELTAS,
    answered,
    asked,
    calls_served,
    chunked,
    events,
    expected_input,
    partial_item,
    sse,
    steering,
)
from tests.harness.recall.kit import planned_fault, small_plan

PLAN = small_plan(transport=RecallTransport.WS, sessions=10, rounds=2)
EXCHANGES = st.sampled_from(list(PLAN.exchanges()))


@given(EXCHANGES)
def test_events_are_numbered_and_marked_and_end_once(planned: Planned) -> None:
    said = events(PLAN, planned.session, planned.exchange)
    kinds = [event["type"] for event in said]

    assert [event["sequence_number"] for event in said] == list(range(len(said)))
    assert {event["recall"] for event in said} == {planned.exchange.tag}
    assert kinds[0] == "response.created"
    assert kinds[-1] in {"response.completed", "response.failed"}
    assert kinds.count("response.completed") + kinds.count("response.failed") == 1


@given(EXCHANGES, st.randoms(use_true_random=False))
def test_a_stream_is_the_same_however_it_is_cut(planned: Planned, rng: Random) -> None:
    said = events(PLAN, planned.session, planned.exchange)
    reader = EventReader()
    read = [event.fields for piece in chunked(sse(said), rng) for event in reader.feed(piece)]

    assert read == said
    assert reader.empty


@given(EXCHANGES)
def test_an_input_is_all_that_was_said_before_and_what_is_new(planned: Planned) -> None:
    exchange, session = planned.exchange, planned.session
    whole = expected_input(session, exchange)

    assert whole[0] == instructions()
    if exchange.step is Step.CALLS and exchange.turn > 0:
        earlier = session.turns[exchange.turn - 1]
        before = expected_input(
            session,
            ScriptedExchange(
                thread_id=session.thread_id, turn=earlier.number, step=Step.RECALL, attempt=2
            ),
        )
        new = asked(session, planned.turn, Step.CALLS)
        steered = [partial_item(session, planned.turn), steering(session, planned.turn)]
        tail = steered if planned.exchange.attempt == 2 and interrupted(planned) else []
        assert whole == [*before, *answered(session, earlier, Step.RECALL), *new, *tail]


def interrupted(planned: Planned) -> bool:
    return planned.turn.fault_at(planned.exchange.step, 1) is Fault.INTERRUPT


def test_an_interrupted_turn_goes_on_from_what_was_completed() -> None:
    planned = planned_fault(PLAN, Fault.INTERRUPT)
    session, turn = planned.session, planned.turn
    first = expected_input(session, planned.exchange)
    again = ScriptedExchange(
        thread_id=session.thread_id, turn=turn.number, step=planned.exchange.step, attempt=2
    )

    assert expected_input(session, again) == [
        *first,
        partial_item(session, turn),
        steering(session, turn),
    ]


def test_an_exchange_beyond_the_plan_has_no_input() -> None:
    session = PLAN.waves[0]
    beyond = ScriptedExchange(thread_id=session.thread_id, turn=99, step=Step.CALLS)

    with pytest.raises(ValueError, match="no such exchange"):
        expected_input(session, beyond)


def test_a_slow_reader_gets_more_than_any_buffer_holds() -> None:
    planned = planned_fault(PLAN, Fault.SLOW_READER)
    said = events(PLAN, planned.session, planned.exchange)

    assert len(sse(said)) > SLOW_DELTAS * SLOW_DELTA_BYTES > 2**20


def test_a_swap_exchanges_one_call_of_the_first_round_and_nothing_else() -> None:
    plan = small_plan(sessions=3, rounds=2, swap=True)
    first, second, third = plan.waves

    assert calls_served(plan, first, first.turns[0])[0] == second.turns[0].calls[0]
    assert calls_served(plan, second, second.turns[0])[0] == first.turns[0].calls[0]
    assert calls_served(plan, first, first.turns[0])[1:] == first.turns[0].calls[1:]
    for session, turn in [(third, third.turns[0]), (first, first.turns[1])]:
        assert calls_served(plan, session, turn) == turn.calls


@pytest.mark.parametrize("kind", CallKind)
def test_each_call_is_answered_by_its_own_kind_of_output(kind: CallKind) -> None:
    call = Call(kind=kind, call_id="call_1", argument="a", latency_seconds=0)
    item = call_item(call)
    output = output_item(item, "secret")

    assert item["call_id"] == output["call_id"] == "call_1"
    assert (item["type"], output["type"], "namespace" in item) == {
        CallKind.FUNCTION: ("function_call", "function_call_output", False),
        CallKind.MCP: ("function_call", "function_call_output", True),
        CallKind.CUSTOM: ("custom_tool_call", "custom_tool_call_output", False),
        CallKind.TOOL_SEARCH: ("tool_search_call", "tool_search_output", False),
    }[kind]
    assert "secret" in str(output)
