"""What clients are told when turnlane itself refuses: plain ones and Codex, on both transports."""

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
FIGURES = figures(LIMITS, CLIENT)
LOCALLY = "turnlane refused this locally and asked no provider: "
RESET = SpentQuota(resets_at=1_800_003_600.5, plan_type="plus")

BUSY = (
    Reason.TURNS_AT_CAPACITY,
    Reason.LANES_AT_CAPACITY,
    Reason.LANE_BUSY,
    Reason.MEMORY_AT_CAPACITY,
    Reason.WEBSOCKETS_AT_CAPACITY,
)
BUDGETS = (Reason.WORKFLOW_SENDS_EXHAUSTED, Reason.WORKFLOW_CHILDREN_EXHAUSTED)
FINAL = (
    Reason.DISPLACED,
    *BUDGETS,
    Reason.ACCOUNTS_SPENT,
    Reason.ACCOUNTS_WITHHELD,
    Reason.TOO_LARGE,
    Reason.UNSUPPORTED_ENCODING,
    Reason.UNSUPPORTED_STREAM_ID,
    Reason.UNSUPPORTED_FRAME,
    Reason.BAD_REQUEST,
)
"""These cannot come true within 75 s, as long as nothing says that they lift."""

both = pytest.mark.parametrize("transport", TRANSPORTS)
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
def test_each_reason_of_admission_is_a_reason(reason: AdmissionReason) -> None:
    refused = by_admission(AdmissionRefused(reason, 2.5))

    assert (refused.reason.value, refused.retry_seconds) == (reason.value, 2.5)


@both
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


@both
@anyone
@each
def test_whatever_means_later_says_when(reason: Reason, codex: bool, transport: Transport) -> None:
    no = told(reason, codex=codex, transport=transport, retry_seconds=0.2)

    if no.status in (429, 503):
        assert no.retry_after is not None
        assert no.retry_after >= 1


@both
@each
def test_codex_is_told_a_final_no_in_the_only_form_whose_words_it_shows(
    reason: Reason, transport: Transport
) -> None:
    plain = told(reason, transport=transport)
    no = told(reason, codex=True, transport=transport)

    if reason in FINAL and (reason, transport) != (Reason.ACCOUNTS_SPENT, Transport.HTTP):
        assert (no.status, no.type) == (400, "invalid_request_error")
        assert (no.code, no.retry_after) == ("invalid_prompt", None)
    else:
        assert (no.type, no.code, no.retry_after) == (plain.type, plain.code, plain.retry_after)
    assert (no.message, no.reason) == (plain.message, reason)


# What a client decides by, and what a person reads.


@pytest.mark.parametrize("reason", BUSY)
def test_a_ceiling_that_is_reached_is_a_503_to_try_again_in_2_seconds(reason: Reason) -> None:
    no = told(reason)

    assert (no.status, no.type, no.code) == (503, "server_error", "server_busy")
    assert no.retry_after == 2


@pytest.mark.parametrize(
    ("reason", "status"),
    [
        (Reason.UNAUTHORIZED, 401),
        (Reason.NO_CREDENTIAL, 401),
        (Reason.FOREIGN_ORIGIN, 403),
        (Reason.NOT_FOUND, 404),
        (Reason.METHOD_NOT_ALLOWED, 405),
        (Reason.BODY_TIMEOUT, 408),
        (Reason.TOO_LARGE, 413),
        (Reason.UNSUPPORTED_ENCODING, 415),
        (Reason.UNSUPPORTED_STREAM_ID, 400),
        (Reason.UNSUPPORTED_FRAME, 400),
        (Reason.BAD_REQUEST, 400),
    ],
)
def test_what_is_wrong_with_a_request_is_its_code(reason: Reason, status: int) -> None:
    no = told(reason)

    assert (no.status, no.type) == (status, "invalid_request_error")
    assert (no.code, no.retry_after) == (reason.value, None)


def test_too_many_tasks_are_waited_for_longer() -> None:
    no = told(Reason.WORKFLOW_TRACKING_EXHAUSTED)

    assert (no.status, no.code, no.retry_after) == (503, "server_busy", 5)


def test_a_turn_that_was_continued_elsewhere_is_a_conflict() -> None:
    no = error_reply(Displaced(), Audience(codex=False, transport=Transport.HTTP), FIGURES)

    assert (no.status, no.code, no.retry_after) == (409, "continued_elsewhere", None)
    assert no.reason is Reason.DISPLACED


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        (Reason.TURNS_AT_CAPACITY, ("all 11 turns", "when a stream ends")),
        (Reason.LANES_AT_CAPACITY, ("all 7 lanes", "3 of them", "running turn ends")),
        (Reason.LANE_BUSY, ("1 at once", "within 1.5 s", "when that turn ends")),
        (Reason.MEMORY_AT_CAPACITY, ("the 5 MiB", "as turns end")),
        (Reason.WEBSOCKETS_AT_CAPACITY, ("all 13 WebSockets", "when a client closes")),
        (Reason.WORKFLOW_CONCURRENCY_EXHAUSTED, ("6 turns at once", "2 of them kept")),
        (Reason.WORKFLOW_SENDS_EXHAUSTED, ("19 by sub-agents, 23 in all, in 1.5 min",)),
        (Reason.WORKFLOW_CHILDREN_EXHAUSTED, ("17 different sub-agents in 1.5 min", "may go on")),
        (Reason.WORKFLOW_TRACKING_EXHAUSTED, ("23 tasks", "within its budget")),
        (Reason.ACCOUNTS_SPENT, ("the detail", "none of them said when")),
        (Reason.ACCOUNTS_WITHHELD, ("no account can serve", "the detail")),
        (Reason.UNAUTHORIZED, ("the detail",)),
        (Reason.NO_CREDENTIAL, ("no credential for a provider", "no account")),
        (Reason.BODY_TIMEOUT, ("silent for 4 s", "after 9 s")),
        (Reason.TOO_LARGE, ("larger than 3 MiB",)),
        (Reason.PREVIOUS_RESPONSE_NOT_FOUND, ("response the detail is not known", "whole input")),
    ],
)
def test_a_message_names_the_number_and_what_frees_it(
    reason: Reason, words: tuple[str, ...]
) -> None:
    message = told(reason).message

    assert [word for word in words if word not in message] == []


