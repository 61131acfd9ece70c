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
from tests.proxy.status.kit import ADOPTED, NOW, RUNNING, URL, rendered, seen
from tests.testkit.snapshots import Snapshot

OLD = CodexProcess(pid=41, kind="app-server", started=1.0)
STRANGE = CodexProcess(pid=42, kind="cli", started=None)
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


def test_a_process_that_holds_the_home_without_answering_is_named(snapshot: Snapshot) -> None:
    lines = rendered(seen(None, held_by="9", problem="<why>"))

    assert "kill -9 9" in lines[1]
    snapshot("status", *lines[:2])


def test_a_turnlane_that_runs_without_serving_says_why(snapshot: Snapshot) -> None:
    lines = rendered(seen(problem="<why>"))

    assert "<why>" in lines[0]
    snapshot("status", lines[0])


def test_processes_that_still_finish_their_turns_are_named(snapshot: Snapshot) -> None:
    draining = [{"pid": 5, "since": 1.0}, {"pid": 6, "since": 2.0}]
    lines = rendered(seen({**RUNNING, "draining": draining}))

    assert rendered(seen({**RUNNING, "draining": []})) == rendered(seen())
    snapshot("status", lines[1])


def test_the_next_line_says_whether_codex_goes_through_turnlane(snapshot: Snapshot) -> None:
    found = (
        adoption(State.SEEN),
        ADOPTED,
        replace(ADOPTED, weak=True),
        adoption(State.PENDING),
        adoption(State.UNKNOWN),
    )

    snapshot("status", *(rendered(seen(routing=routing))[1] for routing in found))


def test_clients_that_need_a_restart_are_named_by_pid(snapshot: Snapshot) -> None:
    routing = adoption(State.PENDING, stale=(OLD, replace(OLD, pid=43, kind="cli")))
    lines = rendered(seen(routing=routing))

    assert "app-server 41, cli 43" in lines[2]
    snapshot("status", *lines[1:3])


def test_clients_that_cannot_be_inspected_are_named_too(snapshot: Snapshot) -> None:
    lines = rendered(seen(routing=adoption(State.UNKNOWN, unreadable=(STRANGE,))))

    assert "cli 42" in lines[2]
    assert "turnlane codex show" in lines[3]
    snapshot("status", *lines[1:4])


def test_the_command_that_connects_codex_is_shown_only_while_turnlane_serves(
    snapshot: Snapshot,
) -> None:
    course = Course(way=Destination.ELSEWHERE, said="<where>", mend="turnlane codex on")
    lines = rendered(seen(course=course))

    assert "turnlane codex on" in lines[2]
    assert not any("turnlane codex" in line for line in rendered(seen(None, course=course)))
    snapshot("status", *lines[1:3])


def test_a_required_key_that_codex_does_not_send_is_bad_news(snapshot: Snapshot) -> None:
    lines = rendered(seen(course=Course(way=Destination.NO_KEY, said="<where>")))

    assert "turnlane codex show" in lines[2]
    assert not any("turnlane codex on" in line for line in lines)
    snapshot("status", *lines[1:3])


@pytest.mark.parametrize("serving", [True, False], ids=["serving", "not-running"])
def test_an_address_without_a_turnlane_can_be_fixed_only_while_one_serves(
    serving: bool, snapshot: Snapshot
) -> None:
    mend = "turnlane codex on, or turnlane codex off"
    course = Course(way=Destination.NOBODY, said="<where>", mend=mend)
    lines = rendered(seen(RUNNING if serving else None, course=course))
    (at,) = (n for n, line in enumerate(lines) if line.startswith("Codex "))

    assert any("turnlane codex on" in line for line in lines) is serving
    assert any("turnlane codex off" in line for line in lines)
    snapshot("status", *lines[at : at + 2 + serving])


@pytest.mark.parametrize("serving", [True, False], ids=["serving", "not-running"])
def test_a_turnlane_with_another_home_is_told_apart(serving: bool, snapshot: Snapshot) -> None:
    course = Course(way=Destination.ANOTHER, said="<where>", mend="<command>")
    lines = rendered(seen(RUNNING if serving else None, course=course))
    (at,) = (n for n, line in enumerate(lines) if line.startswith("Codex "))

    snapshot("status", *lines[at : at + 2])


def test_a_provider_chosen_by_the_user_gets_no_advice_that_would_not_help(
    snapshot: Snapshot,
) -> None:
    lines = rendered(seen(course=Course(way=Destination.PROVIDER, said="<where>")))

    assert "turnlane codex show" in lines[2]
    snapshot("status", *lines[1:3])


def test_an_obstacle_to_starting_is_shown_instead_of_the_command_that_starts(
    snapshot: Snapshot,
) -> None:
    lines = rendered(seen(None, hindrance="<obstacle>"))

    assert "<obstacle>" in lines[1]
    assert "turnlane doctor" in lines[2]
    snapshot("status", *lines[:3])


@pytest.mark.parametrize("state", [State.SEEN, State.ADOPTED, State.PENDING])
def test_codex_that_points_at_a_stopped_turnlane_is_bad_news(
    state: State, snapshot: Snapshot
) -> None:
    lines = rendered(seen(None, routing=adoption(state)))

    assert "turnlane codex off" in lines[3]
    snapshot("status", *lines[2:4])


# Load and history.


def test_a_turnlane_of_another_version_is_shown_as_far_as_possible(snapshot: Snapshot) -> None:
    known = ("service", "pid", "uptime_seconds", "state")
    other = {name: RUNNING[name] for name in known} | {"version": "0.0.1", "accounts": [{"id": 1}]}
    lines = rendered(seen(other))

    assert "0.0.1" in lines[1]
    assert "turnlane accounts list" in lines[-1]
    snapshot("status", *lines, version=__version__)


def test_an_hour_without_known_tokens_claims_no_cache_share() -> None:
    line = titled(rendered(seen(last_hour=LastHour(turns=1))), "last hour")

    assert line == "last hour 1 turn"


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
