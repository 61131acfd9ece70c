"""MemoryGate: one number for all bytes held for clients, and reservations against it.

Theory of operation
-------------------
A reservation is a number of bytes that a turn, a body or a transcript holds. It is resized
synchronously, and a resize that does not fit changes nothing. Some reservations can be evicted:
their owner gives a function that drops what they stand for (a transcript can be had again from its
client). The gate evicts the least recently touched ones, and only when that makes the asked bytes
fit.
"""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryStatistics:
    held_bytes: int
    limit_bytes: int


class MemoryGate:
    """At most `limit_bytes` are held; pure and synchronous."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit = limit_bytes
        self._held = 0
        self._evictable: dict[Reservation, Callable[[], None]] = {}  # oldest first

    def __repr__(self) -> str:
        return f"<MemoryGate {self._held} of {self._limit} bytes>"

    def reserve(self, size: int, evict: Callable[[], None] | None = None) -> "Reservation | None":
        """Hold `size` bytes, or None when they do not fit."""
        if not self._make_room(size, None):
            return None
        self._held += size
        reservation = Reservation(self, size)
        if evict is not None:
            self._evictable[reservation] = evict
        return reservation

    def fits(self, size: int) -> bool:
        """Whether `reserve(size)` would succeed; changes nothing."""
        evictable = sum(reservation.size for reservation in self._evictable)
        return self._held - evictable + size <= self._limit

    def statistics(self) -> MemoryStatistics:
        return MemoryStatistics(held_bytes=self._held, limit_bytes=self._limit)

    def _make_room(self, extra: int, keep: "Reservation | None") -> bool:
        if self._held + extra <= self._limit:
            return True
        spared = keep.size if keep is not None and keep in self._evictable else 0
        if not self.fits(extra + spared):
            return False
        for reservation, evict in list(self._evictable.items()):
            if self._held + extra <= self._limit:
                break
            if reservation is not keep and reservation in self._evictable:
                evict()  # its owner gives the reservation back, and others of its own if it likes
        return True

    # What follows is for Reservation alone.

    def _resize(self, reservation: "Reservation", size: int) -> bool:
        extra = size - reservation.size
        if extra > 0 and not self._make_room(extra, reservation):
            return False
        self._held += extra
        if reservation in self._evictable:  # touched: now the most recent
            self._evictable[reservation] = self._evictable.pop(reservation)
        return True

    def _forget(self, reservation: "Reservation") -> None:
        self._evictable.pop(reservation, None)
        self._held -= reservation.size


class Reservation:
    """Bytes held against a gate, until `give_back`. Giving back twice raises RuntimeError."""

    __slots__ = ("_gate", "size")

    def __init__(self, gate: MemoryGate, size: int) -> None:
        self._gate: MemoryGate | None = gate
        self.size = size

    def resize(self, size: int) -> bool:
        """Hold `size` bytes instead. False: it does not fit, and nothing has changed."""
        if self._gate is None:
            raise RuntimeError("this reservation was given back")
        if not self._gate._resize(self, size):
            return False
        self.size = size
        return True

    def grow(self, extra: int) -> bool:
        return self.resize(self.size + extra)

    def give_back(self) -> None:
        if self._gate is None:
            raise RuntimeError("this reservation was given back")
        self._gate._forget(self)
        self._gate = None
        self.size = 0
