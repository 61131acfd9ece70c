"""Responses events: what turnlane reads, completes or makes itself."""

import json
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
INPUT, OUTPUT = "input_tokens_details", "output_tokens_details"
ZERO = {
    "input_tokens": 0,
    "output_tokens": 0,
    "total_tokens": 0,
    INPUT: {"cached_tokens": 0},
    OUTPUT: {"reasoning_tokens": 0},
}
COMPLETE = {
    "input_tokens": 100,
    "output_tokens": 7,
    "total_tokens": 107,
    INPUT: {"cached_tokens": 80, "more": 1},
    OUTPUT: {"reasoning_tokens": 5},
}


def completed(usage: object) -> Event:
    response = {"id": "resp_1", "usage": usage, "unknown": [1.5]}
    data = msgspec.json.encode({"type": "response.completed", "response": response, "n": 1})
    return event_from(data, "response.completed")


def decoded(event: Event) -> Any:
    assert event.data is not None
    return msgspec.json.decode(event.data)


# Reading.


@pytest.mark.parametrize(
    ("data", "name"),
    [
        (b'{"type":"response.created","response":{"id":"resp_1","x":1}}', "resp_1"),
        *((b'{"response":{}}', ""), (b'{"response":{"id":null}}', "")),
        *((b'{"response":{"id":7}}', ""), (b'{"response":null}', "")),
        *((b"{}", ""), (b"[DONE]", ""), (b"", "")),
    ],
)
def test_an_event_names_its_response_or_none(data: bytes, name: str) -> None:
    assert response_id(data) == name


@pytest.mark.parametrize(
    ("data", "item"),
    [
        (b'{"type":"x","item": {"a":  [1.0] } }', b'{"a":  [1.0] }'),
        *((b'{"type":"x"}', b""), (b"[]", b""), (b"{", b"")),
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
        ({"input_tokens": 9}, {"total_tokens": 9}, TokenUsage(input_tokens=9)),
        (
            {"input_tokens": 9, "output_tokens": 4, "cost": 0.5},
            {"total_tokens": 13},
            TokenUsage(input_tokens=9, output_tokens=4),
        ),
        (
            {
                "input_tokens": 9,
                "output_tokens": 4,
                "total_tokens": 20,
                INPUT: {"cached_tokens": 3},
            },
            {},
            TokenUsage(input_tokens=9, cached_tokens=3, output_tokens=4),
        ),
        (
            COMPLETE | {OUTPUT: {"more": 2}},
            {OUTPUT: {"more": 2, "reasoning_tokens": 0}},
            TokenUsage(input_tokens=100, cached_tokens=80, output_tokens=7),
        ),
        (
            COMPLETE | {INPUT: None, "output_tokens": None},
            {INPUT: {"cached_tokens": 0}, "output_tokens": 0},
            TokenUsage(input_tokens=100),
        ),
        (
            COMPLETE | {"input_tokens": True, "output_tokens": "7"},
            {"input_tokens": 0, "output_tokens": 0},
            TokenUsage(cached_tokens=80),
        ),
        (ZERO | {OUTPUT: None}, ZERO, TokenUsage(input_tokens=0, cached_tokens=0, output_tokens=0)),
    ],
)
def test_a_partial_usage_is_completed_with_zeros_and_recorded_as_it_was_stated(
    usage: dict[str, Any], filled: dict[str, Any], said: TokenUsage
) -> None:
    event, found = complete_usage(completed(usage))

    assert decoded(event)["response"]["usage"] == ZERO | usage | filled
    assert found == said


def test_completing_changes_nothing_but_the_usage() -> None:
    event, _ = complete_usage(completed({"input_tokens": 1}))

    document = decoded(event)
    document["response"].pop("usage")
    response = {"id": "resp_1", "unknown": [1.5]}
    assert document == {"type": "response.completed", "response": response, "n": 1}
    assert events_of(event.raw) == [event]


