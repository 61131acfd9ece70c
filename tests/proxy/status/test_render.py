"""The status screen: what a tired person reads in five seconds, in 80 columns."""

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy import __version__
from proxy.codex.adoption import Adoption, CodexProcess, State
from proxy.codex.destination import Course, Destination
from proxy.journal.summary import LastHour, RefusalCount
from proxy.status.overview import Overview
from tests.proxy.status.kit import ADOPTED, NOW, RUNNING, URL, rendered, seen
from tests.testkit.snapshots import Snapshot

OLD = CodexProcess(pid=41, kind="app-server", started=1.0)
STRANGE = CodexProcess(pid=42, kind="cli", started=None)
READ = (State.SEEN, State.ADOPTED, State.PENDING)
ACCOUNT = {
    "id": "work",
    "kind": "chatgpt",
    "plan": "pro",
    "standing": "spent",
    "score": 100.0,
    "windows": [
        {"name": "primary", "used_percent": 100.0, "resets_at": NOW + 7800, "minutes": 300}
    ],
    "resets_at": NOW + 7800,
    "cooling_models": [],
    "in_flight": 0,
    "bindings": 3,
    "last_hour": {"turns": 4, "cold_starts": 1, "cached_tokens": 9, "uncached_tokens": 1},
}


def adoption(state: State, why: str = "because", **more: object) -> Adoption:
    return Adoption(state=state, why=why, **more)  # type: ignore[arg-type]


def titled(lines: list[str], title: str) -> str:
    (line,) = (line for line in lines if line.startswith(title))
    return line


# The first two lines.


def test_a_serving_turnlane_is_shown_with_its_address_load_and_last_hour(
    snapshot: Snapshot,
) -> None:
    hour = LastHour(turns=71, failed=2, cached_tokens=93, input_tokens=100)
    lines = rendered(seen(last_hour=hour))

    assert lines[0].startswith("turnlane  serving")
    assert URL in lines[0]
    snapshot("status", *lines)


def test_without_a_running_turnlane_the_second_line_is_the_command_that_starts_one(
    snapshot: Snapshot,
) -> None:
    lines = rendered(seen(None))

    assert "turnlane serve" in lines[1]
    assert not any(line.startswith("page") for line in lines)
    assert "turnlane log --follow" not in titled(lines, "log")
    snapshot("status", *lines)


def to(way: Destination, mend: str | None = None) -> Course:
    return Course(way=way, said="<where>", mend=mend)


CONNECT, OFF = "turnlane codex on", "turnlane codex off"
STALE = adoption(State.PENDING, stale=(OLD, replace(OLD, pid=43, kind="cli")))


@pytest.mark.parametrize(
    ("overview", "told", "untold"),
    [
        (seen(None, held_by="9", problem="<why>"), ("kill -9 9",), ""),
        (seen(None, hindrance="<obstacle>"), ("<obstacle>", "turnlane doctor"), "serve  starts"),
        (seen(problem="<why>"), ("<why>",), ""),
        (seen({**RUNNING, "draining": [{"pid": 5}, {"pid": 6}]}), ("5, 6",), ""),
        (seen(routing=STALE), ("app-server 41, cli 43",), ""),
        (
            seen(routing=adoption(State.UNKNOWN, unreadable=(STRANGE,))),
            ("cli 42", "turnlane codex show"),
            "",
        ),
        (seen(course=to(Destination.ELSEWHERE, CONNECT)), (CONNECT,), ""),
        (seen(None, course=to(Destination.ELSEWHERE, CONNECT)), (), "turnlane codex"),
        (seen(course=to(Destination.NO_KEY)), ("turnlane codex show",), CONNECT),
        (seen(course=to(Destination.NOBODY, f"{CONNECT}, or {OFF}")), (CONNECT, OFF), ""),
        (seen(None, course=to(Destination.NOBODY, f"{CONNECT}, or {OFF}")), (OFF,), CONNECT),
        (seen(course=to(Destination.ANOTHER, "<command>")), ("<command>",), ""),
        (seen(None, course=to(Destination.ANOTHER, "<command>")), ("<command>",), ""),
        (seen(course=to(Destination.PROVIDER)), ("turnlane codex show",), CONNECT),
        *((seen(None, routing=adoption(state)), (OFF,), "") for state in READ),
    ],
    ids=[
        *("hangs", "hindered", "not-serving", "draining", "stale", "unreadable", "elsewhere"),
        *("elsewhere-stopped", "no-key", "nobody", "nobody-stopped", "another"),
        *("another-stopped", "provider", *(f"stopped-{state}" for state in READ)),
    ],
)
def test_the_first_lines_say_what_is_wrong_and_what_helps(
    overview: Overview, told: tuple[str, ...], untold: str, snapshot: Snapshot
) -> None:
    lines = rendered(overview)
    end = next(n for n, line in enumerate(lines) if line.startswith(("lanes", "last hour")))
    first = "\n".join(lines[:end])

    assert all(text in first for text in told)
    assert untold == "" or untold not in first
    snapshot("status", first)


