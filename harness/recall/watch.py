"""PURE what clients saw: of one request, message by message, and of a whole run."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from harness.recall.calls import OUTPUT_TYPES, Item
from harness.recall.faults import End
from harness.recall.line import LineMessage, LineRefused, StreamEvent
from harness.recall.plan import ScriptedExchange, SessionPlan
from harness.recall.requests import TERMINALS, foreign_secrets

LOCAL_EVENTS = frozenset({"keepalive", "codex.rate_limits", "response.metadata"})
"""The events that a proxy may add; all others must be the upstream's, marked and in order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenAnswer:
    """One request of a client, and what came back."""

    session: str
    exchange: ScriptedExchange
    end: End
    call_ids: tuple[str, ...]
    terminals: tuple[str, ...]
    problems: tuple[str, ...]
    refused: LineRefused | None
    seconds: float

    @property
    def refused_here(self) -> bool:
        """True if turnlane refused it, so that no provider was asked."""
        return self.refused is not None and bool(self.refused.reason)


class Watch:
    def __init__(self, session: SessionPlan, exchange: ScriptedExchange) -> None:
        self.items: list[Item] = []
        self.terminals: list[str] = []
        self.marked = 0
        """The number of the upstream's events that have arrived."""
        self._session = session
        self._exchange = exchange
        self._problems: list[str] = []
        self._refused: LineRefused | None = None

    def note(self, message: LineMessage) -> None:
        if isinstance(message, StreamEvent):
            self._note_event(message)
        elif isinstance(message, LineRefused):
            self._refused = message
            self.terminals.append("error")
        elif self.terminals and not message.clean:
            self._problems.append("the stream was cut after its terminal event")

    def end(self) -> End | None:
        """Return how the request has ended, as far as its own messages say."""
        match self.terminals:
            case []:
                return None
            case ["response.completed", *_]:
                return End.COMPLETED
            case ["response.incomplete", *_]:
                return End.INCOMPLETE
            case ["error", *_]:
                return End.REFUSED
            case _:
                return End.FAILED

    def seen(self, end: End, seconds: float) -> SeenAnswer:
        calls = [item for item in self.items if item.get("type") in OUTPUT_TYPES]
        return SeenAnswer(
            session=self._session.name,
            exchange=self._exchange,
            end=end,
            call_ids=tuple(str(item.get("call_id")) for item in calls),
            terminals=tuple(self.terminals),
            problems=tuple(dict.fromkeys(self._problems)),
            refused=self._refused,
            seconds=seconds,
        )

    def _note_event(self, event: StreamEvent) -> None:
        if foreign_secrets(event.data, self._session.secret):
            self._problems.append("a secret of another session crossed")
        if event.type in LOCAL_EVENTS:
            return
        if self.terminals:
            self._problems.append(f"{event.type} after the terminal event")
        if event.type in TERMINALS:
            self.terminals.append(event.type)
        if event.type == "response.incomplete":
            self._note_incomplete(event)
            return
        self._note_mark(event.fields)
        if event.is_item:
            self.items.append(event.fields["item"])

    def _note_incomplete(self, event: StreamEvent) -> None:
        """The proxy's own answer to an interrupt."""
        details = event.fields.get("response", {}).get("incomplete_details") or {}
        if details.get("reason") != "interrupted":
            self._problems.append("an incomplete response that was not interrupted")

    def _note_mark(self, fields: Mapping[str, Any]) -> None:
        if fields.get("recall") != self._exchange.tag:
            self._problems.append(f"an event of another request: {fields.get('recall')}")
        elif fields.get("sequence_number") != self.marked:
            number = fields.get("sequence_number")
            self._problems.append(f"event {number} came where {self.marked} was next")
            self.marked = number if isinstance(number, int) else self.marked
        self.marked += 1


@dataclass(slots=True, kw_only=True, eq=False)
class Notes:
    progress: Callable[[], None] = lambda: None
    """Called after each request."""
    seen: list[SeenAnswer] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    def add(self, seen: SeenAnswer) -> None:
        self.seen.append(seen)
        self.progress()
