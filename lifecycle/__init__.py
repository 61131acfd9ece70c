"""Lifecycle: admission of turns. Stdlib and trio only; knows no HTTP, account or config file."""

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
from lifecycle.leases import Admission, AdmissionStatistics, Lease
from lifecycle.ledger import Granted, Ledger, Waiting
from lifecycle.limits import Limits, Overlap, WorkflowLimits
from lifecycle.memory import MemoryGate, Reservation
from lifecycle.scope import Cause, TurnScope
from lifecycle.workflows import Workflows

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
