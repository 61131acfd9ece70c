"""The screen: what a tired person reads in five seconds, in 80 columns."""

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.codex.adoption import Adoption, CodexProcess, State
from proxy.codex.destination import Course, Destination
from proxy.journal.summary import LastHour, RefusalCount
from tests.proxy.status.kit import ADOPTED, NOW, RUNNING, URL, rendered, seen

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


def test_one_that_serves_says_so_first_with_its_address() -> None:
    first = rendered(seen())[0]

    assert first == f"turnlane  serving on {URL}  pid 7, up 2 m"


def test_where_none_runs_the_second_line_is_what_starts_it() -> None:
    lines = rendered(seen(None))

    assert lines[0] == "turnlane  not running"
    assert lines[1] == "          turnlane serve  starts it"


def test_one_that_holds_the_home_and_does_not_answer_is_named() -> None:
    lines = rendered(seen(None, held_by="9", problem="pid 9 holds it and does not answer"))

    assert lines[0] == "turnlane  not answering  pid 9 holds it and does not answer"
    assert "kill -9 9" in lines[1]


def test_one_that_runs_and_does_not_serve_says_why() -> None:
    lines = rendered(seen(problem="it ends: new turns are refused"))

    assert lines[0].startswith("turnlane  not serving  it ends: new turns are refused")


def test_processes_that_still_end_their_turns_are_named() -> None:
    draining = [{"pid": 5, "since": 1.0}, {"pid": 6, "since": 2.0}]
    lines = rendered(seen({**RUNNING, "draining": draining}))

    assert lines[1].strip() == "still ending earlier turns: pid 5, 6"
    assert rendered(seen({**RUNNING, "draining": []})) == rendered(seen())


@pytest.mark.parametrize(
    ("routing", "said"),
    [
        (adoption(State.SEEN), "goes through turnlane  a turn came from it"),
        (ADOPTED, "goes through turnlane  every Codex process is younger"),
        (replace(ADOPTED, weak=True), "goes through turnlane  no Codex runs"),
        (adoption(State.PENDING), "is to be started anew"),
        (adoption(State.UNKNOWN), "not known  because"),
    ],
)
def test_the_next_line_is_whether_codex_goes_through_it(routing: Adoption, said: str) -> None:
    assert rendered(seen(routing=routing))[1].startswith(f"Codex     {said}")


def test_clients_to_be_started_anew_are_named_by_pid() -> None:
    routing = adoption(State.PENDING, stale=(OLD, replace(OLD, pid=43, kind="cli")))
    lines = rendered(seen(routing=routing))

    assert lines[2].strip() == "older than the routing, restart: app-server 41, cli 43"


def test_clients_that_nothing_is_known_of_are_named_too() -> None:
    lines = rendered(seen(routing=adoption(State.UNKNOWN, unreadable=(STRANGE,))))

    assert lines[2].strip() == "cannot be looked into: cli 42"
    assert "turnlane codex show" in lines[3]


def test_what_connects_codex_is_said_where_something_serves() -> None:
    course = Course(way=Destination.ELSEWHERE, said="goes to X", mend="turnlane codex on")
    lines = rendered(seen(course=course))

    assert lines[1] == "Codex     does not go through turnlane  goes to X"
    assert lines[2].strip() == "turnlane codex on  connects it"
    assert not any("turnlane codex" in line for line in rendered(seen(None, course=course)))


def test_where_a_key_is_wanted_and_none_is_sent_it_is_no_good_news() -> None:
    course = Course(way=Destination.NO_KEY, said="points at turnlane, which wants a key")
    lines = rendered(seen(course=course))

    assert lines[1] == "Codex     points at turnlane, which wants a key"
    assert "turnlane codex show" in lines[2]
    assert not any("turnlane codex on" in line for line in lines)


@pytest.mark.parametrize("serving", [True, False])
def test_an_address_where_nobody_is_can_be_undone_and_mended_only_where_something_serves(
    serving: bool,
) -> None:
    mend = "turnlane codex on, or turnlane codex off"
    course = Course(
        way=Destination.NOBODY, said="points at X, where no turnlane answers", mend=mend
    )
    lines = rendered(seen(RUNNING if serving else None, course=course))

    assert "Codex     points at X, where no turnlane answers" in lines
    assert ("          turnlane codex on  connects it" in lines) is serving
    assert any("turnlane codex off" in line for line in lines)


@pytest.mark.parametrize(("running", "helps"), [(RUNNING, "connects it here"), (None, "shows")])
def test_a_turnlane_with_another_home_is_called_so(running: object, helps: str) -> None:
    course = Course(
        way=Destination.ANOTHER, said="goes through a turnlane with another home", mend="do"
    )
    lines = rendered(seen(running, course=course))  # type: ignore[arg-type]
    (at,) = (n for n, line in enumerate(lines) if line.startswith("Codex "))

    assert lines[at] == "Codex     goes through a turnlane with another home"
    assert lines[at + 1].strip().startswith(f"do  {helps}")


