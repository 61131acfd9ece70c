"""What a record says in one word: how a turn ended, and the way it came."""

from enum import StrEnum


class Transport(StrEnum):
    """The way a request came: a turn by the first two, an operator's command by the third."""

    HTTP = "http"
    WEBSOCKET = "websocket"
    CONTROL = "control"


class Outcome(StrEnum):
    """How a turn ended; the last three are what an operator did to a workflow or an account."""

    COMPLETED = "completed"
    FAILED = "failed"
    INCOMPLETE = "incomplete"
    REFUSED = "refused"
    UPSTREAM_REFUSED = "upstream_refused"
    UPSTREAM_FAILED = "upstream_failed"
    CUT = "cut"
    INTERRUPTED = "interrupted"
    REPLACED = "replaced"
    DISPLACED = "displaced"
    CLIENT_GONE = "client_gone"
    CLIENT_STALLED = "client_stalled"
    SHUTDOWN = "shutdown"
    BROKEN = "broken"
    LISTED = "listed"
    CLEARED = "cleared"
    CHANGED = "changed"
