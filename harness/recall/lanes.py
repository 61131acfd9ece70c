"""PURE the checks of what /status accounts for: peaks, the lane too many, and zero afterwards."""

from collections.abc import Iterator

from harness.recall.evidence import LANE_BYTES, Check, CheckVerdict, RunEvidence, clean
from harness.recall.probe import Status, Unreadable
from harness.recall.watch import SeenAnswer


def lane_checks(evidence: RunEvidence) -> tuple[Check, ...]:
    sessions = len(evidence.plan.waves)
    peak = f"{sessions} lanes, {LANE_BYTES * sessions} bytes"
    checks = [if_alone(evidence, clean(f"peak is exactly {peak}", _wrong_peaks(evidence), peak))]
    if evidence.plan.beyond:
        says = f"lane {sessions + 1} is refused, and nothing kept for it"
        checks.append(clean(says, _wrong_beyond(evidence)))
    if evidence.plan.beyond or evidence.plan.fan_out:
        checks.append(clean("refused turns never reach the upstream", _sent_all_the_same(evidence)))
    checks.append(if_alone(evidence, clean("as many refusals as planned", _refusals(evidence))))
    checks.append(if_alone(evidence, clean("everything is zero afterwards", _held(evidence))))
    return tuple(checks)


def if_alone(evidence: RunEvidence, check: Check) -> Check:
    """Judge a count that others can move only if it is right, or if this run was alone."""
    if evidence.alone or check.verdict is CheckVerdict.PASS:
        return check
    return Check(says=check.says, verdict=CheckVerdict.NOT_JUDGED, detail="others used this proxy")


def _wrong_peaks(evidence: RunEvidence) -> Iterator[str]:
    sessions = len(evidence.plan.waves)
    expected = (sessions, LANE_BYTES * sessions)
    for sample in evidence.waves:
        if isinstance(sample.status, Unreadable):
            yield f"wave {sample.wave}: {sample.status.reason}"
            continue
        lanes, before = sample.status.lanes, evidence.before.lanes
        seen = (lanes.active - before.active, lanes.retained_bytes - before.retained_bytes)
        if seen != expected:
            yield f"wave {sample.wave}: {seen[0]} lanes, {seen[1]} bytes"
        if sample.arrived != sessions:
            yield f"wave {sample.wave}: {sample.arrived} of {sessions} sessions arrived"
    if not evidence.waves:
        yield "no wave was complete"
    after = _before_fan_out(evidence).lanes
    ours = evidence.before.lanes.peak <= sessions
    if ours and (after.peak, after.peak_retained_bytes) != expected:
        yield f"/status says {after.peak} lanes, {after.peak_retained_bytes} bytes"


def _before_fan_out(evidence: RunEvidence) -> Status:
    """Return the status before the fan-out, which may hold more lanes than there are sessions."""
    if evidence.fan_out is not None and isinstance(evidence.fan_out.before, Status):
        return evidence.fan_out.before
    return evidence.after


def _wrong_beyond(evidence: RunEvidence) -> Iterator[str]:
    seen = {seen.exchange.tag: seen for seen in evidence.seen}
    for planned in evidence.plan.refused():
        if planned.exchange.tag not in seen:
            yield f"{planned.session.name} did not ask"
        else:
            yield from _wrong_refusal(seen[planned.exchange.tag])
    if isinstance(evidence.beyond, Status):
        lanes, before = evidence.beyond.lanes, evidence.before.lanes
        bytes_seen = lanes.retained_bytes - before.retained_bytes
        if bytes_seen != LANE_BYTES * len(evidence.plan.waves):
            yield f"{bytes_seen} bytes are retained after it"
        if lanes.refused - before.refused < len(evidence.plan.beyond):
            yield f"{lanes.refused - before.refused} refusals were counted"
    else:
        yield "/status could not be read after it"


def _wrong_refusal(seen: SeenAnswer) -> Iterator[str]:
    refused = seen.refused
    if refused is None:
        yield f"{seen.session} {seen.end}"
        return
    said = (refused.status, refused.code, refused.reason)
    if said != (503, "server_busy", "lanes_at_capacity"):
        yield f"{seen.session} was told {said}"
    if not refused.says_when:
        yield f"{seen.session} was not told when to retry"


def _sent_all_the_same(evidence: RunEvidence) -> Iterator[str]:
    names = {planned.exchange.tag: planned.session.name for planned in evidence.plan.refused()}
    names |= {seen.exchange.tag: seen.session for seen in evidence.seen if seen.refused_here}
    for tag, name in names.items():
        if sends := evidence.sends.get(tag, 0):
            yield f"{name} was sent {sends} times"


def _refusals(evidence: RunEvidence) -> Iterator[str]:
    """Yield where the counts differ from what the plan asks for."""
    before, after = evidence.before.refusals, evidence.after.refusals
    planned = {"lanes_at_capacity": len(evidence.plan.beyond)}
    if evidence.plan.fan_out is not None:
        planned["workflow_concurrency_exhausted"] = evidence.plan.fan_out.refusals
    for reason in sorted({*after, *planned}):
        count = after.get(reason, 0) - before.get(reason, 0)
        if count != planned.get(reason, 0):
            yield f"{count} {reason}"


def _held(evidence: RunEvidence) -> Iterator[str]:
    before = evidence.before.held
    for name, held in evidence.after.held.items():
        if held > before[name]:
            yield f"{held - before[name]} {name}"
