"""What the stand-in counts: lanes as a proxy keeps them, or, when told to leak, as it must not."""

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import msgspec

from tests.harness.recall.kit import status

PARENT = "x-codex-parent-thread-id"


class NoLaneError(Exception):
    """All lanes are held."""


class NoTurnError(Exception):
    """All turns of a root are held."""


@dataclass(slots=True, kw_only=True, eq=False)
class Books:
    limit: int = 64
    leaks: bool = False
    turns: int = 8
    workers: int = 7
    roots_by: str = "session-id"
    """The header that names the root; a sub-agent's parent would be the wrong one."""
    headers_free: bool = False
    """Whether a turn is given back with its first event, as it must not."""
    held: list[str] = field(default_factory=list)
    sockets: int = 0
    peak: int = 0
    admitted: int = 0
    refused: int = 0
    roots: dict[str, list[bool]] = field(default_factory=dict)
    """The turns of each root: whether a worker has it."""
    refused_of_roots: int = 0

    @contextmanager
    def turn(self, headers: Mapping[str, str]) -> Iterator[Callable[[], None]]:
        """A turn of its root; yields what gives it back early."""
        worker = PARENT in headers
        turns = self.roots.setdefault(headers.get(self.roots_by, headers["session-id"]), [])
        if len(turns) >= self.turns or (worker and sum(turns) >= self.workers):
            self.refused_of_roots += 1
            raise NoTurnError
        turns.append(worker)
        with ExitStack() as stack:
            stack.callback(turns.remove, worker)
            yield stack.close if self.headers_free else lambda: None

    @contextmanager
    def lane(self, name: str) -> Iterator[None]:
        if len(self.held) >= self.limit:
            self.refused += 1
            raise NoLaneError
        self.held.append(name)
        self.admitted += 1
        self.peak = max(self.peak, len(self.held))
        leaks = self.leaks and self.admitted == 3
        try:
            yield
        finally:
            if not leaks:
                self.held.remove(name)

    @contextmanager
    def socket(self) -> Iterator[None]:
        self.sockets += 1
        try:
            yield
        finally:
            self.sockets -= 1

    def document(self) -> dict[str, Any]:
        """What /status answers."""
        told = status(
            active=len(self.held),
            peak=self.peak,
            admitted=self.admitted,
            refused=self.refused,
            roots=(len(self.roots), sum(map(bool, self.roots.values())), self.refused_of_roots),
        )
        document: dict[str, Any] = msgspec.to_builtins(told)
        document["pid"] = os.getpid()
        document["websockets"]["active"] = self.sockets
        return document
