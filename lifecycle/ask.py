"""Ask: a wish to run a turn, reduced to what admission needs to know.

AdmissionReason: why admission says no; Refusal is that answer as a value, AdmissionRefused raises
it.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import NewType

PrincipalId = NewType("PrincipalId", str)
LaneId = NewType("LaneId", str)
RootId = NewType("RootId", str)
ThreadId = NewType("ThreadId", str)
LeaseId = NewType("LeaseId", int)

LANE_ID_BYTES = 32
"""What one active lane retains: its id, 32 ASCII hex characters, whatever the client sent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """A wish to run one turn.

    `lane` is None for an anonymous turn, which overlaps with anything. `root` is whose budget pays
    as far as the request can tell, or None. `parent` is the thread whose root a child joins, if
    that is remembered; None for a root thread, which joins nobody. `counted`: its `thread` counts
    as a child of the root. `body_bytes` is what the turn already holds or has announced.

    Raises ValueError for a lane id of another size, for fewer bytes than none, and for a child
    without a thread.
    """

    principal: PrincipalId
    lane: LaneId | None = None
    root: RootId | None = None
    thread: ThreadId | None = None
    parent: ThreadId | None = None
    worker: bool = False
    counted: bool = False
    body_bytes: int = 0

    def __post_init__(self) -> None:
        if self.lane is not None and len(self.lane) != LANE_ID_BYTES:
            raise ValueError(f"a lane id has {LANE_ID_BYTES} characters, not {len(self.lane)}")
        if self.body_bytes < 0:
            raise ValueError("body_bytes cannot be negative")
        if self.counted and self.thread is None:
            raise ValueError("a child that counts has a thread")


class AdmissionReason(StrEnum):
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
class Refusal:
    """Why an ask is refused.

    `retry_seconds` is how long from now it will be: until a workflow's window has rolled far
    enough, or until the next process admits. None where it lifts as others end, whenever that is.
    """

    reason: AdmissionReason
    retry_seconds: float | None = None


class AdmissionRefused(Exception):  # noqa: N818  a refusal is an answer, not an error
    """Admission said no. Nothing is held. `retry_seconds` is that of Refusal."""

    def __init__(self, reason: AdmissionReason, retry_seconds: float | None = None) -> None:
        super().__init__(reason.value)
        self.reason = reason
        self.retry_seconds = retry_seconds
