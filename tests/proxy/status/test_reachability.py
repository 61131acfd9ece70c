"""Whether an upstream answers, and what its clock says."""

from __future__ import annotations

import pytest

from proxy.status.external_checks import reach
from proxy.status.finding import Reached
from tests.testkit.listeners import answering, closed_port

NOW = 1_800_000_000.0  # Fri, 15 Jan 2027 08:00:00 GMT


def reached(head: bytes) -> Reached:
    with answering(head=head) as port:
        return reach(f"http://127.0.0.1:{port}/v1", lambda: NOW)


@pytest.mark.parametrize("status", [b"200 OK", b"401 Unauthorized", b"404 Not Found"])
def test_any_answer_counts(status: bytes) -> None:
    found = reached(b"HTTP/1.1 " + status + b"\r\n")

    assert (found.problem, found.clock_off_seconds) == (None, None)
    assert found.seconds > 0


@pytest.mark.parametrize(
    ("date", "off"),
    [
        (b"Fri, 15 Jan 2027 08:00:00 GMT", 0.0),
        (b"Fri, 15 Jan 2027 07:58:00 GMT", 120.0),
        (b"Fri, 15 Jan 2027 09:00:00 GMT", -3600.0),
        (b"Fri, 15 Jan 2027 08:00:00 -0000", 0.0),
        (b"yesterday", None),
        (b"Fri, 15 Jan 99999 08:00:00 GMT", None),
    ],
)
def test_the_clocks_are_compared_where_the_upstream_says_the_time(
    date: bytes, off: float | None
) -> None:
    found = reached(b"HTTP/1.1 200 OK\r\ndate: " + date + b"\r\n")

    assert found.clock_off_seconds == off


@pytest.mark.parametrize("url", ["http://127.0.0.1:{port}", "http://[x", "no url"])
def test_who_does_not_answer_is_a_problem(url: str) -> None:
    assert reach(url.format(port=closed_port())).problem
