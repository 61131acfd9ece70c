"""Frames to a client: what came together, in order, and how its turn ended."""

from typing import Any

import msgspec
import pytest

from lifecycle import Cause, Limits
from proxy.config.settings import ClientSettings
from proxy.ingress.refusals import Audience, figures
from proxy.ingress.websocket_frames import FILLER, frames_of
from proxy.journal.record import Transport
from proxy.refusal import Reason, Refused
from proxy.responses.events import UNKNOWN_USAGE
from proxy.responses.sse import Batch, Event, event_from
from proxy.turn.ended import (
    Broken,
    Cancelled,
    Cut,
    Delivered,
    Displaced,
    Ended,
    Finished,
    Head,
    Rejected,
)
from proxy.turn.outbox import Taken
from proxy.upstream.interface import Failure
from tests.testkit.runtime import WALL

CREATED = event_from(b'{"type":"response.created"}', "response.created")
DELTA = event_from(b'{"type":"response.output_text.delta","delta":"\xc3\xa9"}', "x")
COMPLETED = event_from(b'{"type":"response.completed"}', "response.completed")
TELLS_NOTHING: list[Ended] = [Delivered(), *(Cancelled(cause=cause) for cause in Cause)]
FIGURES = figures(Limits(), ClientSettings())


def frames(
    *events: Event, head: Head | None = None, ended: Ended | None = None, codex: bool = False
) -> list[bytes]:
    taken = Taken(
        head=head,
        batches=[Batch(x.raw, () if x.data is None else (x.data,)) for x in events],
        ended=ended,
    )
    audience = Audience(codex=codex, transport=Transport.WEBSOCKET)
    return frames_of(taken, audience, FIGURES, WALL)


def finished(final: Event) -> Finished:
    return Finished(final=final, usage=UNKNOWN_USAGE)


def last(ended: Ended, *, codex: bool = False) -> Any:
    (frame,) = frames(ended=ended, codex=codex)
    return msgspec.json.decode(frame)


def test_data_goes_out_as_it_came_and_in_order() -> None:
    ended = finished(COMPLETED)

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
    ended = finished(Event(b"", None, "response.completed"))

    assert frames(ended=ended) == [b""]


def test_an_error_event_gets_the_status_without_which_codex_waits() -> None:
    final = event_from(b'{"type":"error","code":"x","message":"m"}', "error")
    frame = last(finished(final))

    assert (frame["status"], frame["error"]["message"]) == (502, "m")
    assert frame["headers"] == {"retry-after": "2"}


def test_an_upstreams_no_keeps_its_status() -> None:
    rejected = Rejected(status=402, headers=[], body=b'{"error":{"message":"pay"}}')
    frame = last(rejected)

    assert (frame["status"], frame["error"]) == (402, {"message": "pay"})


def test_an_upstream_that_was_not_reached_is_said_to_be() -> None:
    failure = Failure(status=504, code="upstream_timeout", message="m", retriable=False)
    frame = last(failure)

    assert (frame["status"], frame["error"]["code"]) == (504, "upstream_timeout")


@pytest.mark.parametrize(
    ("ended", "codex", "status", "code"),
    [
        (Refused(reason=Reason.LANE_BUSY), True, 503, "server_busy"),
        (Refused(reason=Reason.BAD_REQUEST), False, 400, "bad_request"),
        (Refused(reason=Reason.TOO_LARGE), True, 400, "invalid_prompt"),
        (Displaced(), False, 409, "continued_elsewhere"),
        (Displaced(), True, 400, "invalid_prompt"),
        (Cut(how="reset"), True, 502, "upstream_cut"),
        (Broken(), True, 500, "internal_error"),
    ],
)
def test_an_end_that_has_words_is_told(ended: Ended, codex: bool, status: int, code: str) -> None:
    frame = last(ended, codex=codex)

    assert (frame["type"], frame["status"], frame["error"]["code"]) == ("error", status, code)


@pytest.mark.parametrize(
    "ended",
    [
        Refused(reason=Reason.BAD_REQUEST, detail="the reason"),
        Cut(how="the reason"),
    ],
)
def test_a_detail_reaches_the_client(ended: Ended) -> None:
    assert "the reason" in last(ended)["error"]["message"]


@pytest.mark.parametrize("ended", TELLS_NOTHING, ids=repr)
def test_nobody_is_told_about_an_end_that_is_their_own(ended: Ended) -> None:
    assert frames(CREATED, ended=ended) == [CREATED.data]


def test_a_filler_is_an_event_that_ends_nothing() -> None:
    assert msgspec.json.decode(FILLER) == {"type": "keepalive"}
