"""Lifecycle: admission of turns. Stdlib and trio only; knows no HTTP, account or config file.

The names of `leases` and `scope`, which need trio, are imported when they are first used: a command
that only reads the limits of a configuration need not wait for trio.
"""

from typing import TYPE_CHECKING

from lifecycle.ask import (
    LANE_ID_BYTES,
    AdmissionReason,
    AdmissionRefused,
    Ask,
    LaneId,
    LeaseId,
    PrincipalId,
    Refusal,
    RootId,
    ThreadId,
)
from lifecycle.budget import WorkflowStatistics
from lifecycle.ledger import Granted, Ledger, Waiting
from lifecycle.limits import Limits, Overlap, WorkflowLimits
from lifecycle.memory import MemoryGate, Reservation
from lifecycle.workflows import Workflows

if TYPE_CHECKING:
    from lifecycle.leases import Admission, AdmissionStatistics, Lease
    from lifecycle.scope import Cause, TurnScope
else:

    def __getattr__(name: str) -> object:
        """Look a name of `leases` or `scope` up (PEP 562). Raises AttributeError."""
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from lifecycle import leases, scope

        return getattr(scope if name in {"Cause", "TurnScope"} else leases, name)


__all__ = [
    "LANE_ID_BYTES",
    "Admission",
    "AdmissionReason",
    "AdmissionRefused",
    "AdmissionStatistics",
    "Ask",
    "Cause",
    "Granted",
    "LaneId",
    "Lease",
    "LeaseId",
    "Ledger",
    "Limits",
    "MemoryGate",
    "Overlap",
    "PrincipalId",
    "Refusal",
    "Reservation",
    "RootId",
    "ThreadId",
    "TurnScope",
    "Waiting",
    "WorkflowLimits",
    "WorkflowStatistics",
    "Workflows",
]
