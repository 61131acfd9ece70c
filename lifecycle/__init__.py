"""Lifecycle: admission of turns. Stdlib and trio only; knows no HTTP, account or config file."""

from lifecycle.admission import Admission, AdmissionStatistics, Lease
from lifecycle.ask import LANE_ID_BYTES, Ask, LaneId, LeaseId, PrincipalId, RootId, ThreadId
from lifecycle.errors import AdmissionRefused, Refusal, Refused
from lifecycle.ledger import Granted, Ledger, Waiting
from lifecycle.limits import Limits, Overlap, WorkflowLimits
from lifecycle.memory import MemoryGate, Reservation
from lifecycle.turn import Turn, open_turn
from lifecycle.workflow import WorkflowStatistics
from lifecycle.workflows import Workflows

__all__ = [
    "LANE_ID_BYTES",
    "Admission",
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
    "Refused",
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
