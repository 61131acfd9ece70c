"""Why turnlane itself says no: every row of the table, on both transports."""

from dataclasses import dataclass
from typing import Any

import msgspec
import pytest
import trio
from trio.testing import MockClock

from lifecycle import AdmissionReason, Limits, WorkflowLimits
from proxy.config.settings import ClientSettings
from proxy.ingress import refusals as reasons
from proxy.ingress.replies import ErrorReply, frame_form, http_form
from proxy.journal.outcome import Transport
from proxy.turn.ended import SpentQuota
from tests.proxy.ingress.runtimes import runtime
from tests.testkit.runtime import TRANSPORTS

MIB = 2**20
LIMITS = Limits(
    turns=11,
    lanes=7,
    lanes_kept=3,
    websockets=13,
    memory_bytes=5 * MIB,
    settle_seconds=1.5,
    workflow=WorkflowLimits(
        turns=6, kept=2, children=17, sends=19, sends_kept=4, window_seconds=90, roots=23
    ),
)
CLIENT = ClientSettings(body_bytes=3 * MIB, body_silent_seconds=4, body_seconds=9)
LOCALLY = "turnlane refused this locally and asked no provider: "


@dataclass(frozen=True)
class Row:
    """One row of the table; `words` stand in the message; `final` will not come true later."""

    status: int
    code: str
    words: tuple[str, ...] = ("the detail",)
    type: str = "invalid_request_error"
    retry_after: int | None = None
    final: bool = False


def busy(*words: str, retry_after: int = 2) -> Row:
    return Row(503, "server_busy", words, type="server_error", retry_after=retry_after)


def budget(*words: str) -> Row:
    """Without a word of the window it is final."""
    return Row(429, "workflow_budget_exhausted", words, type="rate_limit_error", final=True)


TABLE = {
    "turns_at_capacity": busy("all 11 turns", "when a stream ends"),
    "lanes_at_capacity": busy(
        "all 7 lanes", "3 of them", "when a conversation's running turn ends"
    ),
    "lane_busy": busy("1 at once", "within 1.5 s", "when that turn ends"),
    "memory_at_capacity": busy("the 5 MiB", "as turns end"),
    "websockets_at_capacity": busy("all 13 WebSockets", "when a client closes"),
    "displaced": Row(409, "continued_elsewhere", ("on another connection",), final=True),
    "workflow_concurrency_exhausted": Row(
        429,
        "queue_capacity_exceeded",
        ("6 turns at once", "2 of them kept", "when a sub-agent's stream ends"),
        type="rate_limit_error",
        retry_after=5,
    ),
    "workflow_sends_exhausted": budget("19 by sub-agents, 23 in all, in 1.5 min", "as that time"),
    "workflow_children_exhausted": budget("17 different sub-agents in 1.5 min", "may go on"),
    "workflow_tracking_exhausted": busy("23 tasks", "within its budget", retry_after=5),
    "accounts_spent": Row(
        429,
        "usage_limit_reached",
        ("the detail", "none of them said when"),
        type="usage_limit_reached",
        final=True,
    ),
    "accounts_withheld": Row(
        503,
        "server_busy",
        ("no account can serve", "the detail"),
        type="server_error",
        final=True,
    ),
    "unauthorized": Row(401, "unauthorized"),
    "no_credential": Row(401, "no_credential", ("no credential for a provider", "no account")),
    "foreign_origin": Row(403, "foreign_origin"),
    "not_found": Row(404, "not_found"),
    "method_not_allowed": Row(405, "method_not_allowed"),
    "body_timeout": Row(408, "body_timeout", ("silent for 4 s", "after 9 s")),
    "too_large": Row(413, "too_large", ("larger than 3 MiB",), final=True),
    "unsupported_encoding": Row(415, "unsupported_encoding", final=True),
    "unsupported_stream_id": Row(400, "unsupported_stream_id", final=True),
    "unsupported_frame": Row(400, "unsupported_frame", final=True),
    "bad_request": Row(400, "bad_request", final=True),
    "previous_response_not_found": Row(
        400, "previous_response_not_found", ("response the detail is not known", "the whole input")
    ),
}
ROWS = pytest.mark.parametrize(("reason", "row"), TABLE.items(), ids=list(TABLE))
both = pytest.mark.parametrize("transport", TRANSPORTS)


