"""What answers at an address is known by what it answers."""

from __future__ import annotations

import pytest

from proxy.control.identity import Answered, Answerer, who_answers
from tests.testkit.listeners import HEALTHY, answering, closed_port
from tests.testkit.snapshots import Snapshot

T, X, N = Answerer.TURNLANE, Answerer.OTHER, Answerer.NOBODY


@pytest.mark.parametrize(
    ("body", "by"),
    [
        (HEALTHY, T),
        *((body, X) for body in (b"", b"hello", b"[]", b'{"service":"other"}', b"\xff")),
        (b'{"service":["turnlane"]}', X),
    ],
)
def test_a_turnlane_is_told_from_any_other_program(body: bytes, by: Answerer) -> None:
    with answering(body) as port:
        found = who_answers(f"http://127.0.0.1:{port}/v1")

    assert found.by is by
    assert (f"127.0.0.1:{port}" in (found.problem or "")) is (by is X)


def test_the_answer_of_another_program_is_explained(snapshot: Snapshot) -> None:
    with answering(b"hello") as port:
        found = who_answers(f"http://127.0.0.1:{port}")

    snapshot("codex", found.problem, port=port)


def test_an_unhealthy_turnlane_is_still_a_turnlane() -> None:
    with answering(HEALTHY, b"HTTP/1.1 503 Service Unavailable\r\n") as port:
        assert who_answers(f"http://127.0.0.1:{port}") == Answered(by=T)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "0.0.0.0"])
def test_a_turnlane_is_asked_at_its_address_or_on_loopback(host: str) -> None:
    with answering(HEALTHY) as port:
        assert who_answers(f"http://{host}:{port}") == Answered(by=T)


@pytest.mark.parametrize(
    ("host", "asked"), [("[::]", "::1"), ("[::1]", "::1"), ("127.0.0.2", "127.0.0.2")]
)
def test_the_address_that_did_not_answer_is_named(host: str, asked: str) -> None:
    port = closed_port()
    found = who_answers(f"http://{host}:{port}")

    assert found.by is N
    assert f"{asked}:{port}" in (found.problem or "")