def test_the_next_line_says_whether_codex_goes_through_turnlane(snapshot: Snapshot) -> None:
    found = (
        adoption(State.SEEN),
        ADOPTED,
        replace(ADOPTED, weak=True),
        adoption(State.PENDING),
        adoption(State.UNKNOWN),
    )

    snapshot("status", *(rendered(seen(routing=routing))[1] for routing in found))


# Load and history.


def test_a_turnlane_of_another_version_is_shown_as_far_as_possible(snapshot: Snapshot) -> None:
    known = ("service", "pid", "uptime_seconds", "state")
    other = {name: RUNNING[name] for name in known} | {"version": "0.0.1", "accounts": [{"id": 1}]}
    lines = rendered(seen(other))

    assert "0.0.1" in lines[1]
    assert "turnlane accounts list" in lines[-1]
    snapshot("status", *lines, version=__version__)


def test_the_five_newest_refusals_are_listed_with_their_reasons(snapshot: Snapshot) -> None:
    refusals = tuple(
        RefusalCount(reason=f"reason_{number}", times=number + 1, last=NOW - 60 * number)
        for number in range(7)
    )
    lines = rendered(seen(last_hour=LastHour(refusals=refusals)))
    shown = [line for line in lines if "reason_" in line]

    assert len(shown) == 5
    snapshot("status", *shown)


def test_an_unreadable_journal_is_not_an_hour_without_turns(snapshot: Snapshot) -> None:
    line = titled(rendered(seen(journal_problem="<why>")), "last hour")

    assert "turns" not in line
    snapshot("status", line)


def test_accounts_come_last_in_their_table(snapshot: Snapshot) -> None:
    lines = rendered(seen({**RUNNING, "accounts": [ACCOUNT]}), blocks="#.")

    assert lines[-3].startswith("work ")
    snapshot("status", *lines[-5:])


# Its shape.


@given(
    home=st.text("abc-/", min_size=1, max_size=200),
    why=st.text("abc ", max_size=200),
    clients=st.integers(0, 20),
    columns=st.sampled_from([80, 100, 120]),
)
def test_no_line_is_longer_than_the_terminal_or_starts_below_a_title(
    home: str, why: str, clients: int, columns: int
) -> None:
    stale = tuple(replace(OLD, pid=100_000 + number) for number in range(clients))
    overview = seen(
        home=Path(f"/{home}"),
        url="http://[2001:db8:1111:2222:3333:4444:5555:6666]:10110",
        routing=adoption(State.UNKNOWN, f"x{why}", stale=stale),
        journal_problem=f"y{why}",
    )
    lines = rendered(overview, columns)

    titles = ("turnlane ", "Codex ", "lanes ", "workflows ", "last hour ", "log ", "page ", "home ")
    assert max(map(len, lines)) <= columns
    assert all(line.startswith((*titles, " " * 10)) for line in lines if line)


def test_a_path_is_not_read_as_markup() -> None:
    lines = rendered(seen(home=Path("/[bold]x[/bold]")))

    assert titled(lines, "home") == "home      /[bold]x[/bold]"
