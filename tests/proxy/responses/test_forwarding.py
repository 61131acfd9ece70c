"""Headers: what is named in no list does not travel, and identities are never mixed."""

import math
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from email.utils import format_datetime
from typing import Any

import h11
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.headers import HeaderList, find, retry_after
from proxy.responses.forwarding import (
    downward,
    metadata_event,
    rate_limits_event,
    upward,
    upward_from_frame,
)

WALL = 1_800_000_000.0

UP = (
    *(b"authorization", b"session-id", b"session_id", b"thread-id", b"x-client-request-id"),
    *(b"chatgpt-account-id", b"openai-organization", b"openai-project", b"openai-beta"),
    *(b"originator", b"user-agent", b"version", b"x-oai-attestation", b"traceparent"),
    *(b"x-codex-turn-state", b"x-codex-beta-features", b"x-openai-subagent"),
    *(b"x-openai-internal-codex-responses-lite", b"x-responsesapi-include-timing-metrics"),
)
DOWN = (
    *(b"content-type", b"x-request-id", b"retry-after", b"retry-after-ms"),
    *(b"openai-processing-ms", b"openai-model", b"x-reasoning-included", b"x-models-etag"),
    *(b"x-codex-turn-state", b"x-codex-primary-used-percent", b"x-ratelimit-reset-tokens"),
)
NEVER_UP = (
    *(b"x-turnlane-key", b"x-api-key", b"cookie", b"proxy-authorization", b"host", b"origin"),
    *(b"connection", b"upgrade", b"te", b"transfer-encoding", b"content-length"),
    *(b"content-encoding", b"sec-websocket-key", b"sec-websocket-protocol", b"expect"),
    *(b"referer", b"x-forwarded-for", b"forwarded", b"x-codex", b"x-openai", b"authorization2"),
    *(b"", b"my-x-codex-header", b"set-cookie"),
)
NEVER_DOWN = (
    *(b"set-cookie", b"server", b"date", b"connection", b"transfer-encoding", b"content-length"),
    *(b"content-encoding", b"alt-svc", b"www-authenticate", b"authorization", b"via"),
    *(b"x-codex-websocket-max-message-bytes", b"openai-organization", b"x-ratelimit", b""),
    *(b"access-control-allow-origin", b"strict-transport-security", b"x-turnlane-refusal"),
)
# Up.


@pytest.mark.parametrize("name", UP)
def test_what_the_provider_needs_goes_up_unchanged(name: bytes) -> None:
    assert (name, b" a, b=\xff") in upward([(name, b" a, b=\xff")])


@pytest.mark.parametrize("name", NEVER_UP)
def test_what_is_not_listed_does_not_go_up(name: bytes) -> None:
    assert name not in [key for key, _ in upward([(name, b"secret")])]
    assert name not in [key for key, _ in upward_from_frame([(name, b"secret")], {})]


@pytest.mark.parametrize(
    ("streamed", "accept"), [(True, b"text/event-stream"), (False, b"application/json")]
)
def test_the_upstream_is_asked_for_what_can_be_passed_on(streamed: bool, accept: bytes) -> None:
    asked = upward([(b"accept", b"*/*"), (b"accept-encoding", b"zstd,gzip")], streamed=streamed)

    assert asked == [
        (b"content-type", b"application/json"),
        (b"accept", accept),
        (b"accept-encoding", b"identity"),
    ]


# Up, from a frame.

HANDSHAKE: HeaderList = [
    (b"authorization", b"Bearer of the client"),
    (b"openai-beta", b"responses_websockets=2026-02-06"),
    (b"originator", b"codex_exec"),
    (b"x-client-request-id", b"old-thread"),
    (b"session-id", b"old-session"),
    (b"session_id", b"old-session"),
    (b"thread-id", b"old-thread"),
    (b"x-codex-parent-thread-id", b"old-parent"),
    (b"x-codex-window-id", b"old-thread:0"),
    (b"x-openai-subagent", b"old-kind"),
    (b"x-codex-turn-metadata", b'{"turn_id":""}'),
    (b"x-codex-turn-state", b"old-state"),
]
IDENTITY = {
    b"session-id",
    b"session_id",
    b"thread-id",
    b"x-client-request-id",
    b"x-codex-parent-thread-id",
    b"x-codex-window-id",
    b"x-openai-subagent",
}
WHOLE: Mapping[str, str] = {
    "thread_id": "new-thread",
    "session_id": "new-session",
    "x-codex-parent-thread-id": "new-parent",
    "x-codex-window-id": "new-thread:1",
    "x-openai-subagent": "new-kind",
    "x-codex-turn-metadata": '{"turn_id":"1"}',
    "x-codex-turn-state": "new-state",
    "ws_request_header_x_openai_internal_codex_responses_lite": "true",
}


