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
from lifecycle.leases import Admission, AdmissionStatistics, Lease, Turn, open_turn
from lifecycle.ledger import Granted, Ledger, Waiting
from lifecycle.limits import Limits, Overlap, WorkflowLimits
from lifecycle.memory import MemoryGate, Reservation
from lifecycle.workflows import Workflows

__all__ = [
    "LANE_ID_BYTES",
    "Admission",
    "AdmissionReason",
    "AdmissionRefused",
    "AdmissionStatistics",
    "Ask",
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
    "Turn",
    "Waiting",
    "WorkflowLimits",
    "WorkflowStatistics",
    "Workflows",
    "open_turn",
]