def test_after_a_provider_was_asked_the_message_says_so() -> None:
    message = told(Reason.ACCOUNTS_WITHHELD, asked=True).message

    assert message.startswith("turnlane refused this locally, after what providers said: ")


def test_a_full_workflow_is_what_codex_waits_for_longest() -> None:
    reason = Reason.WORKFLOW_CONCURRENCY_EXHAUSTED
    over_http = told(reason, codex=True, transport=Transport.HTTP)
    on_a_websocket = told(reason, codex=True, transport=Transport.WEBSOCKET)

    assert (over_http.status, over_http.code) == (503, "queue_capacity_exceeded")
    assert (on_a_websocket.status, on_a_websocket.code) == (429, "queue_capacity_exceeded")
    assert over_http.retry_after == on_a_websocket.retry_after == 5


budgets = pytest.mark.parametrize("reason", BUDGETS)


@both
@budgets
@anyone
@pytest.mark.parametrize(("seconds", "advice"), [(0.0, 1), (0.2, 1), (30.1, 31), (75.0, 75)])
def test_a_budget_that_comes_back_soon_can_be_waited_for(
    reason: Reason, codex: bool, seconds: float, advice: int, transport: Transport
) -> None:
    no = told(reason, codex=codex, transport=transport, retry_seconds=seconds)

    assert (no.status, no.code) == (429, "workflow_budget_exhausted")
    assert no.retry_after == advice
    assert no.error["retryable"] is True


@both
@budgets
def test_a_budget_that_comes_back_late_is_final(reason: Reason, transport: Transport) -> None:
    plain = told(reason, transport=transport, retry_seconds=75.1)
    no = told(reason, codex=True, transport=transport, retry_seconds=75.1)

    assert (plain.status, plain.code) == (429, "workflow_budget_exhausted")
    assert (no.status, no.code) == (400, "invalid_prompt")
    assert plain.retry_after is no.retry_after is None


@both
@anyone
def test_quota_that_comes_back_soon_can_be_waited_for(codex: bool, transport: Transport) -> None:
    no = told(
        Reason.ACCOUNTS_SPENT, codex=codex, transport=transport, retry_seconds=74.2, spent=RESET
    )

    # Codex gives a 429 with this code up at once, whatever its advice.
    assert no.status == (503 if codex and transport is Transport.HTTP else 429)
    assert (no.code, no.retry_after) == ("usage_limit_reached", 75)
    assert "2027-01-15 09:00:00 UTC" in no.message


@both
@anyone
def test_quota_that_comes_back_late_is_said_with_its_time(
    codex: bool, transport: Transport
) -> None:
    no = told(
        Reason.ACCOUNTS_SPENT, codex=codex, transport=transport, retry_seconds=3600.5, spent=RESET
    )

    in_words = codex and transport is Transport.WEBSOCKET
    assert (no.status, no.code) == (
        (400, "invalid_prompt") if in_words else (429, "usage_limit_reached")
    )
    assert no.retry_after is None
    assert no.error["resets_at"] == 1_800_003_601
    assert no.error["plan_type"] == "plus"


@both
@anyone
@pytest.mark.parametrize(("seconds", "advice"), [(0.2, 1), (74.2, 75), (75.1, 76)])
def test_accounts_that_are_withheld_say_until_when(
    codex: bool, seconds: float, advice: int, transport: Transport
) -> None:
    no = told(Reason.ACCOUNTS_WITHHELD, codex=codex, transport=transport, retry_seconds=seconds)

    final = codex and seconds > 75
    assert (no.status, no.retry_after) == ((400, None) if final else (503, advice))


@pytest.mark.parametrize("codex", [False, True])
def test_an_unknown_response_is_never_disguised(codex: bool) -> None:
    reason = Reason.PREVIOUS_RESPONSE_NOT_FOUND
    frame = json(frame_form(told(reason, codex=codex, detail="resp_9")))

    assert frame["status"] == 400
    assert frame["error"]["code"] == "previous_response_not_found"
    assert "resp_9" in frame["error"]["message"]
    assert frame["headers"] == {"x-turnlane-refusal": "previous_response_not_found"}


def test_a_detail_may_hold_anything_and_its_length_is_bounded() -> None:
    message = told(Reason.BAD_REQUEST, detail="{turns} {0} %s " + "x" * 10**6).message

    assert message.startswith(LOCALLY + "{turns} {0} %s xxx")
    assert len(message) < 1000


@both
@anyone
@pytest.mark.parametrize(("seconds", "advice"), [(0.0, 1), (11.5, 12), (602.0, 602)])
def test_a_drain_is_waited_for_however_long_it_lasts(
    seconds: float, advice: int, codex: bool, transport: Transport
) -> None:
    no = told(Reason.DRAINING, codex=codex, transport=transport, retry_seconds=seconds)

    assert (no.status, no.type, no.code) == (503, "server_error", "server_busy")
    assert no.retry_after == advice