def from_frame(metadata: Mapping[str, str], headers: HeaderList = HANDSHAKE) -> dict[bytes, bytes]:
    up = upward_from_frame(headers, metadata)
    assert len(dict(up)) == len(up), "no header twice"
    return dict(up)


def test_a_frame_that_names_its_thread_brings_the_whole_identity() -> None:
    up = from_frame(WHOLE)

    assert up == {
        b"authorization": b"Bearer of the client",
        b"originator": b"codex_exec",
        b"content-type": b"application/json",
        b"accept": b"text/event-stream",
        b"accept-encoding": b"identity",
        b"x-client-request-id": b"new-thread",
        b"session-id": b"new-session",
        b"thread-id": b"new-thread",
        b"x-codex-parent-thread-id": b"new-parent",
        b"x-codex-window-id": b"new-thread:1",
        b"x-openai-subagent": b"new-kind",
        b"x-codex-turn-metadata": b'{"turn_id":"1"}',
        b"x-codex-turn-state": b"new-state",
        b"x-openai-internal-codex-responses-lite": b"true",
    }


def test_what_such_a_frame_leaves_out_is_absent_and_not_the_handshakes() -> None:
    up = from_frame({"thread_id": "new-thread"})

    assert {name: up[name] for name in up if name in IDENTITY} == {
        b"thread-id": b"new-thread",
        b"x-client-request-id": b"new-thread",
    }
    assert b"x-codex-turn-metadata" not in up
    assert b"x-codex-turn-state" not in up


def test_a_frame_without_a_thread_leaves_the_handshakes_identity_whole() -> None:
    up = from_frame({key: value for key, value in WHOLE.items() if key != "thread_id"})

    assert {name: up[name] for name in up if name in IDENTITY} == {
        name: value for name, value in HANDSHAKE if name in IDENTITY
    }
    assert up[b"x-codex-turn-metadata"] == b'{"turn_id":"1"}'
    assert up[b"x-codex-turn-state"] == b"new-state"


@given(st.lists(st.sampled_from(sorted(WHOLE)), unique=True))
def test_the_identity_is_never_mixed(keys: list[str]) -> None:
    up = from_frame({key: WHOLE[key] for key in keys})

    ages = {value.partition(b"-")[0] for name, value in up.items() if name in IDENTITY}
    assert ages == ({b"new"} if "thread_id" in keys else {b"old"})


def test_a_client_that_sends_no_request_id_gets_none() -> None:
    assert b"x-client-request-id" not in from_frame(WHOLE, headers=[(b"thread-id", b"old")])


@pytest.mark.parametrize(
    ("beta", "left"),
    [
        (b"responses_websockets=2026-02-06", None),
        (b" responses_websockets=2026-02-06 ", None),
        (b"assistants=v2, responses_websockets=2026-02-06", b"assistants=v2"),
        (b"responses_websockets=2026-02-06, assistants=v2", b"assistants=v2"),
        (b"a=1,responses_websockets=x,b=2", b"a=1,b=2"),
        (b"assistants=v2", b"assistants=v2"),
        (b"my_responses_websockets=1", b"my_responses_websockets=1"),
        (b"", None),
    ],
)
def test_the_beta_of_websockets_stays_below(beta: bytes, left: bytes | None) -> None:
    assert from_frame({}, headers=[(b"openai-beta", beta)]).get(b"openai-beta") == left


def test_over_http_the_beta_header_is_the_clients_own_affair() -> None:
    beta = (b"openai-beta", b"responses_websockets=2026-02-06")

    assert beta in upward([beta])


@pytest.mark.parametrize("key", sorted(WHOLE))
@pytest.mark.parametrize(
    "value",
    ["a\r\nx-evil: 1", "a\nb", "a\rb", "a\0b", "a\x1fb", "a\x7fb", "\x0ba\x0cb", "", "  ", "\r\n"],
    ids=repr,
)
def test_metadata_cannot_inject_a_header(key: str, value: str) -> None:
    up = upward_from_frame([], {"thread_id": "t", key: value})

    assert up == (upward([]) if key == "thread_id" else [*upward([]), (b"thread-id", b"t")])


@given(st.dictionaries(st.sampled_from(sorted(WHOLE)), st.text(max_size=12)))
def test_whatever_metadata_says_the_headers_can_be_sent(metadata: dict[str, str]) -> None:
    up = upward_from_frame(HANDSHAKE, metadata)

    sent = h11.Request(method="POST", target="/", headers=[(b"host", b"upstream"), *up])
    assert list(sent.headers)[1:] == up


