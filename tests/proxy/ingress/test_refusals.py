"""Refusals by turnlane: what Codex and other clients are told, on both transports."""

from typing import Any

import msgspec
import pytest

from lifecycle import AdmissionReason, AdmissionRefused, Limits, WorkflowLimits
from proxy.config.settings import ClientSettings
from proxy.ingress.refusals import Audience, error_reply, figures
from proxy.ingress.replies import ErrorReply, frame_form, http_form
from proxy.journal.record import Transport
from proxy.refusal import Reason, Refused, SpentQuota, by_admission
from proxy.turn.ended import Displaced
from tests.testkit.snapshots import Snapshot

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
FIGURES = figures(LIMITS, CLIENT)
LOCALLY = "turnlane refused this locally and asked no provider: "
RESET = SpentQuota(resets_at=1_800_003_600.5, plan_type="plus")

TYPES = {
    "server_busy": "server_error",
    "queue_capacity_exceeded": "rate_limit_error",
    "workflow_budget_exhausted": "rate_limit_error",
    "usage_limit_reached": "usage_limit_reached",
}
"""Type of each code; any other is an `invalid_request_error`."""

each = pytest.mark.parametrize("reason", Reason)
anyone = pytest.mark.parametrize("codex", [False, True], ids=["plain", "codex"])


def told(
    reason: Reason,
    *,
    codex: bool = False,
    transport: Transport = Transport.WEBSOCKET,
    detail: str = "the detail",
    retry_seconds: float | None = None,
    spent: SpentQuota | None = None,
    asked: bool = False,
) -> ErrorReply:
    refused = Refused(
        reason=reason, detail=detail, retry_seconds=retry_seconds, spent=spent, asked=asked
    )
    return error_reply(refused, Audience(codex=codex, transport=transport), FIGURES)


def json(data: bytes) -> Any:
    return msgspec.json.decode(data)


# Every reason.


@pytest.mark.parametrize("reason", AdmissionReason)
def test_every_reason_of_admission_is_a_reason(reason: AdmissionReason) -> None:
    refused = by_admission(AdmissionRefused(reason, 2.5))

    assert (refused.reason.value, refused.retry_seconds) == (reason.value, 2.5)


@anyone
@each
def test_both_forms_of_a_refusal_say_the_same(
    reason: Reason, codex: bool, transport: Transport
) -> None:
    no = told(reason, codex=codex, transport=transport)
    status, headers, body = http_form(no, close=True)
    frame = json(frame_form(no))
    named = {name.decode(): value.decode() for name, value in headers}
    framing = {
        "content-type": "application/json",
        "content-length": str(len(body)),
        "connection": "close",
    }

    assert frame == {
        "type": "error",
        "status": status,
        "error": json(body)["error"],
        "headers": {name: value for name, value in named.items() if name not in framing},
    }
    assert framing.items() <= named.items()
    assert named["x-turnlane-refusal"] == reason.value
    assert frame["error"]["message"].startswith(LOCALLY)
    assert frame["error"]["retryable"] is ("retry-after" in named)
    assert named.keys() - framing.keys() <= {"x-turnlane-refusal", "retry-after"}


# What a client decides by: status, code and advice, as SPEC lists them.

Row = tuple[Reason, float | None, str, str, str]
"""Reason, seconds until it lifts; for other clients, for Codex over HTTP, and on a WebSocket."""


def row(
    reason: Reason,
    seconds: float | None,
    plain: str,
    over_http: str | None = None,
    on_a_websocket: str | None = None,
) -> Row:
    """Without words of its own, Codex is told the same as others."""
    return (reason, seconds, plain, over_http or plain, on_a_websocket or plain)


FINAL = "400 invalid_prompt -"
BUSY = "503 server_busy 2"
SPENT = Reason.ACCOUNTS_SPENT
WITHHELD = Reason.ACCOUNTS_WITHHELD
BUDGETS = (Reason.WORKFLOW_SENDS_EXHAUSTED, Reason.WORKFLOW_CHILDREN_EXHAUSTED)
QUEUE = "queue_capacity_exceeded 5"
BUDGET = "429 workflow_budget_exhausted"
LIMIT = "usage_limit_reached"
TABLE = [
    row(Reason.TURNS_AT_CAPACITY, None, BUSY),
    row(Reason.LANES_AT_CAPACITY, None, BUSY),
    row(Reason.LANE_BUSY, None, BUSY),
    row(Reason.MEMORY_AT_CAPACITY, None, BUSY),
    row(Reason.WEBSOCKETS_AT_CAPACITY, None, BUSY),
    row(Reason.DRAINING, 0.0, "503 server_busy 1"),
    row(Reason.DRAINING, 11.5, "503 server_busy 12"),
    row(Reason.DRAINING, 602.0, "503 server_busy 602"),
    row(
        Reason.WORKFLOW_CONCURRENCY_EXHAUSTED, None, f"429 {QUEUE}", f"503 {QUEUE}", f"429 {QUEUE}"
    ),
    *(row(reason, 0.0, f"{BUDGET} 1") for reason in BUDGETS),
    *(row(reason, 30.1, f"{BUDGET} 31") for reason in BUDGETS),
    *(row(reason, 75.0, f"{BUDGET} 75") for reason in BUDGETS),
    *(row(reason, 75.1, f"{BUDGET} -", FINAL, FINAL) for reason in BUDGETS),
    *(row(reason, None, f"{BUDGET} -", FINAL, FINAL) for reason in BUDGETS),
    row(Reason.WORKFLOW_TRACKING_EXHAUSTED, None, "503 server_busy 5"),
    # Codex gives up at once on a 429 with this code, whatever its advice.
    row(SPENT, 74.2, f"429 {LIMIT} 75", f"503 {LIMIT} 75", f"429 {LIMIT} 75"),
    row(SPENT, 3600.5, f"429 {LIMIT} -", f"429 {LIMIT} -", FINAL),
    row(SPENT, None, f"429 {LIMIT} -", f"429 {LIMIT} -", FINAL),
    row(WITHHELD, 0.2, "503 server_busy 1"),
    row(WITHHELD, 74.2, "503 server_busy 75"),
    row(WITHHELD, 75.1, "503 server_busy 76", FINAL, FINAL),
    row(Reason.UNAUTHORIZED, None, "401 unauthorized -"),
    row(Reason.NO_CREDENTIAL, None, "401 no_credential -"),
    row(Reason.FOREIGN_ORIGIN, None, "403 foreign_origin -"),
    row(Reason.NOT_FOUND, None, "404 not_found -"),
    row(Reason.METHOD_NOT_ALLOWED, None, "405 method_not_allowed -"),
    row(Reason.BODY_TIMEOUT, None, "408 body_timeout -"),
    row(Reason.DISPLACED, None, "409 continued_elsewhere -", FINAL, FINAL),
    row(Reason.TOO_LARGE, None, "413 too_large -", FINAL, FINAL),
    row(Reason.UNSUPPORTED_ENCODING, None, "415 unsupported_encoding -", FINAL, FINAL),
    row(Reason.UNSUPPORTED_STREAM_ID, None, "400 unsupported_stream_id -", FINAL, FINAL),
    row(Reason.UNSUPPORTED_FRAME, None, "400 unsupported_frame -", FINAL, FINAL),
    row(Reason.BAD_REQUEST, None, "400 bad_request -", FINAL, FINAL),
    # Codex answers this code by sending everything again, so it is never disguised.
    row(Reason.PREVIOUS_RESPONSE_NOT_FOUND, None, "400 previous_response_not_found -"),
]


