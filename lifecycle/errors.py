"""Refusal: why admission says no; Refused is that answer, AdmissionRefused carries it out."""

from dataclasses import dataclass
from enum import StrEnum


class Refusal(StrEnum):
    """Why an ask was refused. The values travel to clients as `x-turnlane-refusal`."""

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


@dataclass(frozen=True, slots=True)
class Refused:
    """`retry_seconds`: from now until a workflow's window will have rolled far enough; None where
    the refusal lifts as others end, whenever that is."""

    refusal: Refusal
    retry_seconds: float | None = None


class AdmissionRefused(Exception):  # noqa: N818  a refusal is an answer, not an error
    """Admission said no. Nothing is held. `retry_seconds` is that of Refused."""

    def __init__(self, refusal: Refusal, retry_seconds: float | None = None) -> None:
        super().__init__(refusal.value)
        self.refusal = refusal
        self.retry_seconds = retry_seconds
