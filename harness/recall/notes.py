"""Notes: what the clients of a run have seen so far."""

from collections.abc import Callable
from dataclasses import dataclass, field

from harness.recall.watch import Seen


@dataclass(slots=True, kw_only=True, eq=False)
class Notes:
    progress: Callable[[], None] = lambda: None
    """Called after each request."""
    seen: list[Seen] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    def add(self, seen: Seen) -> None:
        self.seen.append(seen)
        self.progress()
