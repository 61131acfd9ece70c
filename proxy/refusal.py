"""Refused: turnlane's own no, as a value; Reason names every one of them."""

from dataclasses import dataclass
from enum import StrEnum

from lifecycle import AdmissionRefused


class Reason(StrEnum):
    """Why turnlane itself refuses. The values travel to clients as `x-turnlane-refusal`.

    Those of `lifecycle.AdmissionReason` come first.
    """

    DRAINING = "draining"
    LANE_BUSY = "lane_busy"
    LANES_AT_CAPACITY = "lanes_at_capacity"
    TURNS_AT_CAPACITY = "turns_at_capacity"
    MEMORY_AT_CAPACITY = "memory_at_capacity"
    WEBSOCKETS_AT_CAPACITY = "websockets_at_capacity"
    WORKFLOW_CONCURRENCY_EXHAUSTED = "workflow_concurrency_exhausted"
    WORKFLOW_CHILDREN_EXHAUSTED = "workflow_children_exhausted"
    WORKFLOW_SENDS_EXHAUSTED = "workflow_sends_exhausted"
    WORKFLOW_TRACKING_EXHAUSTED = "workflow_tracking_exhausted"
    DISPLACED = "displaced"
    ACCOUNTS_SPENT = "accounts_spent"
    ACCOUNTS_WITHHELD = "accounts_withheld"
    UNAUTHORIZED = "unauthorized"
    NO_CREDENTIAL = "no_credential"
    FOREIGN_ORIGIN = "foreign_origin"
    NOT_FOUND = "not_found"
    METHOD_NOT_ALLOWED = "method_not_allowed"
    BODY_TIMEOUT = "body_timeout"
    TOO_LARGE = "too_large"
    UNSUPPORTED_ENCODING = "unsupported_encoding"
    UNSUPPORTED_STREAM_ID = "unsupported_stream_id"
    UNSUPPORTED_FRAME = "unsupported_frame"
    BAD_REQUEST = "bad_request"
    PREVIOUS_RESPONSE_NOT_FOUND = "previous_response_not_found"


@dataclass(frozen=True, slots=True, kw_only=True)
class SpentQuota:
    """No account has quota left; `resets_at` (seconds since the epoch) is when the first has."""

    resets_at: float | None
    plan_type: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """Why turnlane refuses, and what its client is to be told about it.

    `detail` is for the message. `retry_seconds` is how long from now the refusal lasts, where that
    is known. `asked`: a provider was asked before turnlane refused.
    """

    reason: Reason
    detail: str = ""
    retry_seconds: float | None = None
    spent: SpentQuota | None = None
    asked: bool = False


def by_admission(no: AdmissionRefused) -> Refused:
    """Return what admission raised, as a value."""
    return Refused(reason=Reason(no.reason.value), retry_seconds=no.retry_seconds)
