"""The whole of it against the proxy in a child process: many sessions on the real clock."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from harness.recall.__main__ import main

pytestmark = pytest.mark.load

TRANSPORTS = ("ws", "http")


def recall(report: Path, line: str) -> tuple[int, dict[str, Any]]:
    """Exit code and report of a run."""
    code = main([*line.split(), "--json", str(report)])
    document: dict[str, Any] = msgspec.json.decode(report.read_bytes())
    return code, document


def failed(document: dict[str, Any]) -> set[str]:
    return {check["says"] for check in document["checks"] if check["verdict"] != "pass"}


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize(("sessions", "peak_bytes"), [(32, 1024), (64, 2048)])
def test_every_session_gets_exactly_its_own(
    sessions: int, peak_bytes: int, transport: str, tmp_path: Path
) -> None:
    line = f"--sessions {sessions} --rounds 3 --transport {transport}"
    code, document = recall(tmp_path / "report.json", line)

    assert (code, failed(document)) == (0, set())
    assert document["figures"]["peak_retained_bytes"] == peak_bytes
    assert document["figures"]["fan_out_refusals"] == 7
    assert document["after"]["workflows"]["active"] == 0


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_proxy_that_leaks_is_found_out(transport: str, tmp_path: Path) -> None:
    line = f"--sessions 32 --rounds 3 --transport {transport} --inject leak"
    code, document = recall(tmp_path / "report.json", line)

    assert code == 1
    assert "everything is zero afterwards" in failed(document)


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_two_calls_that_are_swapped_are_found_out(transport: str, tmp_path: Path) -> None:
    line = f"--sessions 32 --rounds 3 --transport {transport} --inject swap"
    code, document = recall(tmp_path / "report.json", line)

    assert code == 1
    assert failed(document) == {
        "no call lost, doubled or foreign",
        "nothing crossed, nothing out of order",
        "the upstream saw the whole input",
    }
