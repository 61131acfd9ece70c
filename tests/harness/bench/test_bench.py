"""The bench: the figures of one run become ratios, and its traffic is what it says it is."""

from __future__ import annotations

from collections.abc import Sequence
from io import StringIO
from pathlib import Path

import msgspec
import pytest
from rich.console import Console
from rich.table import Table

from harness.bench.decisions import BUSY, Cost, full_ledger, top
from harness.bench.decisions import table as table_of_costs
from harness.bench.load import body_of, frame
from harness.bench.memory import MemoryFigure
from harness.bench.memory import table as table_of_memory
from harness.bench.profile import part_of
from harness.bench.report import Incomparable, Sample, compared, document, summary, table
from harness.bench.targets import opencodex, other
from harness.bench.upstream import chunk, events_of_a_turn
from lifecycle import Granted, Limits, Refusal, WorkflowLimits


def sample(cpu_ms: float, delay: float | None = None) -> Sample:
    return Sample(cpu_ms=cpu_ms, first_ms=2.0, delay_p99_ms=delay, rss_mb=10.0)


def samples(*cpu_ms: float) -> Sequence[Sample]:
    return [sample(each) for each in cpu_ms]


def shown(made: Table) -> str:
    text = StringIO()
    Console(file=text, width=150).print(made)
    return text.getvalue()


def test_a_summary_is_a_median_with_its_spread() -> None:
    found = summary([*samples(3, 1), sample(2, 7.0)])

    assert (found["cpu_ms"], found["cpu_ms_least"], found["cpu_ms_most"]) == (2, 1, 3)
    assert found["delay_p99_ms"] == 7.0


def test_ratios_are_to_the_floor_and_to_each_peer_of_the_same_cell() -> None:
    figures = {"burst": {"floor": samples(1), "turnlane": samples(3), "peer": samples(12)}}
    text = shown(table(document("here", figures)))

    assert "3.00" in text
    assert "12.00" in text
    assert "0.25" in text


def test_two_runs_are_compared_by_their_ratios() -> None:
    slow = document("here", {"burst": {"floor": samples(2), "turnlane": samples(8)}})
    fast = document("here", {"burst": {"floor": samples(1), "turnlane": samples(3)}})
    text = shown(compared(slow, fast))

    assert "4.00" in text
    assert "3.00" in text


def test_a_cell_that_was_not_run_before_has_no_ratio() -> None:
    now = document("here", {"burst": {"floor": samples(1), "turnlane": samples(3)}})

    assert "-" in shown(compared({"machine": "here", "cells": {}}, now))


def test_figures_of_two_machines_are_not_compared() -> None:
    with pytest.raises(Incomparable):
        compared(document("here", {}), document("there", {}))


def test_a_turn_is_created_told_and_completed() -> None:
    events = [msgspec.json.decode(event) for event in events_of_a_turn(5)]

    assert [event["type"].removeprefix("response.") for event in events] == [
        "created",
        "output_item.added",
        *["output_text.delta"] * 5,
        "output_item.done",
        "completed",
    ]
    assert [event["sequence_number"] for event in events] == list(range(9))


def test_an_event_is_a_chunk() -> None:
    assert chunk(b"{}") == b"17\r\nevent: bench\ndata: {}\n\n\r\n"


@pytest.mark.parametrize("size_kb", [30, 600])
def test_a_body_is_about_as_large_as_it_is_to_be(size_kb: int) -> None:
    assert 0.8 < len(body_of("bench", size_kb)) / 1000 / size_kb < 1.25


@pytest.mark.parametrize(
    ("size", "head"), [(5, b"\x81\x85"), (200, b"\x81\xfe\x00\xc8"), (70_000, b"\x81\xff")]
)
def test_a_frame_is_masked_with_zeros(size: int, head: bytes) -> None:
    made = frame(b"x" * size)

    assert made.startswith(head)
    assert made.endswith(bytes(4) + b"x" * size)


@pytest.mark.parametrize(
    ("file", "name", "part"),
    [
        ("~", "<built-in method posix.write>", "kernel"),
        ("~", "<built-in method builtins.len>", "built in"),
        ("/lib/python3/site-packages/trio/_core/_run.py", "unrolled_run", "trio"),
        ("/somewhere/proxy/relay.py", "run", "proxy"),
        ("/lib/python3/contextlib.py", "__exit__", "standard library"),
    ],
)
def test_time_is_counted_to_what_it_was_spent_in(file: str, name: str, part: str) -> None:
    assert part_of(file, name) == part


@pytest.mark.parametrize("unspent", [0, 1])
def test_decisions_are_timed_on_books_as_full_as_they_may_be(unspent: int) -> None:
    workflow = WorkflowLimits(roots=BUSY + 5, sends=2, sends_kept=9)
    ledger = full_ledger(Limits(workflow=workflow), unspent)
    before = ledger.statistics()
    answer = ledger.ask(top(1000), 2.0)

    assert (before.lanes.active, before.turns.active) == (BUSY, BUSY)
    assert before.workflows.tracked == workflow.roots
    assert isinstance(answer, Granted if unspent else Refusal)


def test_the_cost_of_a_decision_is_shown_in_microseconds() -> None:
    assert "12.3" in shown(table_of_costs({"a lease": Cost(12.34, 9.8)}))


def test_memory_is_shown_with_and_without_what_the_clients_sent() -> None:
    text = shown(table_of_memory([MemoryFigure("transcripts", 128, 149.4, 37.0)]))

    assert "149" in text
    assert "112" in text


def test_a_peer_that_is_not_installed_is_none(tmp_path: Path) -> None:
    assert opencodex(tmp_path) is None


def test_any_peer_is_started_by_its_command_line(tmp_path: Path) -> None:
    peer = other("mine", "mine --port {port} --to http://127.0.0.1:{upstream} --in {home}")

    assert list(peer.command(1, 2, tmp_path)) == [
        *("mine", "--port", "1", "--to", "http://127.0.0.1:2", "--in", str(tmp_path)),
    ]
