"""Where each turn of a fan-out is, and which of them may go on."""

from enum import StrEnum

import trio


class At(StrEnum):
    GOING = "going"
    """It is asking, or its stream is ending."""
    READY = "ready"
    REFUSED = "refused"
    STANDING = "standing"
    """Held by the upstream, its stream begun."""
    SERVED = "served"
    LOST = "lost"


class FanOutFamily:
    """Every member pauses until it is told to go on, or until the fan-out ends."""

    def __init__(self) -> None:
        self._at: dict[str, At] = {}
        self._go: dict[str, trio.Event] = {}
        self._over = trio.Event()
        self._moved = trio.Event()

    def members(self, at: At) -> list[str]:
        return [member for member, seen in self._at.items() if seen is at]

    def move(self, member: str, at: At) -> None:
        self._at[member] = at
        self._moved.set()
        self._moved = trio.Event()

    async def pause(self, member: str, at: At) -> bool:
        """Pause until told to go on. Returns False once the fan-out has ended."""
        if not self._over.is_set():
            self.move(member, at)
            await self._go.setdefault(member, trio.Event()).wait()
        return not self._over.is_set()

    def go_on(self, member: str) -> None:
        self.move(member, At.GOING)
        self._go.pop(member).set()

    async def wait_settled(self) -> None:
        """Wait until no member is going."""
        while self.members(At.GOING):
            await self._moved.wait()

    def end(self) -> None:
        self._over.set()
        for going in self._go.values():
            going.set()

    async def wait_over(self) -> None:
        await self._over.wait()
