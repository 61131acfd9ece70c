"""PURE Check: one sentence that is true of a sound proxy, and whether it was."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

SHOWN = 5
"""How many offenders a check names; the others are counted."""


class Verdict(StrEnum):
    PASS = "pass"
    FAIL = "fail"
    NOT_JUDGED = "not judged"


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    says: str
    verdict: Verdict
    detail: str = ""


def clean(says: str, offenders: Iterable[str], good: str = "") -> Check:
    """Passes when there is no offender; `good` is the detail it then has."""
    found = list(offenders)
    if not found:
        return Check(says=says, verdict=Verdict.PASS, detail=good)
    more = f"; and {len(found) - SHOWN} more" if len(found) > SHOWN else ""
    return Check(says=says, verdict=Verdict.FAIL, detail="; ".join(found[:SHOWN]) + more)


def passed(checks: Iterable[Check]) -> bool:
    return all(check.verdict is not Verdict.FAIL for check in checks)
