"""What the stand-in counts: lanes as a proxy keeps them, or, when told to leak, as it must not."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import msgspec

from tests.harness.kit import status


class NoLaneError(Exception):
    """All lanes are held."""


@dataclass(slots=True, kw_only=True, eq=False)
class Books:
    limit: int = 64
    leaks: bool = False
    held: list[str] = field(default_factory=list)
    sockets: int = 0
    peak: int = 0
    admitted: int = 0
    refused: int = 0

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
            active=len(self.held), peak=self.peak, admitted=self.admitted, refused=self.refused
        )
        document: dict[str, Any] = msgspec.to_builtins(told)
        document["pid"] = os.getpid()
        document["websockets"]["active"] = self.sockets
        return document
