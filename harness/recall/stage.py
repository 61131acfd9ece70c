"""Hold a wave until all its sessions have arrived and the conductor lets it go.

Theory of operation
-------------------
The upstream calls `wait_opened` for each session of a wave; the conductor calls `wait_full`, looks
at what the proxy says while all of them are held, and calls `open`. A session that gives up calls
`leave`, so that the others do not wait for it. A fan-out has no waves: its turns are told one by
one to go on (`family`).
"""

from collections import defaultdict
from collections.abc import Iterable

import trio

from harness.recall.family import FanOutFamily


class Stage:
    def __init__(self, members: Iterable[str]) -> None:
        self._members = set(members)
        self._arrived = defaultdict[int, set[str]](set)
        self._opened = defaultdict[int, trio.Event](trio.Event)
        self._changed = trio.Condition()
        self.family = FanOutFamily()

    @property
    def members(self) -> int:
        return len(self._members)

    def arrived(self, wave: int) -> int:
        return len(self._arrived[wave])

    async def wait_opened(self, wave: int, member: str) -> None:
        """Arrive, and wait until the wave is let go."""
        self._arrived[wave].add(member)
        await self._notify()
        await self._opened[wave].wait()

    async def wait_full(self, wave: int) -> None:
        """Wait until every session that has not left has arrived."""
        async with self._changed:
            while not self._members <= self._arrived[wave]:
                await self._changed.wait()

    def open(self, wave: int) -> None:
        self._opened[wave].set()

    async def leave(self, member: str) -> None:
        self._members.discard(member)
        await self._notify()

    async def _notify(self) -> None:
        async with self._changed:
            self._changed.notify_all()
