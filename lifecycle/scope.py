"""TurnScope: the one thing that cancels a turn, and that says why."""

from enum import StrEnum
from types import TracebackType
from typing import Self

import trio


class Cause(StrEnum):
    """Why a turn was cancelled. DISPLACED: another connection took its lane over. REPLACED: its own
    connection began another turn instead."""

    CLIENT_GONE = "client_gone"
    CLIENT_STALLED = "client_stalled"
    DISPLACED = "displaced"
    INTERRUPTED = "interrupted"
    REPLACED = "replaced"
    SHUTDOWN = "shutdown"


class TurnScope:
    """A cancel scope around a whole turn, its wait for admission included; the first cause counts.

    `cause` stays None where the turn ended by itself, and where a scope around this one was
    cancelled: then the task that serves the connection was, which only its server can explain.
    """

    __slots__ = ("_scope", "cause")

    def __init__(self) -> None:
        self.cause: Cause | None = None
        self._scope = trio.CancelScope()

    def __repr__(self) -> str:
        return f"<TurnScope {self.cause or 'not cancelled'}>"

    def __enter__(self) -> Self:
        self._scope.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool:
        return self._scope.__exit__(kind, error, traceback)

    def cancel(self, cause: Cause) -> None:
        """Cancel the turn, now or as soon as it is entered."""
        if self.cause is None:
            self.cause = cause
            self._scope.cancel()
