"""Which headers travel: a header that is not listed does not, and identities are never mixed."""

from collections.abc import Mapping
from typing import Any

import h11
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.headers import HeaderList
from proxy.responses.forwarding import (
    downward,
    for_account,
    metadata_event,
    rate_limits_event,
    upward,
    upward_from_frame,
)


def pairs(text: str) -> HeaderList:
    """Headers, one a line."""
    lines = (line.strip().partition(": ") for line in text.strip().splitlines())
    return [(name.encode(), value.encode()) for name, _, value in lines]


LOGIN = pairs(
    """
    authorization: Bearer of the client
    chatgpt-account-id: account
    openai-organization: org
    openai-project: project
    x-oai-attestation: attested
    """
)
GOES_UP = LOGIN + pairs(
    """
    session-id: session
    session_id: session
    thread-id: thread
    x-client-request-id: thread
    openai-beta: assistants=v2
    originator: codex_exec
    user-agent: codex_exec/0.171 (Linux)
    version: 0.171.0
    traceparent: 00-1-1-01
    x-codex-turn-metadata: {"turn_id":"1"}
    x-codex-beta-features: a, b
    x-openai-subagent: review
    x-openai-internal-codex-responses-lite: true
    x-responsesapi-include-timing-metrics: true
    """
)
STAYS_HERE = pairs(
    """
    x-turnlane-key: tl_secret
    x-api-key: tl_secret
    cookie: c
    proxy-authorization: Basic x
    host: 127.0.0.1:10110
    origin: https://app.example
    referer: https://app.example/
    connection: keep-alive
    transfer-encoding: chunked
    content-length: 5
    content-encoding: zstd
    sec-websocket-key: x
    x-forwarded-for: 10.0.0.1
    forwarded: for=10.0.0.1
    authorization2: x
    my-x-codex-header: x
    x-codex: x
    """
)
ASKED = pairs(
    """
    content-type: application/json
    accept: text/event-stream
    accept-encoding: identity
    """
)
"""What turnlane says itself of the request and the answer."""
GOES_DOWN = pairs(
    """
    content-type: text/event-stream
    x-request-id: req_1
    retry-after: 3
    retry-after-ms: 2500
    openai-processing-ms: 12
    openai-model: gpt-5.5
    x-reasoning-included: true
    x-models-etag: W/"1"
    x-codex-turn-state: state
    x-codex-primary-used-percent: 12.5
    x-ratelimit-reset-tokens: 6m0s
    """
)
STAYS_UP = pairs(
    """
    set-cookie: c
    server: cloudflare
    date: Fri, 31 Dec 1999 23:59:59 GMT
    connection: close
    transfer-encoding: chunked
    content-length: 5
    content-encoding: gzip
    www-authenticate: Bearer
    authorization: Bearer x
    openai-organization: org
    access-control-allow-origin: *
    strict-transport-security: max-age=1
    x-turnlane-refusal: lane_busy
    x-ratelimit: x
    x-codex-websocket-max-message-bytes: 100
    """
)
UNLISTED = st.text("abcdefghijklmnopqrstuvwxyz-_0123456789", min_size=1, max_size=24).map(
    lambda name: b"z-" + name.encode()
)

# Up.


def test_what_the_provider_needs_goes_up_unchanged_and_nothing_else() -> None:
    assert upward([*STAYS_HERE, *GOES_UP]) == [*GOES_UP, *ASKED]


@given(st.lists(st.tuples(UNLISTED, st.binary(max_size=8))))
def test_a_header_that_is_not_listed_does_not_travel(headers: HeaderList) -> None:
    assert upward(headers) == upward_from_frame(headers, {}) == ASKED
    assert downward(headers) == []


def test_a_turnlane_key_does_not_go_up_as_authorization() -> None:
    for value in (b"Bearer tl_x", b"bearer   tl_x", b"tl_x", b"Bearer\ttl_x", b"Basic a,tl_x"):
        assert upward([(b"authorization", value)]) == ASKED


def test_the_upstream_is_asked_for_what_can_be_passed_on() -> None:
    asked = upward([(b"accept", b"*/*"), (b"accept-encoding", b"zstd,gzip")], streamed=False)

    assert dict(asked) == dict(ASKED) | {b"accept": b"application/json"}


@pytest.mark.parametrize("keep", [True, False])
def test_an_account_replaces_the_login_and_keeps_only_turn_state_that_it_gave(keep: bool) -> None:
    state = (b"x-codex-turn-state", b"state")
    own = [(b"authorization", b"Bearer of the account")]
    rest = [pair for pair in GOES_UP if pair not in LOGIN]

    sent = for_account([*GOES_UP, state], own, keep_turn_state=keep)

    assert sent == [*rest, *([state] if keep else []), *own]


# Up, from a frame.

HANDSHAKE = pairs(
    """
    authorization: Bearer of the client
    openai-beta: responses_websockets=2026-02-06
    originator: codex_exec
    x-client-request-id: old-thread
    session-id: old-session
    session_id: old-session
    thread-id: old-thread
    x-codex-parent-thread-id: old-parent
    x-codex-window-id: old-thread:0
    x-openai-subagent: old-kind
    x-codex-turn-metadata: {"turn_id":""}
    x-codex-turn-state: old-state
    """
)
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
IDENTITY = {
    *(b"session-id", b"session_id", b"thread-id", b"x-client-request-id"),
    *(b"x-codex-parent-thread-id", b"x-codex-window-id", b"x-openai-subagent"),
}


