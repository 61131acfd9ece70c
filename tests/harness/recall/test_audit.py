"""Whatever a proxy changes in a request on its way up is noticed."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.recall.audit import Arrival, read_request
from harness.recall.faults import RecallTransport
from harness.recall.plan import Planned
from harness.recall.requests import body, headers, turn_metadata
from harness.recall.script import expected_input
from tests.harness.recall.kit import small_plan

PLAN = small_plan(transport=RecallTransport.WS, sessions=10, rounds=2)
OTHER = PLAN.waves[1]


def arrive(planned: Planned, *, up: Any = (), **changed: Any) -> Arrival | str:
    """A request as it should arrive, but for what is changed; a value of None takes a key away."""
    sent = body(planned.session, planned.exchange, expected_input(*at(planned))) | changed
    sent = {name: value for name, value in sent.items() if value is not None}
    fields = {**dict(headers(planned.session, planned.exchange)), **dict(up)}
    return read_request(PLAN.by_thread(), fields, msgspec.json.encode(sent))


def at(planned: Planned) -> Any:
    return planned.session, planned.exchange


def problems(arrival: Arrival | str) -> tuple[str, ...]:
    assert isinstance(arrival, Arrival)
    return arrival.problems


@given(st.sampled_from(list(PLAN.exchanges())))
def test_what_arrives_unchanged_is_right(planned: Planned) -> None:
    arrival = arrive(planned)

    assert isinstance(arrival, Arrival)
    assert (arrival.session, arrival.exchange) == (planned.session, planned.exchange)
    assert arrival.problems == ()


FIRST = next(PLAN.exchanges())
INPUT = expected_input(FIRST.session, FIRST.exchange)


@pytest.mark.parametrize(
    ("changed", "problem"),
    [
        ({"tools": []}, "tools was changed"),
        ({"store": None}, "store was changed"),
        ({"previous_response_id": "resp_1"}, "previous_response_id was sent up"),
        ({"type": "response.create"}, "type was sent up"),
        ({"prompt_cache_key": "mine"}, "prompt_cache_key was changed"),
        ({"input": INPUT[:1]}, "the input has 1 items, 2 expected"),
        ({"input": INPUT[::-1]}, "input differs at item 0: message expected, message seen"),
        ({"input": ["text", INPUT[1]]}, "input differs at item 0: message expected, str seen"),
        ({"input": "text"}, "the input is not a list"),
        ({"more": OTHER.secret}, "a secret of another session crossed upstream"),
        ({"up": {"x": OTHER.secret}}, "a secret of another session crossed upstream"),
        ({"up": {"session-id": "x"}}, "session-id was changed"),
        (
            {"up": {"x-codex-turn-metadata": turn_metadata(OTHER, FIRST.exchange)}},
            "turn metadata names another thread",
        ),
    ],
)
def test_what_arrives_changed_is_named(changed: Any, problem: str) -> None:
    assert problems(arrive(FIRST, **changed)) == (problem,)


@pytest.mark.parametrize(
    ("up", "says"),
    [
        ({"thread-id": "nobody"}, "unknown thread 'nobody'"),
        ({"x-codex-turn-metadata": "no json"}, "names no turn"),
        ({"x-codex-turn-metadata": "[]"}, "names no turn"),
        ({"x-codex-turn-metadata": turn_metadata(FIRST.session, None)}, "names no turn"),
    ],
)
def test_a_request_of_no_session_is_named(up: Any, says: str) -> None:
    arrival = arrive(FIRST, up=up)

    assert isinstance(arrival, str)
    assert says in arrival
