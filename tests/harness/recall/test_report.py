"""The table and the document say the same, and say what is only shown."""

from dataclasses import replace
from io import StringIO

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from harness.recall.faults import RecallTransport
from harness.recall.judge import judge
from harness.recall.proxy import Resident
from harness.recall.report import document, figures, percentile, table
from tests.harness.recall.kit import small_plan, sound

PLAN = small_plan(transport=RecallTransport.WS, sessions=12, rounds=2, beyond=2)


@given(st.lists(st.floats(0, 100), min_size=1), st.integers(1, 100))
def test_a_percentile_is_a_value_that_so_many_do_not_exceed(
    values: list[float], percent: int
) -> None:
    found = percentile(values, percent)
    within = sum(value <= found for value in values)

    assert found in values
    assert 100 * within >= percent * len(values)


def test_the_percentiles_of_nothing_and_of_everything() -> None:
    assert percentile([], 95) == 0.0
    assert percentile([3.0, 1.0, 2.0], 100) == 3.0
    assert percentile([3.0, 1.0, 2.0], 50) == 2.0


def printed(flawed: bool) -> str:
    evidence = sound(PLAN, upstream_problems=("input [bold]differs",) if flawed else ())
    text = StringIO()
    Console(file=text, width=120).print(table(evidence, judge(evidence)))
    return text.getvalue()


def test_a_table_ends_with_the_verdict() -> None:
    assert printed(flawed=False).rstrip().endswith("PASS")
    assert printed(flawed=True).rstrip().endswith("FAIL")
    assert "input [bold]differs" in printed(flawed=True)
    assert "12 sessions, 2 rounds, ws, seed 1" in printed(flawed=False)


@pytest.mark.parametrize("flawed", [False, True])
def test_the_document_can_be_written_and_carries_every_check(flawed: bool) -> None:
    evidence = sound(PLAN, client_problems=("left over",) if flawed else ())
    checks = judge(evidence)
    read = msgspec.json.decode(msgspec.json.encode(document(evidence, checks)))

    assert read["verdict"] == ("fail" if flawed else "pass")
    assert [check["says"] for check in read["checks"]] == [check.says for check in checks]
    assert (read["sessions"], read["rounds"], read["transport"]) == (12, 2, "ws")
    assert read["after"]["lanes"]["peak_retained_bytes"] == 384
    assert sum(read["faults"].values()) >= 12


def test_a_fan_out_is_counted_and_timed() -> None:
    evidence = sound(small_plan(fan_out=True))
    assert evidence.fan_out is not None
    untimed = replace(evidence, fan_out=replace(evidence.fan_out, interactive_seconds=None))

    assert figures(evidence)["fan_out_refusals"] == 6
    assert figures(evidence)["fan_out_interactive_seconds"] == 0.02
    assert "fan_out_interactive_seconds" not in figures(untimed)
    assert "fan_out_refusals" not in figures(sound(PLAN))


def test_resident_memory_is_shown_when_it_is_known() -> None:
    known = replace(sound(PLAN), resident=Resident(now=2**20, peak=2**21))

    assert "resident_mib" not in figures(sound(PLAN))
    assert figures(known)["resident_mib"] == 1.0
    assert figures(known)["resident_peak_mib"] == 2.0