def from_frame(metadata: Mapping[str, str], headers: HeaderList = HANDSHAKE) -> dict[bytes, bytes]:
    up = upward_from_frame(headers, metadata)
    assert len(dict(up)) == len(up), "no header twice"
    return dict(up)


def test_a_frame_that_names_its_thread_has_the_whole_identity() -> None:
    assert from_frame(WHOLE) == dict(
        ASKED
        + pairs(
            """
            authorization: Bearer of the client
            originator: codex_exec
            x-client-request-id: new-thread
            session-id: new-session
            thread-id: new-thread
            x-codex-parent-thread-id: new-parent
            x-codex-window-id: new-thread:1
            x-openai-subagent: new-kind
            x-codex-turn-metadata: {"turn_id":"1"}
            x-codex-turn-state: new-state
            x-openai-internal-codex-responses-lite: true
            """
        )
    )


def test_what_such_a_frame_leaves_out_is_absent_and_not_the_handshakes() -> None:
    up = from_frame({"thread_id": "new-thread"})

    assert {name: up[name] for name in up if name in IDENTITY} == {
        b"thread-id": b"new-thread",
        b"x-client-request-id": b"new-thread",
    }
    assert up.keys().isdisjoint({b"x-codex-turn-metadata", b"x-codex-turn-state"})


def test_a_frame_without_a_thread_keeps_the_whole_identity_of_its_handshake() -> None:
    up = from_frame({key: value for key, value in WHOLE.items() if key != "thread_id"})

    old = {name: value for name, value in HANDSHAKE if name in IDENTITY}
    assert {name: up[name] for name in up if name in IDENTITY} == old
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
        (b"my_responses_websockets=1", b"my_responses_websockets=1"),
        (b"", None),
    ],
)
def test_a_post_made_of_a_frame_does_not_announce_websockets(
    beta: bytes, left: bytes | None
) -> None:
    assert from_frame({}, headers=[(b"openai-beta", beta)]).get(b"openai-beta") == left


@pytest.mark.parametrize("key", sorted(WHOLE))
@pytest.mark.parametrize(
    "value",
    ["a\r\nx-evil: 1", "a\nb", "a\rb", "a\0b", "a\x1fb", "a\x7fb", "\x0ba\x0cb", "", "  ", "\r\n"],
    ids=repr,
)
def test_metadata_cannot_inject_a_header(key: str, value: str) -> None:
    up = upward_from_frame([], {"thread_id": "t", key: value})

    assert up == (ASKED if key == "thread_id" else [*ASKED, (b"thread-id", b"t")])


@given(st.dictionaries(st.sampled_from(sorted(WHOLE)), st.text(max_size=12)))
def test_any_metadata_makes_headers_that_can_be_sent(metadata: dict[str, str]) -> None:
    up = upward_from_frame(HANDSHAKE, metadata)

    sent = h11.Request(method="POST", target="/", headers=[(b"host", b"upstream"), *up])
    assert list(sent.headers)[1:] == up


# Down.


def test_what_the_client_reads_goes_down_unchanged_and_nothing_else() -> None:
    said = [(name.title(), value) for name, value in (*STAYS_UP, *GOES_DOWN)]

    assert downward(said) == GOES_DOWN


# Headers that become events on a WebSocket.


def decoded(frame: bytes | None) -> Any:
    assert frame is not None
    return msgspec.json.decode(frame)


def test_turn_state_and_model_become_response_metadata() -> None:
    headers = pairs('X-Codex-Turn-State: st"ate\nopenai-model: gpt-5.5\nx-request-id: 1')

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
            """
            x-codex-primary-used-percent: 55
            x-codex-primary-window-minutes: 300
            x-codex-primary-reset-at: 1800000300
            x-codex-secondary-used-percent: 12.5
            x-codex-secondary-window-minutes: 10080.0
            x-codex-plan-type: pro
            x-codex-credits-has-credits: True
            x-codex-credits-unlimited: false
            x-codex-credits-balance: 7.50
            """,
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
            """
            x-codex-primary-used-percent: full
            x-codex-secondary-used-percent: 0
            x-codex-secondary-reset-at: soon
            x-codex-credits-has-credits: false
            """,
            {
                "rate_limits": {
                    "secondary": {"used_percent": 0.0, "window_minutes": None, "reset_at": None}
                },
                "credits": {"has_credits": False, "unlimited": False, "balance": None},
            },
        ),
    ],
    ids=["everything", "one window, and garbage"],
)
def test_limits_become_codex_rate_limits(headers: str, event: dict[str, Any]) -> None:
    said = decoded(rate_limits_event(pairs(headers)))

    assert said == {"type": "codex.rate_limits", **event}


@pytest.mark.parametrize(
    "headers", [[], [(b"x-codex-plan-type", b"pro")], [(b"x-codex-primary-used-percent", b"nan")]]
)
def test_without_a_window_there_is_no_event_for_limits(headers: HeaderList) -> None:
    assert rate_limits_event(headers) is None
