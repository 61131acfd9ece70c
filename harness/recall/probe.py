"""Read /status, and wait until its figures are back where they were."""

from dataclasses import dataclass, field
from http import HTTPStatus

import msgspec
import trio

from harness.recall.line import Address
from harness.wire.client import CutError, fetch

SETTLE_SECONDS = 5.0
"""What a client held is back within one second of its leaving; the rest is for a busy machine."""
ANSWER_SECONDS = 10.0
POLL_SECONDS = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneFigures:
    active: int
    peak: int
    peak_retained_bytes: int
    admitted: int
    refused: int
    retained_bytes: int
    limit: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnFigures:
    active: int
    peak: int
    admitted: int
    refused: int
    limit: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WebSocketFigures:
    active: int
    limit: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryFigures:
    held_bytes: int
    limit_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkflowFigures:
    tracked: int
    active: int
    refused: int
    limit: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """The part of /status that a run is judged by."""

    service: str
    version: str
    pid: int
    lanes: LaneFigures
    turns: TurnFigures
    websockets: WebSocketFigures
    memory: MemoryFigures
    workflows: WorkflowFigures
    refusals: dict[str, int] = field(default_factory=dict)

    @property
    def held(self) -> dict[str, int]:
        """The figures that must be back where they were when nothing runs."""
        return {
            "lanes": self.lanes.active,
            "retained bytes": self.lanes.retained_bytes,
            "turns": self.turns.active,
            "websockets": self.websockets.active,
            "memory bytes": self.memory.held_bytes,
            "workflows": self.workflows.active,
        }


@dataclass(frozen=True, slots=True)
class Unreadable:
    """/status is missing, or does not say what a run is judged by."""

    reason: str


class Probe:
    def __init__(self, address: Address, settle_seconds: float = SETTLE_SECONDS) -> None:
        self._address = address
        self._settle_seconds = settle_seconds

    async def read(self) -> Status | Unreadable:
        try:
            with trio.fail_after(ANSWER_SECONDS):
                address = self._address
                answer = await fetch(address.port, "GET", "/status", host=address.host)
            if answer.status != HTTPStatus.OK:
                return Unreadable(f"/status answers {answer.status}")
            return msgspec.json.decode(answer.body, type=Status)
        except (CutError, trio.TooSlowError, msgspec.DecodeError) as error:
            return Unreadable(f"/status cannot be read: {error}")

    async def wait_back_at(self, before: Status) -> Status | Unreadable:
        """Return the status once no more is held than before, or when the time is over."""
        deadline = trio.current_time() + self._settle_seconds
        while True:
            status = await self.read()
            if isinstance(status, Unreadable) or _is_back(status, before):
                return status
            if trio.current_time() > deadline:
                return status
            await trio.sleep(POLL_SECONDS)


def _is_back(now: Status, before: Status) -> bool:
    return all(now.held[name] <= before.held[name] for name in now.held)