# Down.


@pytest.mark.parametrize("name", DOWN)
def test_what_the_client_reads_goes_down_unchanged(name: bytes) -> None:
    assert downward([(name.title(), b" a, b=\xff")]) == [(name, b" a, b=\xff")]


@pytest.mark.parametrize("name", NEVER_DOWN)
def test_what_is_not_listed_does_not_go_down(name: bytes) -> None:
    assert downward([(name.title(), b"x"), (name, b"x")]) == []


def test_a_header_is_found_in_any_case_and_trimmed_and_the_first_counts() -> None:
    headers = [(b"Other", b"0"), (b"X-Name", b" 1\t"), (b"x-name", b"2")]

    assert find(headers, b"x-name") == "1"
    assert find(headers, b"x-nam") is None


# Advice.

LATER = format_datetime(datetime.fromtimestamp(WALL + 30, UTC), usegmt=True)
EARLIER = format_datetime(datetime.fromtimestamp(WALL - 30, UTC), usegmt=True)
WITHOUT_A_ZONE = datetime.fromtimestamp(WALL + 30, UTC).ctime()  # HTTP's oldest form


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("3", 3),
        (" 75 ", 75),
        ("1.5", 2),
        ("0.001", 1),
        ("0", 1),
        ("0.0", 1),
        ("7200", 7200),
        (LATER, 30),
        (EARLIER, 1),
        ("Fri, 31 Dec 1999 23:59:59 GMT", 1),
        ("Mon, 1 Jan 99999999999 00:00:00 GMT", None),
        ("Mon, 99 Jan 2030 00:00:00 GMT", None),
        ("1 Jan 2030 00:00:00 +9999", None),
        ("-1", None),
        ("nan", None),
        ("inf", None),
        ("1e999", None),
        ("soon", None),
        ("", None),
        ("\xff", None),
    ],
)
def test_retry_after_becomes_whole_seconds_or_nothing(value: str, seconds: int | None) -> None:
    assert retry_after([(b"Retry-After", value.encode("latin-1"))], 503, WALL) == seconds


@contextmanager
def time_zone(name: str) -> Iterator[None]:
    before = os.environ.get("TZ")
    os.environ["TZ"] = name
    time.tzset()
    try:
        yield
    finally:
        del os.environ["TZ"]
        os.environ.update({} if before is None else {"TZ": before})
        time.tzset()


@pytest.mark.parametrize("zone", ["UTC", "JST-9", "PST+8"])
def test_a_date_is_of_the_same_moment_wherever_turnlane_runs(zone: str) -> None:
    with time_zone(zone):
        advised = [
            retry_after([(b"retry-after", date.encode())], 503, WALL)
            for date in (LATER, WITHOUT_A_ZONE)
        ]

    assert advised == [30, 30]


@pytest.mark.parametrize(
    ("headers", "status", "seconds"),
    [
        ({}, 429, None),
        ({"retry-after-ms": "1500"}, 429, 2),
        ({"retry-after-ms": "1500"}, 503, 2),
        ({"retry-after-ms": "0"}, 429, 1),
        ({"retry-after-ms": "-1"}, 429, None),
        ({"retry-after-ms": "soon"}, 429, None),
        ({"retry-after": "5", "retry-after-ms": "1500"}, 429, 5),
        ({"retry-after": "soon", "retry-after-ms": "1500"}, 429, 2),
        ({"x-ratelimit-reset-requests": "20ms"}, 429, 1),
        ({"x-ratelimit-reset-requests": "6m0s"}, 429, 360),
        ({"x-ratelimit-reset-requests": "1h2m3.5s"}, 429, 3724),
        ({"x-ratelimit-reset-requests": "1d"}, 429, 86400),
        ({"x-ratelimit-reset-requests": "17.2"}, 429, 18),
        ({"x-ratelimit-reset-requests": "6m0s", "x-ratelimit-reset-tokens": "2s"}, 429, 2),
        ({"X-RateLimit-Reset-Tokens": "4s"}, 429, 4),
        ({"x-ratelimit-reset-requests": "6m0s"}, 503, None),
        ({"retry-after-ms": "900", "x-ratelimit-reset-requests": "6m0s"}, 429, 1),
        ({"x-ratelimit-reset-requests": "soon", "x-ratelimit-reset-tokens": "2s"}, 429, 2),
        ({"x-ratelimit-reset-requests": "5x"}, 429, None),
        ({"x-ratelimit-reset-requests": "-5s"}, 429, None),
        ({"x-ratelimit-reset-requests": ""}, 429, None),
        ({"x-ratelimit-remaining-requests": "7"}, 429, None),
    ],
)
def test_other_advice_counts_where_there_is_no_retry_after(
    headers: Mapping[str, str], status: int, seconds: int | None
) -> None:
    pairs = [(name.encode(), value.encode()) for name, value in headers.items()]

    assert retry_after(pairs, status, WALL) == seconds