def refused(
    reason: str,
    *,
    codex: bool = False,
    transport: Transport = Transport.WEBSOCKET,
    detail: str = "the detail",
    retry_seconds: float | None = None,
    spent: SpentQuota | None = None,
) -> ErrorReply:
    return reasons.refusal(
        runtime(LIMITS, CLIENT),
        reason,
        codex=codex,
        transport=transport,
        detail=detail,
        retry_seconds=retry_seconds,
        spent=spent,
    )


def json(data: bytes) -> Any:
    return msgspec.json.decode(data)


def test_the_table_is_whole() -> None:
    assert set(TABLE) | {"draining"} == set(reasons._RULES)
    assert {refusal.value for refusal in AdmissionReason} <= set(TABLE) | {"draining"}


@ROWS
def test_over_http_a_refusal_says_all_that_there_is_to_say(reason: str, row: Row) -> None:
    no = refused(reason, transport=Transport.HTTP)
    status, headers, body = http_form(no, close=True)
    error = json(body)["error"]
    advice = [] if row.retry_after is None else [(b"retry-after", str(row.retry_after).encode())]

    assert status == row.status
    assert headers == [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
        (b"connection", b"close"),
        *advice,
        (b"x-turnlane-refusal", reason.encode()),
    ]
    assert json(body) == {
        "error": {
            "type": row.type,
            "code": row.code,
            "message": no.message,
            "retryable": row.retry_after is not None,
        }
    }
    assert error["message"].startswith(LOCALLY)
    assert all(word in error["message"] for word in row.words)


@ROWS
def test_on_a_websocket_a_refusal_says_the_same(reason: str, row: Row) -> None:
    no = refused(reason)
    _, _, body = http_form(no, close=False)
    advice = {} if row.retry_after is None else {"retry-after": str(row.retry_after)}

    assert json(frame_form(no)) == {
        "type": "error",
        "status": row.status,
        "error": json(body)["error"],
        "headers": {**advice, "x-turnlane-refusal": reason},
    }


@both
@ROWS
def test_codex_is_told_a_final_no_in_the_only_form_whose_words_it_shows(
    reason: str, row: Row, transport: Transport
) -> None:
    plain = refused(reason, transport=transport)
    told = refused(reason, codex=True, transport=transport)

    if (reason, transport) == ("accounts_spent", "http"):
        assert told == plain
    elif row.final:
        assert (told.status, told.type) == (400, "invalid_request_error")
        assert (told.code, told.retry_after) == ("invalid_prompt", None)
    elif reason != "workflow_concurrency_exhausted":
        assert told == plain
    assert (told.message, told.reason) == (plain.message, reason)
    assert json(frame_form(told))["headers"]["x-turnlane-refusal"] == reason
    assert (b"x-turnlane-refusal", reason.encode()) in http_form(told, close=False)[1]


def test_a_full_workflow_is_what_codex_waits_for_longest() -> None:
    over_http = refused("workflow_concurrency_exhausted", codex=True, transport=Transport.HTTP)
    on_a_websocket = refused(
        "workflow_concurrency_exhausted", codex=True, transport=Transport.WEBSOCKET
    )

    assert (over_http.status, over_http.code) == (503, "queue_capacity_exceeded")
    assert (on_a_websocket.status, on_a_websocket.code) == (429, "queue_capacity_exceeded")
    assert over_http.retry_after == on_a_websocket.retry_after == 5


BUDGETS = pytest.mark.parametrize(
    "reason", ["workflow_sends_exhausted", "workflow_children_exhausted"]
)


@both
@BUDGETS
@pytest.mark.parametrize("codex", [False, True])
@pytest.mark.parametrize(("seconds", "advice"), [(0.0, 1), (0.2, 1), (30.1, 31), (75.0, 75)])
def test_a_budget_that_comes_back_soon_can_be_waited_for(
    reason: str, codex: bool, seconds: float, advice: int, transport: Transport
) -> None:
    no = refused(reason, codex=codex, transport=transport, retry_seconds=seconds)

    assert (no.status, no.code) == (429, "workflow_budget_exhausted")
    assert no.retry_after == advice
    assert no.error["retryable"] is True