@pytest.mark.parametrize(
    "data",
    [
        b'{"type":"response.completed","response":{"id":"resp_1"}}',
        b'{"type":"response.completed","response":{"id":"resp_1","usage":null}}',
        b'{"type":"response.completed","response":{"id":"resp_1","usage":[]}}',
        b'{"type":"response.completed","response":{"id":"resp_1","usage":7}}',
        b'{"type":"response.completed","response":null}',
        *(b'{"type":"response.completed"}', b'{"type":"response.completed",', b"[]", b"", None),
        DEEP,
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
TOTALS = ("input_tokens", "output_tokens", "total_tokens")


@given(
    st.fixed_dictionaries(
        {},
        optional={
            **dict.fromkeys([*TOTALS, "other"], COUNTS),
            **dict.fromkeys([INPUT, OUTPUT], DETAILS),
        },
    )
)
def test_codex_can_read_any_usage_of_an_upstream(usage: dict[str, Any]) -> None:
    event, _ = complete_usage(completed(usage))
    again, _ = complete_usage(event)
    filled = decoded(event)["response"]["usage"]

    assert again is event
    assert filled.get("other") == usage.get("other")
    for key in TOTALS:
        assert type(filled[key]) is int
        if type(usage.get(key)) is int:
            assert filled[key] == usage[key]


# Errors.


@pytest.mark.parametrize(
    "error",
    [
        b'{"type":"x","code":"y","message":"m" , "resets_at":5}',
        b'{"type":4,"code":null,"message":null}',
        *(b'{"detail":"m"}', b"{}"),
    ],
)
def test_an_error_that_codex_can_read_keeps_its_bytes(error: bytes) -> None:
    stated = msgspec.Raw(error)

    assert readable_error(stated, "words") is stated


@pytest.mark.parametrize(
    ("error", "code", "message", "rest"),
    [
        (None, None, "words", {"type": "server_error"}),
        (b"null", None, "words", {"type": "server_error"}),
        (b'"no such model"', None, "no such model", {"type": "server_error"}),
        (b'""', None, "words", {"type": "server_error"}),
        (b"[1]", None, "[1]", {"type": "server_error"}),
        (b'{"type":"T","code":404,"message":"m","x":null}', "404", "m", {"type": "T", "x": None}),
        (b'{"code":"y","message":{"a":1}}', "y", '{"a":1}', {}),
        (b'{"code":404}', "404", "words", {}),
        (b'{"code":"\xff"}', None, "words", {"type": "server_error"}),
    ],
)
def test_an_error_that_codex_would_ignore_is_put_into_a_shape_that_it_reads(
    error: bytes | None, code: str | None, message: str, rest: dict[str, object]
) -> None:
    stated = None if error is None else msgspec.Raw(error)

    assert readable_error(stated, "words") == {"code": code, "message": message, **rest}


@pytest.mark.parametrize(
    ("event", "status"),
    [
        *(('{"status":429}', 429), ('{"status_code":503}', 503), ('{"status":302}', 302)),
        *(("{}", None), ('{"status":200}', None), ('{"status":99}', None)),
        *(('{"status":1000}', None), ('{"status":404.0}', None), ('{"status":"503"}', None)),
        *(('{"status":null}', None), ('{"status":404,"status_code":404}', None)),
    ],
)
def test_a_status_counts_if_codex_acts_on_it(event: str, status: int | None) -> None:
    assert error_status(members(event.encode())) == status


# Events that turnlane makes.


def test_an_interrupted_response_ends_as_codex_expects() -> None:
    began = {"id": "resp_1", "model": "m", "status": "in_progress", "usage": {"input_tokens": 1}}
    event = interrupted(json.dumps({"type": "response.created", "response": began}).encode())

    assert event.terminal
    assert decoded(event) == {
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


@pytest.mark.parametrize("model", ["gpt-5.5", None])
def test_a_prewarm_is_answered_as_a_model_would(model: str | None) -> None:
    created, done = map(msgspec.json.decode, prewarmed("resp_1", model, 1_800_000_000.9))

    response = {
        "id": "resp_1",
        "object": "response",
        "created_at": 1_800_000_000,
        "model": model,
        "status": "in_progress",
        "output": [],
    }
    assert created == {"type": "response.created", "response": response}
    assert done == {
        "type": "response.completed",
        "response": response | {"status": "completed", "usage": ZERO},
    }