@given(st.floats(0, 1e9))
def test_advice_is_rounded_up_and_never_nought(seconds: float) -> None:
    advised = retry_after([(b"retry-after", repr(seconds).encode())], 503, WALL)

    assert advised == max(1, math.ceil(seconds))


WORDS = (
    *("Mon,", "Sun", "1", "31", "Jan", "Nov", "0", "1994", "2030", "99999999999", "-1", "1e9"),
    *(
        "00:00:00",
        "08:49:37",
        "25:61:61",
        ":",
        "GMT",
        "+9999",
        "-0000",
        "EST",
        ",",
        "s",
        "ms",
        "5m",
    ),
)


@given(
    st.lists(
        st.tuples(
            st.sampled_from([b"retry-after", b"retry-after-ms", b"x-ratelimit-reset-tokens"]),
            st.binary(max_size=12)
            | st.lists(st.sampled_from(WORDS), max_size=7).map(" ".join).map(str.encode),
        ),
        max_size=3,
    ),
    st.sampled_from([429, 503]),
)
def test_whatever_the_upstream_advises_is_survived(headers: HeaderList, status: int) -> None:
    advised = retry_after(headers, status, WALL)

    assert advised is None or (isinstance(advised, int) and advised >= 1)


# Headers that become events on a WebSocket.


def decoded(frame: bytes | None) -> Any:
    assert frame is not None
    return msgspec.json.decode(frame)


def test_turn_state_and_model_become_response_metadata() -> None:
    headers = [
        (b"X-Codex-Turn-State", b'st"ate'),
        (b"openai-model", b"gpt-5.5"),
        (b"x-request-id", b"1"),
    ]

    assert decoded(metadata_event(headers)) == {
        "type": "response.metadata",
        "headers": {"x-codex-turn-state": 'st"ate', "openai-model": "gpt-5.5"},
    }


@pytest.mark.parametrize("headers", [[], [(b"x-codex-turn-state", b"")], [(b"etag", b"1")]])
def test_without_either_there_is_no_such_event(headers: HeaderList) -> None:
    assert metadata_event(headers) is None


@pytest.mark.parametrize(
    ("headers", "event"),
    [
        (
            {
                "x-codex-primary-used-percent": "55",
                "x-codex-primary-window-minutes": "300",
                "x-codex-primary-reset-at": "1800000300",
                "x-codex-secondary-used-percent": "12.5",
                "x-codex-secondary-window-minutes": "10080.0",
                "x-codex-plan-type": "pro",
                "x-codex-credits-has-credits": "True",
                "x-codex-credits-unlimited": "false",
                "x-codex-credits-balance": "7.50",
            },
            {
                "rate_limits": {
                    "primary": {
                        "used_percent": 55.0,
                        "window_minutes": 300,
                        "reset_at": 1800000300,
                    },
                    "secondary": {
                        "used_percent": 12.5,
                        "window_minutes": 10080,
                        "reset_at": None,
                    },
                },
                "plan_type": "pro",
                "credits": {"has_credits": True, "unlimited": False, "balance": "7.50"},
            },
        ),
        (
            {"x-codex-secondary-used-percent": "0", "x-codex-credits-has-credits": "false"},
            {
                "rate_limits": {
                    "secondary": {"used_percent": 0.0, "window_minutes": None, "reset_at": None}
                },
                "credits": {"has_credits": False, "unlimited": False, "balance": None},
            },
        ),
        (
            {
                "x-codex-primary-used-percent": "full",
                "x-codex-secondary-used-percent": "3",
                "x-codex-secondary-reset-at": "soon",
            },
            {
                "rate_limits": {
                    "secondary": {"used_percent": 3.0, "window_minutes": None, "reset_at": None}
                }
            },
        ),
    ],
    ids=["everything", "one window, no credits", "garbage"],
)
def test_limits_become_codex_rate_limits(headers: Mapping[str, str], event: object) -> None:
    pairs = [(name.encode(), value.encode()) for name, value in headers.items()]

    said = decoded(rate_limits_event(pairs))
    assert said.pop("type") == "codex.rate_limits"
    assert said == event


@pytest.mark.parametrize(
    "headers", [[], [(b"x-codex-plan-type", b"pro")], [(b"x-codex-primary-used-percent", b"nan")]]
)
def test_without_a_window_there_is_no_such_event(headers: HeaderList) -> None:
    assert rate_limits_event(headers) is None
