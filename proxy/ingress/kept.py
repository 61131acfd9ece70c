"""Kept: the transcript of one WebSocket, held against the memory gate, which may evict it."""

from lifecycle import MemoryGate, Reservation
from proxy.transcript import Transcript


class Kept:
    """Evicted or never stored, `transcript` is None; then its client sends everything again."""

    def __init__(self, memory: MemoryGate) -> None:
        self._memory = memory
        self._reservation: Reservation | None = None
        self.transcript: Transcript | None = None

    def remember(self, transcript: Transcript) -> None:
        """Keep this one instead, if there is room for it."""
        self.forget()
        self._reservation = self._memory.reserve(transcript.size, self.forget)
        if self._reservation is not None:
            self.transcript = transcript

    def forget(self) -> None:
        self.transcript = None
        if self._reservation is not None:
            reservation, self._reservation = self._reservation, None
            reservation.give_back()
