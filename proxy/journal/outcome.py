"""How a turn ended, in one word."""

from enum import StrEnum


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
