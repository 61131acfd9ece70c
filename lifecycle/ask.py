"""Ask: who wishes to run a turn, reduced to what admission needs to know."""

from dataclasses import dataclass
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
