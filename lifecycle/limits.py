"""Limits: every number that admission decides by, with the reason for its default."""

from dataclasses import dataclass, fields
from enum import StrEnum


class Overlap(StrEnum):
    """What happens when a lane is still held after the settling time."""

    REFUSE = "refuse"
    REPLACE = "replace"
    SHARE = "share"


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
    overlap: Overlap = Overlap.REFUSE
    """Codex never has two turns of one thread outstanding, so a second one is a mistake."""
    settle_seconds: float = 1.0
    """An interrupted client reconnects within milliseconds; its old turn ends within this time."""
    client_gone_seconds: float = 10.0
    """A holder whose client has drained nothing for so long may be replaced by its successor."""

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, int | float) and value < 0:
                raise ValueError(f"{field.name} cannot be negative")
        if self.turns < 1 or self.lanes < 1 or self.memory_bytes < 1:
            raise ValueError("turns, lanes and memory_bytes must be at least 1")
        if self.lanes_kept >= self.lanes:
            raise ValueError("lanes_kept must leave at least one lane for workers")
