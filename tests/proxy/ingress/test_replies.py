"""Errors in their two forms, and what an upstream said, kept."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lifecycle import Limits
from proxy.config.settings import ClientSettings
from proxy.ingress import replies
from proxy.ingress.refusals import Audience, error_reply, figures
from proxy.ingress.replies import frame_form, http_form
from proxy.journal.record import Transport
from proxy.refusal import Reason, Refused
from proxy.responses.sse import events_of
from proxy.turn.ended import Displaced, Rejected
from proxy.upstream.interface import Failure
from tests.testkit.runtime import WALL

AUDIENCE = Audience(codex=True, transport=Transport.HTTP)
FIGURES = figures(Limits(), ClientSettings())


def json(data: bytes) -> Any:
    return msgspec.json.decode(data)


def test_a_connection_that_was_read_to_its_end_stays_open() -> None:
    no = error_reply(Refused(reason=Reason.TOO_LARGE), AUDIENCE, FIGURES)
    _, headers, _ = http_form(no, close=False)

    assert b"connection" not in dict(headers)


# No reply, half of one, or a bug.


@pytest.mark.parametrize("retriable", [True, False])
def test_an_upstream_that_was_not_reached_is_a_retryable_error(retriable: bool) -> None:
    no = replies.failed(
        Failure(status=504, code="upstream_timeout", message="no event", retriable=retriable)
    )

    assert json(frame_form(no)) == {
        "type": "error",
        "status": 504,
        "error": {
            "type": "server_error",
            "code": "upstream_timeout",
            "message": "turnlane got no answer from the upstream: no event",
            "retryable": True,
        },
        "headers": {"retry-after": "2"},
    }


@pytest.mark.parametrize(("how", "words"), [("peer reset", "peer reset"), ("", "no reason given")])
def test_a_stream_that_broke_is_a_502_to_try_again_in_a_second(how: str, words: str) -> None:
    frame = json(frame_form(replies.cut(how)))

    assert (frame["status"], frame["error"]["code"]) == (502, "upstream_cut")
    assert words in frame["error"]["message"]
    assert frame["headers"] == {"retry-after": "1"}


def test_a_bug_is_a_500_without_a_refusal() -> None:
    status, headers, body = http_form(replies.broken(), close=False)

    assert (status, json(body)["error"]["code"]) == (500, "internal_error")
    assert dict(headers)[b"retry-after"] == b"2"
    assert b"x-turnlane-refusal" not in dict(headers)


def test_an_error_for_a_stream_that_has_begun_is_an_event_whose_message_codex_shows() -> None:
    no = error_reply(Displaced(), AUDIENCE, FIGURES)
    event = replies.failed_event(no)

    assert event.terminal
    assert events_of(event.raw) == [event]
    assert event.data is not None
    error = json(event.data)["response"]["error"]
    assert error["code"] == "invalid_prompt"
    assert "on another connection" in error["message"]


# What the upstream rejected.

QUOTA = b'{"error": {"type":"usage_limit_reached",  "resets_at":5, "message":"spent"}}'


def rejected(status: int, body: bytes, **headers: str) -> Rejected:
    named = [(name.replace("_", "-").encode(), text.encode()) for name, text in headers.items()]
    return Rejected(status=status, headers=named, body=body)


@pytest.mark.parametrize(
    ("status", "headers", "over_http", "on_a_websocket"),
    [
        (302, {}, None, None),
        (400, {}, None, None),
        (429, {}, None, None),
        (500, {}, None, "2"),  # Codex tries six times within 7 s where there is no advice
        (401, {"retry_after": "1.2"}, "2", "2"),
        (503, {"retry_after": "75"}, "75", "75"),
        (503, {"retry_after": "0"}, "1", "1"),
        (503, {"retry_after": "soon"}, None, "2"),
        (429, {"retry_after_ms": "2500"}, "3", "3"),
        (429, {"x_ratelimit_reset_tokens": "6m0s"}, "360", "360"),
        (503, {"x_ratelimit_reset_tokens": "6m0s"}, None, "2"),
    ],
)
def test_a_rejection_by_the_upstream_keeps_its_status_and_words_in_both_forms(
    status: int, headers: dict[str, str], over_http: str | None, on_a_websocket: str | None
) -> None:
    said = rejected(status, QUOTA, content_type="text/x", content_length="9999", **headers)
    told, written, body = replies.whole_http(said, WALL)
    frame = replies.rejected_frame(said, WALL)

    assert (told, body) == (status, QUOTA)
    assert len(written) == len(dict(written))
    assert dict(written)[b"content-length"] == b"%d" % len(QUOTA)
    assert dict(written)[b"content-type"] == b"text/x"
    assert dict(written).get(b"retry-after") == (over_http.encode() if over_http else None)
    assert b'{"type":"usage_limit_reached",  "resets_at":5, "message":"spent"}' in frame
    assert (json(frame)["type"], json(frame)["status"]) == ("error", status)
    assert json(frame)["headers"].get("retry-after") == on_a_websocket


def test_on_a_websocket_a_rejection_keeps_the_headers_that_codex_reads() -> None:
    said = rejected(
        429,
        QUOTA,
        x_request_id="req_1",
        x_codex_primary_used_percent="100",
        x_ratelimit_remaining_tokens="0",
        openai_model="gpt-5.5",
        content_type="application/json",
    )

    assert json(replies.rejected_frame(said, WALL))["headers"] == {
        "x-request-id": "req_1",
        "x-codex-primary-used-percent": "100",
        "x-ratelimit-remaining-tokens": "0",
    }


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"<html>bad gateway</html>", "<html>bad gateway</html>"),
        (b"\xff!", "\ufffd!"),
        (b"", ""),
        (b'{"detail":"no such model"}', '{"detail":"no such model"}'),
        (b'{"error":"no such model"}', "no such model"),
        (b'{"error":null,"x":1}', '{"error":null,"x":1}'),
        (b'{"error":{"code":404,"message":"gone"}}', "gone"),
        (b'["error"]', '["error"]'),
        (b"x" * 5000, "x" * 2000),
    ],
    ids=lambda value: repr(value)[:30],
)
def test_a_body_of_any_shape_becomes_an_error_for_codex(body: bytes, message: str) -> None:
    error = json(replies.rejected_frame(rejected(404, body), WALL))["error"]

    assert error["message"] == message
    assert error["code"] in {None, "404"}


# Error events of a stream.

UNSAID = '{"type":"server_error","code":null,"message":"the upstream reported an error"}'
READABLE = '{"code":"x","message":"m"}'
SOON = '{"retry-after":"1"}'
LATER = '{"retry-after":"2"}'


@pytest.mark.parametrize(
    ("event", "status", "error", "headers"),
    [
        ('"status":400,"error":{"code":"x", "message":"m"}', 400, READABLE, "{}"),
        ('"status_code":429,"error":{},"headers":{"a":"b"}', 429, "{}", '{"a":"b"}'),
        ('"status":503,"error":{},"headers":{"Retry-After":"1.5"}', 503, "{}", LATER),
        (
            '"status":503,"error":{},"headers":{"retry-after":0,"x":null}',
            503,
            "{}",
            LATER[:-3] + '1"}',
        ),
        ('"status":500,"error":{},"headers":[]', 500, "{}", LATER),
        ('"error":{"code":"x","message":"m"}', 502, READABLE, LATER),
        ('"status":null,"error":{}', 502, "{}", LATER),
        ('"status":200,"error":{}', 502, "{}", LATER),
        ('"code":"x","message":"m","n":3', 502, '{"type":"x",' + READABLE[1:], LATER),
        ('"n":3', 502, UNSAID, LATER),
        ('"status":404,"error":null', 404, UNSAID, "{}"),
    ],
)
def test_an_error_event_becomes_a_frame_that_codex_acts_on(
    event: str, status: int, error: str, headers: str
) -> None:
    data = ('{"type":"error",' + event + "}").encode()

    assert json(replies.error_event_frame(data, WALL)) == {
        "type": "error",
        "status": status,
        "error": json(error.encode()),
        "headers": json(headers.encode()),
    }


@pytest.mark.parametrize("data", [b"", b'{"type":"error",', b"[]"])
def test_an_error_event_that_is_not_json_is_a_cut(data: bytes) -> None:
    frame = json(replies.error_event_frame(data, WALL))

    assert (frame["status"], frame["error"]["code"]) == (502, "upstream_cut")
    assert frame["headers"] == {"retry-after": "1"}


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-1, 1000) | st.text(max_size=5) | st.floats(0, 999),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(st.sampled_from(["code", "message", "x", "retry-after"]), inner)
    ),
    max_leaves=4,
)


def acted_upon(frame: bytes) -> bool:
    """Whether Codex ends the attempt because of this frame, and knows when to come back."""
    seen = json(frame)
    if not (type(seen["status"]) is int and 300 <= seen["status"] <= 999):
        return False
    words = [seen["error"].get("code"), seen["error"].get("message")]
    later = seen["headers"].get("retry-after", "2" if seen["status"] < 500 else "never")
    return all(word is None or isinstance(word, str) for word in words) and int(later) >= 1


@given(
    st.fixed_dictionaries(
        {"type": st.just("error")},
        optional=dict.fromkeys(["status", "status_code", "error", "message", "headers"], JSON),
    )
)
def test_no_error_event_leaves_codex_waiting(event: dict[str, object]) -> None:
    assert acted_upon(replies.error_event_frame(msgspec.json.encode(event), WALL))


@given(
    st.integers(300, 599),
    st.binary(max_size=20) | JSON.map(lambda error: msgspec.json.encode({"error": error})),
)
def test_no_refused_reply_leaves_codex_waiting(status: int, body: bytes) -> None:
    assert acted_upon(replies.rejected_frame(rejected(status, body), WALL))
