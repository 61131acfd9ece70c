"""Limits: every number that admission decides by, with the reason for its default."""

from dataclasses import dataclass, field, fields
from enum import StrEnum


class Overlap(StrEnum):
    """What happens when a lane is still held after the settling time."""

    REFUSE = "refuse"
    REPLACE = "replace"
    SHARE = "share"


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkflowLimits:
    """The ceilings of one root. Raises ValueError for a number that cannot work."""

    turns: int = 8
    """Turns at once: a parent and the largest fan-out that still leaves a provider in peace."""
    kept: int = 1
    """Of those, kept for the interactive turn: the conversation is never starved by its workers."""
    children: int = 64
    """Distinct children in the window: a fan-out that nests without end stops here."""
    sends: int = 256
    """Physical sends in the window that workers may use up: every child four times."""
    sends_kept: int = 256
    """As many more, for interactive turns alone: workers cannot use up the conversation's."""
    window_seconds: float = 600.0
    """What was spent is forgotten after this time: long enough to stop a loop, not a day's work."""
    slots: int = 12
    """Parts of the window that are forgotten at once: 50 s, so that waiting for one is worth it."""
    roots: int = 512
    """Roots tracked at once: twice the turns of the process."""
    threads: int = 4096
    """Threads whose root is remembered, so that grandchildren pay into the same budget."""
    hold_seconds: float = 0.0
    """How long a worker refused for concurrency may wait in line instead; 0: it does not."""
    line: int = 16
    """Workers in the line of one root: a second and a third fan-out of its size."""

    def __post_init__(self) -> None:
        if not 0 <= self.kept < self.turns:
            raise ValueError("kept must leave at least one turn for workers")
        for name in ("children", "sends", "slots", "roots", "threads"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1")
        for name in ("sends_kept", "hold_seconds", "line"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} cannot be negative")
        if self.window_seconds <= 0:
            raise ValueError("window_seconds must be above 0")

    @property
    def slot_seconds(self) -> float:
        return self.window_seconds / self.slots

    def slot(self, now: float) -> int:
        """The part of the window that `now` falls into, counted from the beginning of time."""
        return int(now // self.slot_seconds)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The ceilings of one process. Raises ValueError for a number that cannot work."""

    turns: int = 256
    """Turns at once: four times the lanes, so that anonymous turns cannot starve named ones."""
    lanes: int = 64
    """Distinct active lanes: a large fan-out and its neighbours on a desk, not a data centre."""
    lanes_kept: int = 8
    """Of those, kept for interactive turns: workers hold at most `lanes - lanes_kept`."""
    websockets: int = 256
    """Open WebSockets: an idle agent keeps one open for each of its threads."""
    memory_bytes: int = 256 * 2**20
    """Bodies, unfinished messages and transcripts together."""
    workflow: WorkflowLimits = field(default_factory=WorkflowLimits)
    overlap: Overlap = Overlap.REFUSE
    """Codex never has two turns of one thread outstanding, so a second one is a mistake."""
    settle_seconds: float = 1.0
    """An interrupted client reconnects within milliseconds; its old turn ends within this time."""
    client_gone_seconds: float = 10.0
    """A holder whose client has drained nothing for so long may be replaced by its successor."""

    def __post_init__(self) -> None:
        for each in fields(self):
            value = getattr(self, each.name)
            if isinstance(value, int | float) and value < 0:
                raise ValueError(f"{each.name} cannot be negative")
        if self.turns < 1 or self.lanes < 1 or self.memory_bytes < 1:
            raise ValueError("turns, lanes and memory_bytes must be at least 1")
        if self.lanes_kept >= self.lanes:
            raise ValueError("lanes_kept must leave at least one lane for workers")