def test_a_provider_of_its_owners_gets_no_advice_that_would_not_help() -> None:
    lines = rendered(seen(course=Course(way=Destination.PROVIDER, said="x decides")))

    assert lines[1] == "Codex     does not go through turnlane  x decides"
    assert "turnlane codex show" in lines[2]


def test_what_would_keep_it_from_starting_is_said_instead_of_starting_it() -> None:
    lines = rendered(seen(None, hindrance="127.0.0.1:10110 is taken by another program"))

    assert "could not be started: 127.0.0.1:10110 is taken" in lines[1]
    assert lines[2].strip().startswith("turnlane doctor")


def test_a_log_is_followed_only_where_something_runs() -> None:
    assert titled(rendered(seen(None)), "log") == "log       turnlane log  each turn and refusal"


@pytest.mark.parametrize("state", [State.SEEN, State.ADOPTED, State.PENDING])
def test_codex_that_points_at_nobody_is_no_good_news(state: State) -> None:
    lines = rendered(seen(None, routing=adoption(state)))

    assert lines[2] == "Codex     points at turnlane, which does not serve"
    assert "turnlane codex off" in lines[3]


# What goes on.


def test_what_is_held_and_by_whom_is_on_three_lines() -> None:
    lines = rendered(seen())

    assert lines[2] == "lanes     12 of 64 (peak 31), turns 13 of 256, WebSockets 14, memory 15 MiB"
    assert lines[3] == "workflows 2 active, 5 tracked, 6 refused"
    assert lines[4].strip() == "busiest abcdef01: 8 running, 7 children, 23 sends"


def test_one_of_another_version_is_shown_as_far_as_it_can_be() -> None:
    known = ("service", "pid", "uptime_seconds", "state")
    other = {name: RUNNING[name] for name in known} | {"version": "0.0.1", "accounts": [{"id": 1}]}
    lines = rendered(seen(other))

    assert lines[0].startswith("turnlane  serving")
    assert "it is version 0.0.1" in lines[1]
    assert (
        titled(lines, "lanes")
        == "lanes     0 of 0 (peak 0), turns 0 of 0, WebSockets 0, memory 0 MiB"
    )
    assert lines[-1].endswith("turnlane accounts list")


def test_the_last_hour_says_how_much_came_from_the_cache() -> None:
    hour = LastHour(turns=71, failed=2, cached_tokens=93, input_tokens=100)

    assert titled(rendered(seen(last_hour=hour)), "last hour") == (
        "last hour 71 turns, 2 failed, 93 % of the input from the cache"
    )


def test_an_hour_of_which_no_tokens_are_known_claims_nothing() -> None:
    assert titled(rendered(seen(last_hour=LastHour(turns=1))), "last hour") == "last hour 1 turn"


def test_the_newest_refusals_are_listed_with_their_reasons_and_no_more_than_five() -> None:
    refusals = tuple(
        RefusalCount(reason=f"reason_{number}", times=number + 1, last=NOW - 60 * number)
        for number in range(7)
    )
    lines = rendered(seen(last_hour=LastHour(refusals=refusals)))

    assert titled(lines, "refused") == "refused   1 x reason_0  last 08:00"
    assert [line.strip() for line in lines if "reason_4" in line] == ["5 x reason_4  last 07:56"]
    assert not any("reason_5" in line for line in lines)


def test_a_journal_that_cannot_be_read_is_not_an_hour_without_turns() -> None:
    line = titled(rendered(seen(journal_problem="journal: broken")), "last hour")

    assert line == "last hour not known: journal: broken"


def test_where_more_can_be_seen_is_said() -> None:
    lines = rendered(seen())

    assert titled(lines, "log").startswith("log       turnlane log --follow")
    assert titled(lines, "page").startswith(f"page      {URL}/status")
    assert titled(lines, "home") == "home      /home/user/turnlane"
    assert not any(line.startswith("page") for line in rendered(seen(None)))


def test_accounts_come_last_in_their_table() -> None:
    lines = rendered(seen({**RUNNING, "accounts": [ACCOUNT]}), blocks="#.")

    assert "account" in lines[-5]
    assert "work" in lines[-3]
    assert "spent until 10:10  ##### 100%" in lines[-3]


# Its shape.


@given(
    home=st.text("abc-/", min_size=1, max_size=200),
    why=st.text("abc ", max_size=200),
    clients=st.integers(0, 20),
    columns=st.sampled_from([80, 100, 120]),
)
def test_no_line_is_longer_than_the_terminal_and_none_begins_below_a_title(
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


def test_a_name_is_no_markup() -> None:
    lines = rendered(seen(home=Path("/[bold]x[/bold]")))

    assert titled(lines, "home") == "home      /[bold]x[/bold]"