@both
@BUDGETS
def test_a_budget_that_comes_back_late_is_final(reason: str, transport: Transport) -> None:
    plain = refused(reason, transport=transport, retry_seconds=75.1)
    told = refused(reason, codex=True, transport=transport, retry_seconds=75.1)

    assert (plain.status, plain.code) == (429, "workflow_budget_exhausted")
    assert (told.status, told.code) == (400, "invalid_prompt")
    assert plain.retry_after is told.retry_after is None


RESET = SpentQuota(resets_at=1_800_003_600.5, plan_type="plus")


@both
@pytest.mark.parametrize("codex", [False, True])
def test_quota_that_comes_back_soon_can_be_waited_for(codex: bool, transport: Transport) -> None:
    no = refused(
        "accounts_spent", codex=codex, transport=transport, retry_seconds=74.2, spent=RESET
    )

    # Codex gives a 429 with this code up at once, whatever its advice.
    assert no.status == (503 if codex and transport is Transport.HTTP else 429)
    assert (no.code, no.retry_after) == ("usage_limit_reached", 75)
    assert "2027-01-15 09:00:00 UTC" in no.message


@both
@pytest.mark.parametrize("codex", [False, True])
def test_quota_that_comes_back_late_is_said_with_its_time(
    codex: bool, transport: Transport
) -> None:
    no = refused(
        "accounts_spent", codex=codex, transport=transport, retry_seconds=3600.5, spent=RESET
    )

    in_words = codex and transport is Transport.WEBSOCKET
    assert (no.status, no.code) == (
        (400, "invalid_prompt") if in_words else (429, "usage_limit_reached")
    )
    assert no.retry_after is None
    assert no.error["resets_at"] == 1_800_003_601
    assert no.error["plan_type"] == "plus"


@both
@pytest.mark.parametrize("codex", [False, True])
@pytest.mark.parametrize(("seconds", "advice"), [(0.2, 1), (74.2, 75), (75.1, 76)])
def test_accounts_that_are_withheld_say_until_when(
    codex: bool, seconds: float, advice: int, transport: Transport
) -> None:
    no = refused("accounts_withheld", codex=codex, transport=transport, retry_seconds=seconds)

    final = codex and seconds > 75
    assert (no.status, no.retry_after) == ((400, None) if final else (503, advice))


@pytest.mark.parametrize("codex", [False, True])
def test_an_unknown_response_is_never_disguised(codex: bool) -> None:
    frame = json(frame_form(refused("previous_response_not_found", codex=codex, detail="resp_9")))

    assert frame["status"] == 400
    assert frame["error"]["code"] == "previous_response_not_found"
    assert "resp_9" in frame["error"]["message"]
    assert frame["headers"] == {"x-turnlane-refusal": "previous_response_not_found"}


def test_a_detail_may_hold_anything_and_its_length_is_bounded() -> None:
    message = refused("bad_request", detail="{turns} {0} %s " + "x" * 10**6).message

    assert message.startswith(LOCALLY + "{turns} {0} %s xxx")
    assert len(message) < 1000


@both
async def test_once_the_next_process_serves_it_is_worth_asking_at_once(
    transport: Transport, autojump_clock: MockClock
) -> None:
    draining = runtime()
    draining.admission.close_door(10.0, succeeded=True)

    assert reasons.refusal(draining, "draining", codex=True, transport=transport).retry_after == 1


@both
@pytest.mark.parametrize(
    ("after", "seconds"), [(0.0, 12), (0.5, 12), (3.2, 9), (9.9, 3), (10.0, 2), (60.0, 2)]
)
async def test_a_drain_is_over_two_seconds_after_its_end(
    after: float, seconds: int, transport: Transport, autojump_clock: MockClock
) -> None:
    draining = runtime()
    draining.admission.close_door(10.0)
    await trio.sleep(after)
    no = reasons.refusal(draining, "draining", codex=True, transport=transport)

    assert (no.status, no.type, no.code) == (503, "server_error", "server_busy")
    assert no.retry_after == seconds
    assert json(frame_form(no))["headers"] == {
        "retry-after": str(seconds),
        "x-turnlane-refusal": "draining",
    }
