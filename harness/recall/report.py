"""PURE the report of a run: a table for the eye and a JSON document, both from the same checks."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, Final

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from harness.recall.evidence import Check, CheckVerdict, RunEvidence, passed
from harness.recall.faults import End
from harness.recall.watch import SeenAnswer

_STYLES: Final = {
    CheckVerdict.PASS: "green",
    CheckVerdict.FAIL: "bold red",
    CheckVerdict.NOT_JUDGED: "yellow",
}
_PERCENTS = (50, 95, 100)
MIB = 2**20


def percentile(values: Sequence[float], percent: int) -> float:
    """Return the smallest value that `percent` of all values do not exceed; 0 for none."""
    ordered = sorted(values)
    if not ordered:
        return 0.0
    return ordered[max(0, -(-len(ordered) * percent // 100) - 1)]


def document(evidence: RunEvidence, checks: Sequence[Check]) -> dict[str, Any]:
    """Return the run as JSON."""
    plan = evidence.plan
    return {
        "verdict": CheckVerdict.PASS if passed(checks) else CheckVerdict.FAIL,
        "checks": [
            {"says": check.says, "verdict": check.verdict, "detail": check.detail}
            for check in checks
        ],
        "sessions": len(plan.waves),
        "rounds": len(plan.waves[0].turns),
        "transport": plan.transport,
        "seed": plan.seed,
        "seconds": round(evidence.seconds, 3),
        "figures": figures(evidence),
        "faults": fault_counts(evidence),
        "before": evidence.before,
        "after": evidence.after,
    }


def figures(evidence: RunEvidence) -> dict[str, int | float]:
    """Return what is shown and never judged."""
    requests = Counter(seen.end for seen in evidence.seen)
    served = [seen.seconds for seen in evidence.seen if seen.end is End.COMPLETED]
    shown: dict[str, int | float] = {
        "requests": len(evidence.seen),
        "requests_completed": requests[End.COMPLETED],
        "calls": sum(len(seen.call_ids) for seen in evidence.seen),
        "upstream_sends": sum(evidence.sends.values()),
        "upstream_cuts": sum(evidence.cuts.values()),
        "peak_lanes": evidence.after.lanes.peak,
        "peak_retained_bytes": evidence.after.lanes.peak_retained_bytes,
    }
    if evidence.fan_out is not None:
        shown["fan_out_refusals"] = sum(seen.refused_here for seen in _of_workers(evidence))
        if (seconds := evidence.fan_out.interactive_seconds) is not None:
            shown["fan_out_interactive_seconds"] = round(seconds, 3)
    for percent in _PERCENTS:
        shown[f"request_seconds_p{percent}"] = round(percentile(served, percent), 3)
    if evidence.resident is not None:
        shown["resident_mib"] = round(evidence.resident.now / MIB, 1)
        shown["resident_peak_mib"] = round(evidence.resident.peak / MIB, 1)
    return shown


def _of_workers(evidence: RunEvidence) -> Iterator[SeenAnswer]:
    workers = evidence.plan.fan_out.workers if evidence.plan.fan_out is not None else ()
    threads = {session.thread_id for session in workers}
    return (seen for seen in evidence.seen if seen.exchange.thread_id in threads)


def fault_counts(evidence: RunEvidence) -> dict[str, int]:
    """Return how often each fault was met."""
    seen = {seen.exchange.tag for seen in evidence.seen}
    met = [p.fault for p in evidence.plan.exchanges() if p.fault and p.exchange.tag in seen]
    return dict(sorted(Counter(met).items()))


def table(evidence: RunEvidence, checks: Sequence[Check]) -> RenderableType:
    """Return the run as a terminal shows it."""
    plan = evidence.plan
    title = (
        f"turnlane recall: {len(plan.waves)} sessions, {len(plan.waves[0].turns)} rounds, "
        f"{plan.transport}, seed {plan.seed}, {evidence.seconds:.1f} s"
    )
    judged = Table(title=title, title_justify="left")
    judged.add_column("check")
    judged.add_column("verdict", no_wrap=True)
    judged.add_column("detail")
    for check in checks:
        detail = Text(check.detail, overflow="fold")
        judged.add_row(check.says, check.verdict, detail, style=_STYLES[check.verdict])
    shown = Table("figure", "value", title="shown, not judged", title_justify="left")
    met = {f"fault {fault}": count for fault, count in fault_counts(evidence).items()}
    for name, value in {**figures(evidence), **met}.items():
        shown.add_row(name.replace("_", " "), f"{value}")
    verdict = CheckVerdict.PASS if passed(checks) else CheckVerdict.FAIL
    return Group(judged, shown, f"[{_STYLES[verdict]}]{verdict.upper()}[/]")