def test_the_table_has_every_reason() -> None:
    assert {reason for reason, *_ in TABLE} == set(Reason)


@pytest.mark.parametrize(("reason", "seconds", "plain", "over_http", "on_a_websocket"), TABLE)
def test_status_code_and_advice_are_those_of_the_contract(
    reason: Reason, seconds: float | None, plain: str, over_http: str, on_a_websocket: str
) -> None:
    for codex, transport, expected in (
        (False, Transport.HTTP, plain),
        (False, Transport.WEBSOCKET, plain),
        (True, Transport.HTTP, over_http),
        (True, Transport.WEBSOCKET, on_a_websocket),
    ):
        no = told(reason, codex=codex, transport=transport, retry_seconds=seconds)
        assert f"{no.status} {no.code} {no.retry_after or '-'}" == expected
        assert no.type == TYPES.get(no.code, "invalid_request_error")
        assert no.error["retryable"] is (no.retry_after is not None)
        assert (no.message, no.reason) == (told(reason).message, reason)


def test_a_displaced_turn_is_refused_as_such() -> None:
    displaced = error_reply(Displaced(), Audience(codex=False, transport=Transport.HTTP), FIGURES)

    assert displaced == told(Reason.DISPLACED, transport=Transport.HTTP, detail="")


def test_spent_accounts_come_with_the_time_of_their_reset() -> None:
    no = told(SPENT, retry_seconds=3600.5, spent=RESET)

    assert (no.error["resets_at"], no.error["plan_type"]) == (1_800_003_601, "plus")
    assert "2027-01-15 09:00:00 UTC" in no.message


# What a person reads.


def test_every_message_names_its_numbers_and_what_helps(snapshot: Snapshot) -> None:
    snapshot("refusals", *(f"{x}: {told(x).message.removeprefix(LOCALLY)}" for x in Reason))


@pytest.mark.parametrize(
    ("reason", "numbers"),
    [
        (Reason.TURNS_AT_CAPACITY, ("11",)),
        (Reason.LANES_AT_CAPACITY, ("7", "3")),
        (Reason.LANE_BUSY, ("1", "1.5 s")),
        (Reason.MEMORY_AT_CAPACITY, ("5 MiB",)),
        (Reason.WEBSOCKETS_AT_CAPACITY, ("13",)),
        (Reason.WORKFLOW_CONCURRENCY_EXHAUSTED, ("6", "2")),
        (Reason.WORKFLOW_SENDS_EXHAUSTED, ("19", "23", "1.5 min")),
        (Reason.WORKFLOW_CHILDREN_EXHAUSTED, ("17", "1.5 min")),
        (Reason.WORKFLOW_TRACKING_EXHAUSTED, ("23",)),
        (Reason.BODY_TIMEOUT, ("4 s", "9 s")),
        (Reason.TOO_LARGE, ("3 MiB",)),
    ],
)
def test_a_message_names_the_limits_that_are_configured(
    reason: Reason, numbers: tuple[str, ...]
) -> None:
    message = told(reason).message

    assert [number for number in numbers if f" {number}" not in message.replace("(", " ")] == []


def test_after_a_provider_was_asked_the_message_says_so(snapshot: Snapshot) -> None:
    spent = told(Reason.ACCOUNTS_SPENT, asked=True, spent=RESET, retry_seconds=3600.5).message

    assert not spent.startswith(LOCALLY)
    snapshot("refusals", told(Reason.ACCOUNTS_WITHHELD, asked=True).message, spent)


def test_a_detail_may_hold_anything_and_its_length_is_bounded() -> None:
    message = told(Reason.BAD_REQUEST, detail="{turns} {0} %s " + "x" * 10**6).message

    assert message.startswith(LOCALLY + "{turns} {0} %s xxx")
    assert len(message) < 1000
