"""An append-only list whose readers can wait, within a bound, for what they need to see."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

import trio

T = TypeVar("T")


class Log(Generic[T]):
    """What happened, in order; when an entry changes in place, `changed` is called."""

    def __init__(self) -> None:
        self.entries: list[T] = []
        self._news = trio.Event()

    def __len__(self) -> int:
        return len(self.entries)

    def append(self, entry: T) -> None:
        self.entries.append(entry)
        self.changed()

    def changed(self) -> None:
        self._news.set()
        self._news = trio.Event()

    async def wait(self, fits: Callable[[T], bool], *, since: int = 0, seconds: float = 20) -> T:
        """The first entry from index `since` on that fits; an AssertionError when none comes."""
        with trio.move_on_after(seconds):
            await trio.lowlevel.checkpoint()
            while True:
                for entry in self.entries[since:]:
                    if fits(entry):
                        return entry
                await self._news.wait()
        raise AssertionError(f"not seen within {seconds} s; last of all: {self.entries[-5:]}")

    async def wait_length(self, length: int, *, seconds: float = 20) -> T:
        """Until there are so many entries; the last of them."""
        with trio.move_on_after(seconds):
            await trio.lowlevel.checkpoint()
            while len(self.entries) < length:
                await self._news.wait()
            return self.entries[length - 1]
        raise AssertionError(f"{len(self.entries)} of {length} entries within {seconds} s")
