"""Frames to a client: what came together, in order, and how its turn ended."""

from typing import Any

import msgspec
import pytest

from proxy.ingress.refusals import refusal_of
from proxy.ingress.replies import ErrorReply
from proxy.ingress.websocket_frames import FILLER, frames_of
from proxy.journal.outcome import Outcome, Transport
from proxy.responses.sse import Batch, Event, event_from
from proxy.turn.ended import Ended, Head, Rejected
from proxy.turn.outbox import Taken
from proxy.upstream.interface import Failure
from tests.proxy.ingress.runtimes import WALL, runtime

CREATED = event_from(b'{"type":"response.created"}', "response.created")
DELTA = event_from(b'{"type":"response.output_text.delta","delta":"\xc3\xa9"}', "x")
COMPLETED = event_from(b'{"type":"response.completed"}', "response.completed")
TELLS_NOTHING = (
    Outcome.COMPLETED,
    Outcome.REPLACED,
    Outcome.CLIENT_GONE,
    Outcome.CLIENT_STALLED,
    Outcome.SHUTDOWN,
    Outcome.INTERRUPTED,
)


def frames(
    *events: Event, head: Head | None = None, ended: Ended | None = None, codex: bool = False
) -> list[bytes]:
    taken = Taken(
        head=head,
        batches=[Batch(x.raw, () if x.data is None else (x.data,)) for x in events],
        ended=ended,
    )

    def in_words(no: Ended) -> ErrorReply:
        return refusal_of(runtime(), no, codex=codex, transport=Transport.WEBSOCKET)

    return frames_of(taken, in_words, WALL)


def last(ended: Ended, *, codex: bool = False) -> Any:
    (frame,) = frames(ended=ended, codex=codex)
    return msgspec.json.decode(frame)


def test_data_goes_out_as_it_came_and_in_order() -> None:
    ended = Ended(outcome=Outcome.COMPLETED, final=COMPLETED)

    assert frames(CREATED, DELTA, ended=ended) == [CREATED.data, DELTA.data, COMPLETED.data]


def test_nothing_taken_is_nothing_sent() -> None:
    assert frames() == []


def test_comments_and_empty_data_are_no_frames() -> None:
    assert frames(Event(b": hi\n\n", None, ""), Event(b"data:\n\n", b"", "")) == []


def test_a_frame_is_valid_text_whatever_the_upstream_wrote() -> None:
    assert frames(event_from(b"caf\xe9 \xc3\xa9", "")) == ["caf\ufffd é".encode()]


def test_what_the_head_says_goes_before_the_first_event() -> None:
    head = Head(
        status=200,
        headers=[(b"x-codex-turn-state", b"state"), (b"x-codex-primary-used-percent", b"5")],
    )
    metadata, limits, event = frames(CREATED, head=head)

    assert msgspec.json.decode(metadata)["type"] == "response.metadata"
    assert msgspec.json.decode(limits)["type"] == "codex.rate_limits"
    assert event == CREATED.data


def test_a_head_with_nothing_for_a_websocket_is_no_frame() -> None:
    head = Head(status=200, headers=[(b"content-type", b"text/event-stream")])

    assert frames(CREATED, head=head) == [CREATED.data]


def test_a_terminal_event_without_data_still_is_a_frame() -> None:
    ended = Ended(outcome=Outcome.COMPLETED, final=Event(b"", None, "response.completed"))

    assert frames(ended=ended) == [b""]


def test_an_error_event_gets_the_status_without_which_codex_waits() -> None:
    final = event_from(b'{"type":"error","code":"x","message":"m"}', "error")
    frame = last(Ended(outcome=Outcome.FAILED, final=final))

    assert (frame["status"], frame["error"]["message"]) == (502, "m")
    assert frame["headers"] == {"retry-after": "2"}


def test_an_upstreams_no_keeps_its_status() -> None:
    rejected = Rejected(status=402, headers=[], body=b'{"error":{"message":"pay"}}')
    frame = last(Ended(outcome=Outcome.UPSTREAM_REFUSED, rejected=rejected))

    assert (frame["status"], frame["error"]) == (402, {"message": "pay"})


def test_an_upstream_that_was_not_reached_is_said_to_be() -> None:
    failure = Failure(status=504, code="upstream_timeout", message="m", retriable=False)
    frame = last(Ended(outcome=Outcome.UPSTREAM_FAILED, failure=failure))

    assert (frame["status"], frame["error"]["code"]) == (504, "upstream_timeout")


@pytest.mark.parametrize(
    ("ended", "codex", "status", "code"),
    [
        (Ended(outcome=Outcome.REFUSED, refusal="lane_busy"), True, 503, "server_busy"),
        (Ended(outcome=Outcome.REFUSED, refusal="bad_request"), False, 400, "bad_request"),
        (Ended(outcome=Outcome.REFUSED, refusal="too_large"), True, 400, "invalid_prompt"),
        (Ended(outcome=Outcome.DISPLACED), False, 409, "continued_elsewhere"),
        (Ended(outcome=Outcome.DISPLACED), True, 400, "invalid_prompt"),
        (Ended(outcome=Outcome.CUT, detail="reset"), True, 502, "upstream_cut"),
        (Ended(outcome=Outcome.BROKEN), True, 500, "internal_error"),
    ],
)
def test_an_end_that_has_words_is_told(ended: Ended, codex: bool, status: int, code: str) -> None:
    frame = last(ended, codex=codex)

    assert (frame["type"], frame["status"], frame["error"]["code"]) == ("error", status, code)


@pytest.mark.parametrize(
    "ended",
    [
        Ended(outcome=Outcome.REFUSED, refusal="bad_request", detail="the reason"),
        Ended(outcome=Outcome.CUT, detail="the reason"),
    ],
)
def test_a_detail_reaches_the_client(ended: Ended) -> None:
    assert "the reason" in last(ended)["error"]["message"]


@pytest.mark.parametrize("outcome", TELLS_NOTHING)
def test_nobody_is_told_about_an_end_that_is_their_own(outcome: Outcome) -> None:
    assert frames(CREATED, ended=Ended(outcome=outcome)) == [CREATED.data]


def test_a_filler_is_an_event_that_ends_nothing() -> None:
    assert msgspec.json.decode(FILLER) == {"type": "keepalive"}
