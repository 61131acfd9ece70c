"""Everything that a run has gathered and is judged by, and the verdicts."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from harness.recall.plan import Plan
from harness.recall.probe import Status, Unreadable
from harness.recall.proxy import Resident
from harness.recall.watch import SeenAnswer

LANE_BYTES = 32
"""What the proxy may retain for one lane."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WaveSample:
    """The status while the upstream held all sessions of a wave."""

    wave: int
    arrived: int
    status: Status | Unreadable


class Moment(StrEnum):
    """The moments at which a fan-out is sampled, in this order."""

    FANNED = "all children have asked"
    JOINED = "the conversation itself has asked"
    PRESSED = "one child has asked again, and a grandchild has asked"
    CHANGED = "as many streams have ended as were refused"


@dataclass(frozen=True, slots=True, kw_only=True)
class FanOutSample:
    """The turns that the upstream held, the turns refused, and the status, at one moment."""

    standing: int
    refused: int
    status: Status | Unreadable


@dataclass(frozen=True, slots=True, kw_only=True)
class FanOutEvidence:
    before: Status | Unreadable
    samples: Mapping[Moment, FanOutSample]
    interactive_seconds: float | None
    """From the request of the conversation's own turn to its arrival at the upstream."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEvidence:
    plan: Plan
    own_child: bool
    before: Status
    after: Status
    waves: tuple[WaveSample, ...]
    beyond: Status | Unreadable | None
    """While all lanes are held, and more lanes have just been asked for."""
    seen: tuple[SeenAnswer, ...]
    client_problems: tuple[str, ...]
    upstream_problems: tuple[str, ...]
    sends: Mapping[str, int]
    cuts: Mapping[str, int]
    seconds: float
    resident: Resident | None = None
    fan_out: FanOutEvidence | None = None

    @property
    def alone(self) -> bool:
        """True if this run alone used the proxy; otherwise its peaks are not judged."""
        admitted = self.after.turns.admitted - self.before.turns.admitted
        idle = self.before.turns.active == 0 and self.before.lanes.active == 0
        return self.own_child or (idle and admitted <= len(self.seen))


SHOWN = 5
"""The number of offenders that a check names; the others are counted."""


class CheckVerdict(StrEnum):
    PASS = "pass"
    FAIL = "fail"
    NOT_JUDGED = "not judged"


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    says: str
    verdict: CheckVerdict
    detail: str = ""


def clean(says: str, offenders: Iterable[str], good: str = "") -> Check:
    """Return a check that passes if there is no offender; `good` is then its detail."""
    found = list(offenders)
    if not found:
        return Check(says=says, verdict=CheckVerdict.PASS, detail=good)
    more = f"; and {len(found) - SHOWN} more" if len(found) > SHOWN else ""
    return Check(says=says, verdict=CheckVerdict.FAIL, detail="; ".join(found[:SHOWN]) + more)


def passed(checks: Iterable[Check]) -> bool:
    return all(check.verdict is not CheckVerdict.FAIL for check in checks)
