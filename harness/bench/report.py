"""Figures of a bench, pure: medians, spreads, ratios within one run, and what may be compared."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from rich.table import Table

FLOOR = "floor"
OURS = "turnlane"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One load on one target."""

    cpu_ms: float
    first_ms: float
    delay_p99_ms: float | None
    rss_mb: float


CellFigures = Mapping[str, Mapping[str, Sequence[Sample]]]
"""Cell -> target -> its samples."""


class Incomparable(Exception):  # noqa: N818
    """Two runs that were not made on the same machine."""


def summary(samples: Sequence[Sample]) -> dict[str, float | None]:
    cpu = [sample.cpu_ms for sample in samples]
    delays = [sample.delay_p99_ms for sample in samples if sample.delay_p99_ms is not None]
    return {
        "cpu_ms": median(cpu),
        "cpu_ms_least": min(cpu),
        "cpu_ms_most": max(cpu),
        "first_ms": median(sample.first_ms for sample in samples),
        "delay_p99_ms": median(delays) if delays else None,
        "rss_mb": max(sample.rss_mb for sample in samples),
    }


def document(machine: str, figures: CellFigures) -> dict[str, Any]:
    cells = {
        cell: {target: summary(samples) for target, samples in targets.items()}
        for cell, targets in figures.items()
    }
    return {"machine": machine, "cells": cells}


def table(found: Mapping[str, Any]) -> Table:
    """CPU a turn, its spread, and how often the floor's and each peer's; latencies and memory."""
    shown = Table(title=found["machine"])
    for heading in ("cell", "target", "CPU ms a turn", "least-most", "x floor"):
        shown.add_column(heading)
    for heading in ("turnlane is x of it", "first event ms", "delay p99 ms", "RSS MB"):
        shown.add_column(heading)
    for cell, targets in found["cells"].items():
        for target, row in targets.items():
            shown.add_row(
                cell,
                target,
                f"{row['cpu_ms']:.2f}",
                f"{row['cpu_ms_least']:.2f}-{row['cpu_ms_most']:.2f}",
                _ratio(row, targets.get(FLOOR)),
                "" if target == OURS else _ratio(targets.get(OURS), row),
                f"{row['first_ms']:.1f}",
                "" if row["delay_p99_ms"] is None else f"{row['delay_p99_ms']:.1f}",
                f"{row['rss_mb']:.0f}",
            )
    return shown


def compared(before: Mapping[str, Any], now: Mapping[str, Any]) -> Table:
    """Return how each of turnlane's figures, as a ratio to the floor of its own run, has moved.

    Raises Incomparable.
    """
    if before["machine"] != now["machine"]:
        raise Incomparable(f"{before['machine']} is not {now['machine']}")
    shown = Table(title="turnlane, x floor")
    for heading in ("cell", "before", "now"):
        shown.add_column(heading)
    for cell, targets in now["cells"].items():
        earlier = before["cells"].get(cell, {})
        was = _ratio(earlier.get(OURS), earlier.get(FLOOR))
        shown.add_row(cell, was, _ratio(targets.get(OURS), targets.get(FLOOR)))
    return shown


def _ratio(row: Mapping[str, Any] | None, other: Mapping[str, Any] | None) -> str:
    if row is None or other is None or not other["cpu_ms"]:
        return "-"
    return f"{row['cpu_ms'] / other['cpu_ms']:.2f}"
