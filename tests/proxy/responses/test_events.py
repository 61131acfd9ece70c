"""Responses events: what turnlane reads, mends or makes itself."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.responses.events import (
    UNKNOWN_USAGE,
    TokenUsage,
    complete_usage,
    error_status,
    interrupted,
    output_item,
    prewarmed,
    readable_error,
    response_id,
)
from proxy.responses.rawjson import members
from proxy.responses.sse import Event, event_from, events_of

DEEP = b'{"response":{"id":"x","usage":' + b"[" * 100_000 + b"]" * 100_000 + b"}}"
COMPLETE = {
    "input_tokens": 100,
    "input_tokens_details": {"cached_tokens": 80, "more": 1},
    "output_tokens": 7,
    "output_tokens_details": {"reasoning_tokens": 5},
    "total_tokens": 107,
}


def completed(usage: object) -> Event:
    response = {"id": "resp_1", "usage": usage, "unknown": [1.5]}
    data = msgspec.json.encode({"type": "response.completed", "response": response, "n": 1})
    return event_from(data, "response.completed")


def usage_of(event: Event) -> Any:
    assert event.data is not None
    return msgspec.json.decode(event.data)["response"]["usage"]


# Reading.


@pytest.mark.parametrize(
    ("data", "name"),
    [
        (b'{"type":"response.created","response":{"id":"resp_1","x":1}}', "resp_1"),
        (b'{"response":{}}', ""),
        (b'{"response":{"id":null}}', ""),
        (b'{"response":{"id":7}}', ""),
        (b'{"response":null}', ""),
        (b"{}", ""),
        (b"[DONE]", ""),
        (b"", ""),
    ],
)
def test_the_id_of_a_response(data: bytes, name: str) -> None:
    assert response_id(data) == name


@pytest.mark.parametrize(
    ("data", "item"),
    [
        (b'{"type":"x","item": {"a":  [1.0] } }', b'{"a":  [1.0] }'),
        (b'{"type":"x"}', b""),
        (b"[]", b""),
        (b"{", b""),
    ],
)
def test_an_output_item_keeps_its_bytes(data: bytes, item: bytes) -> None:
    assert output_item(data) == item


# Usage.


def test_a_complete_usage_passes_as_it_came() -> None:
    event = completed(COMPLETE)
    passed, said = complete_usage(event)

    assert passed is event
    assert said == TokenUsage(input_tokens=100, cached_tokens=80, output_tokens=7)


@pytest.mark.parametrize(
    ("usage", "filled", "said"),
    [
        ({}, {}, UNKNOWN_USAGE),
        ({"input_tokens": 9}, {"input_tokens": 9, "total_tokens": 9}, TokenUsage(input_tokens=9)),
        (
            {"input_tokens": 9, "output_tokens": 4, "cost": 0.5},
            {"input_tokens": 9, "output_tokens": 4, "total_tokens": 13, "cost": 0.5},
            TokenUsage(input_tokens=9, output_tokens=4),
        ),
        (
            {"input_tokens": 9, "output_tokens": 4, "total_tokens": 20},
            {"input_tokens": 9, "output_tokens": 4, "total_tokens": 20},
            TokenUsage(input_tokens=9, output_tokens=4),
        ),
        (
            {"input_tokens": 9, "input_tokens_details": {"cached_tokens": 3}},
            {
                "input_tokens": 9,
                "total_tokens": 9,
                "input_tokens_details": {"cached_tokens": 3},
            },
            TokenUsage(input_tokens=9, cached_tokens=3),
        ),
        (
            {**COMPLETE, "output_tokens_details": {"more": 2}},
            {**COMPLETE, "output_tokens_details": {"more": 2, "reasoning_tokens": 0}},
            TokenUsage(input_tokens=100, cached_tokens=80, output_tokens=7),
        ),
        (
            {**COMPLETE, "input_tokens_details": None, "output_tokens": None},
            {
                **COMPLETE,
                "input_tokens_details": {"cached_tokens": 0},
                "output_tokens": 0,
            },
            TokenUsage(input_tokens=100),
        ),
        (
            {**COMPLETE, "input_tokens": True, "output_tokens": "7"},
            {**COMPLETE, "input_tokens": 0, "output_tokens": 0},
            TokenUsage(cached_tokens=80),
        ),
        (
            {"input_tokens": 0, "output_tokens": 0, "input_tokens_details": {"cached_tokens": 0}},
            {},
            TokenUsage(input_tokens=0, cached_tokens=0, output_tokens=0),
        ),
    ],
)
def test_a_partial_usage_is_completed_with_noughts_and_what_is_unknown_stays_unknown(
    usage: dict[str, Any], filled: dict[str, Any], said: TokenUsage
) -> None:
    nought = {
        "input_tokens": 0,
        "output_tokens": 0,
        "total_tokens": 0,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens_details": {"reasoning_tokens": 0},
    }
    event, found = complete_usage(completed(usage))

    assert usage_of(event) == nought | filled
    assert found == said


def test_completing_changes_nothing_but_the_usage() -> None:
    event, _ = complete_usage(completed({"input_tokens": 1}))

    assert event.data is not None
    document = msgspec.json.decode(event.data)
    document["response"].pop("usage")
    assert document == {
        "type": "response.completed",
        "response": {"id": "resp_1", "unknown": [1.5]},
        "n": 1,
    }
    assert event.type == "response.completed"
    assert events_of(event.raw) == [event]


@pytest.mark.parametrize(
    "data",
    [
        b'{"type":"response.completed","response":{"id":"resp_1"}}',
        b'{"type":"response.completed","response":{"id":"resp_1","usage":null}}',
        b'{"type":"response.completed","response":{"id":"resp_1","usage":[]}}',
        b'{"type":"response.completed","response":{"id":"resp_1","usage":7}}',
        b'{"type":"response.completed","response":null}',
        b'{"type":"response.completed"}',
        b'{"type":"response.completed",',
        DEEP,
        b"[]",
        b"",
        None,
    ],
    ids=lambda data: repr(data)[-60:],
)
def test_a_usage_that_is_absent_stays_absent_and_unknown(data: bytes | None) -> None:
    event = Event(b"raw", data, "response.completed")

    assert complete_usage(event) == (event, UNKNOWN_USAGE)


COUNTS = st.none() | st.integers(0, 2**70) | st.just("7") | st.booleans() | st.floats(0, 9)
DETAILS = st.none() | st.dictionaries(
    st.sampled_from(["cached_tokens", "reasoning_tokens", "x"]), COUNTS
)


@given(
    st.fixed_dictionaries(
        {},
        optional={
            "input_tokens": COUNTS,
            "output_tokens": COUNTS,
            "total_tokens": COUNTS,
            "input_tokens_details": DETAILS,
            "output_tokens_details": DETAILS,
            "other": COUNTS,
        },
    )
)
def test_whatever_the_upstream_counted_codex_can_read_it(usage: dict[str, Any]) -> None:
    event, _ = complete_usage(completed(usage))
    again, _ = complete_usage(event)
    filled = usage_of(event)

    assert again is event
    assert filled.get("other") == usage.get("other")
    for key in ("input_tokens", "output_tokens", "total_tokens"):
        assert type(filled[key]) is int
        if type(usage.get(key)) is int:
            assert filled[key] == usage[key]


# Errors.


@pytest.mark.parametrize(
    "error",
    [
        b'{"type":"x","code":"y","message":"m" , "resets_at":5}',
        b'{"type":4,"code":null,"message":null}',
        b'{"detail":"m"}',
        b"{}",
    ],
)
def test_an_error_that_codex_can_read_keeps_its_bytes(error: bytes) -> None:
    stated = msgspec.Raw(error)

    assert readable_error(stated, "words") is stated


@pytest.mark.parametrize(
    ("error", "readable"),
    [
        (None, {"type": "server_error", "code": None, "message": "words"}),
        (b"null", {"type": "server_error", "code": None, "message": "words"}),
        (b'"no such model"', {"type": "server_error", "code": None, "message": "no such model"}),
        (b'""', {"type": "server_error", "code": None, "message": "words"}),
        (b"[1]", {"type": "server_error", "code": None, "message": "[1]"}),
        (b"7", {"type": "server_error", "code": None, "message": "7"}),
        (
            b'{"type":"NotFound","code":404,"message":"m","param":null}',
            {"type": "NotFound", "code": "404", "message": "m", "param": None},
        ),
        (b'{"code":"y","message":{"a":1}}', {"code": "y", "message": '{"a":1}'}),
        (b'{"code":404}', {"code": "404", "message": "words"}),
        (b'{"code":"\xff"}', {"type": "server_error", "code": None, "message": "words"}),
    ],
)
def test_an_error_that_codex_would_ignore_is_put_into_words(
    error: bytes | None, readable: dict[str, Any]
) -> None:
    stated = None if error is None else msgspec.Raw(error)

    assert readable_error(stated, "words") == readable


@pytest.mark.parametrize(
    ("event", "status"),
    [
        (b'{"status":429}', 429),
        (b'{"status_code":503}', 503),
        (b'{"status":302}', 302),
        (b"{}", None),
        (b'{"status":200}', None),
        (b'{"status":99}', None),
        (b'{"status":1000}', None),
        (b'{"status":404.0}', None),
        (b'{"status":"503"}', None),
        (b'{"status":null}', None),
        (b'{"status":404,"status_code":404}', None),
    ],
)
def test_a_status_counts_where_codex_acts_upon_it(event: bytes, status: int | None) -> None:
    assert error_status(members(event)) == status


# Events of our own.


def test_an_interrupted_response_ends_as_codex_wants_it() -> None:
    created = (
        b'{"type":"response.created","response":'
        b'{"id":"resp_1","model":"m","status":"in_progress","usage":{"input_tokens":1}}}'
    )
    event = interrupted(created)

    assert event.terminal
    assert event.data is not None
    assert msgspec.json.decode(event.data) == {
        "type": "response.incomplete",
        "response": {
            "id": "resp_1",
            "model": "m",
            "status": "incomplete",
            "incomplete_details": {"reason": "interrupted"},
            "end_turn": False,
        },
    }


@pytest.mark.parametrize("created", [b"{}", b'{"response":null}', b"{", b"", DEEP[:-2]])
def test_a_response_that_began_strangely_can_be_interrupted_too(created: bytes) -> None:
    event = interrupted(created)

    assert event.type == "response.incomplete"
    assert response_id(event.data or b"") == ""


def test_a_prewarm_is_answered_as_a_model_would() -> None:
    created, done = map(msgspec.json.decode, prewarmed("resp_1", "gpt-5.5", 1_800_000_000.9))

    assert created == {
        "type": "response.created",
        "response": {
            "id": "resp_1",
            "object": "response",
            "created_at": 1_800_000_000,
            "model": "gpt-5.5",
            "status": "in_progress",
            "output": [],
        },
    }
    assert done == {
        "type": "response.completed",
        "response": {
            **created["response"],
            "status": "completed",
            "usage": {
                "input_tokens": 0,
                "output_tokens": 0,
                "total_tokens": 0,
                "input_tokens_details": {"cached_tokens": 0},
                "output_tokens_details": {"reasoning_tokens": 0},
            },
        },
    }


def test_a_prewarm_of_no_model_names_none() -> None:
    created, _ = prewarmed("resp_1", None, 0.0)

    assert msgspec.json.decode(created)["response"]["model"] is None
