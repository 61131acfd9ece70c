"""Body: one request body, fed by the task that owns `receive`, read by the turn under its lease.

ASGI reports a hang-up after the body, so the body has to be taken in to see one, also while
admission has not decided: the first 64 KiB freely, more only if the memory gate has room for the
announced length.
"""

from typing import Final

import trio

from lifecycle import Lease, MemoryGate, Reservation
from proxy.refusal import Reason, Refused

EARLY_BYTES: Final = 64 * 1024
"""Taken in before admission without asking the memory gate."""


class Body:
    """One request body of at most `limit_bytes`. Its lease starts with `reserved_bytes`, the
    announced length; what arrives beyond is added to it."""

    def __init__(
        self, limit_bytes: int, reserved_bytes: int, memory: MemoryGate | None = None
    ) -> None:
        self._memory = memory
        self._early: Reservation | None = None
        self._limit = limit_bytes
        self._reserved = reserved_bytes
        self._chunks: list[bytes] = []
        self._size = 0
        self._lease: Lease | None = None
        self._discarding = False
        self._bad: Refused | None = None
        self._decided = trio.Event()
        self._news = trio.lowlevel.ParkingLot()
        self.complete = trio.Event()
        """Set when the client has sent all of it, whether it was kept or dropped."""

    async def feed(self, chunk: bytes, *, more: bool) -> None:
        """Take in a part, called by the owner of `receive`. Waits while more than may be held early
        has come and admission has not decided: then TCP makes the client wait."""
        if not self._discarding and self._bad is None:
            self._chunks.append(chunk)
            self._size += len(chunk)
            if self._lease is None and not self._may_be_early():
                await self._decided.wait()
            self._account()
        if not more:
            self.complete.set()
        self._news.unpark_all()

    def discard(self) -> None:
        """Drop what has come and what is still to come."""
        self._discarding = True
        self._chunks = []
        self._decide()

    async def read(self, lease: Lease, silent_seconds: float, seconds: float) -> bytes | Refused:
        """Return the whole body, charged to the lease, or the refusal of one that is too large, was
        silent for `silent_seconds`, or is not complete after `seconds`."""
        self._lease = lease
        self._decide()
        self._account()
        with trio.move_on_after(seconds):
            while not self.complete.is_set() and self._bad is None:
                with trio.move_on_after(silent_seconds) as silence:
                    await self._news.park()
                if silence.cancelled_caught:
                    break
        if self._bad is not None or not self.complete.is_set():
            bad = self._bad or Refused(reason=Reason.BODY_TIMEOUT)
            self.discard()
            return bad
        whole = self._chunks[0] if len(self._chunks) == 1 else b"".join(self._chunks)
        self._chunks = []
        return whole

    def _may_be_early(self) -> bool:
        """Return whether what has come so far may be held before the decision."""
        if self._size <= EARLY_BYTES:
            return True
        if self._early is None and self._memory is not None and self._size <= self._reserved:
            self._early = self._memory.reserve(self._reserved)
        return self._early is not None and self._size <= self._reserved

    def _decide(self) -> None:
        """Give back the early reservation: from here on the lease pays, or nothing is held."""
        self._decided.set()
        if self._early is not None:
            early, self._early = self._early, None
            early.give_back()

    def _account(self) -> None:
        """Charge what has arrived beyond what was announced."""
        if self._size > self._limit:
            self._bad = Refused(reason=Reason.TOO_LARGE)
        elif self._lease is not None and self._size > self._reserved:
            if self._lease.grow(self._size - self._reserved):
                self._reserved = self._size
            else:
                self._bad = Refused(reason=Reason.MEMORY_AT_CAPACITY)
        if self._bad is not None:
            self._chunks = []
