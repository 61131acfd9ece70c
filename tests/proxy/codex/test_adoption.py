"""What evidence says about adoption, and which evidence outranks which.

Then from two homes and a list of processes to a state; looking changes nothing.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from proxy.codex.adoption import (
    Adoption,
    CodexProcess,
    CodexRoute,
    Evidence,
    State,
    adoption,
    judge_adoption,
    last_turn,
)
from proxy.codex.destination import read_sight
from proxy.codex.files import Disk
from proxy.codex.place import Environment
from proxy.codex.reading import codex_home
from proxy.codex.saved import NOTE_NAME
from proxy.codex.toml_edit import KEY
from proxy.database_file import DATABASE_NAME
from proxy.journal.record import Outcome, Transport, TurnRecord
from tests.proxy.codex.kit import OTHER_URL, URL, WALL, FragileDisk, Homes, Killed
from tests.proxy.codex.test_processes import FakeProcess
from tests.testkit.home import journal
from tests.testkit.snapshots import Snapshot

SINCE = 1000.5
OURS = CodexRoute(ours=True, since=SINCE)
OLD = CodexProcess(pid=1, kind="app-server", started=900.0)
YOUNG = CodexProcess(pid=2, kind="cli", started=1001.0)
DARK = CodexProcess(pid=3, kind="cli", started=None)


def judged(
    *clients: CodexProcess,
    routing: CodexRoute = OURS,
    walked: bool = True,
    last_turn: float | None = None,
    now: float = 2000.0,
) -> Adoption:
    return judge_adoption(
        Evidence(routing=routing, clients=clients, walked=walked, last_turn=last_turn, now=now)
    )


@pytest.mark.parametrize(
    ("found", "state"),
    [
        (judged(), State.ADOPTED),
        (judged(YOUNG), State.ADOPTED),
        (judged(YOUNG, OLD), State.PENDING),
        (judged(DARK), State.UNKNOWN),
        (judged(YOUNG, DARK), State.UNKNOWN),
        (judged(OLD, DARK), State.PENDING),
        (judged(walked=False), State.UNKNOWN),
        (judged(YOUNG, walked=False), State.UNKNOWN),
        (judged(OLD, walked=False), State.PENDING),
        (judged(last_turn=1001.0), State.SEEN),
        (judged(last_turn=1000.0), State.ADOPTED),
        (judged(OLD, last_turn=1000.0), State.PENDING),
        (judged(OLD, DARK, walked=False, last_turn=1001.0), State.SEEN),
        (judged(OLD, routing=CodexRoute(ours=False)), State.NOT_APPLICABLE),
        (judged(YOUNG, routing=CodexRoute(ours=None)), State.UNKNOWN),
        (judged(YOUNG, routing=CodexRoute(ours=True)), State.UNKNOWN),
        (judged(YOUNG, now=900.0), State.UNKNOWN),
        (judged(YOUNG, now=1000.0), State.ADOPTED),
        (judged(OLD, routing=replace(OURS, exact=False)), State.UNKNOWN),
        (judged(YOUNG, routing=replace(OURS, exact=False)), State.ADOPTED),
        (judged(OLD, routing=replace(OURS, exact=False), last_turn=1001.0), State.SEEN),
    ],
)
def test_the_strongest_evidence_decides(found: Adoption, state: State) -> None:
    assert found.state is state


@pytest.mark.parametrize(
    ("started", "stale"), [(999.99, True), (1000.0, False), (1000.5, False), (1001.0, False)]
)
def test_a_client_of_the_same_second_is_not_stale(started: float, stale: bool) -> None:
    found = judged(CodexProcess(pid=9, kind="cli", started=started))

    assert bool(found.stale) == stale
    assert found.state is (State.PENDING if stale else State.ADOPTED)


def test_each_judgement_says_why(snapshot: Snapshot) -> None:
    found = (
        judged(),
        judged(YOUNG),
        judged(OLD),
        judged(DARK),
        judged(walked=False),
        judged(last_turn=1001.0),
        judged(routing=CodexRoute(ours=True)),
        judged(YOUNG, now=900.0),
        judged(OLD, routing=replace(OURS, exact=False)),
    )

    snapshot("codex", *(f"{each.state}: {each.why}" for each in found))


def test_an_empty_list_is_a_weak_inference() -> None:
    assert judged().weak
    assert not judged(YOUNG).weak
    assert not judged(walked=False).weak


def test_stale_and_unreadable_clients_are_named_whatever_the_state() -> None:
    seen = judged(OLD, YOUNG, DARK, last_turn=1500.0)

    assert (seen.state, seen.stale, seen.unreadable) == (State.SEEN, (OLD,), (DARK,))


def test_the_reason_why_codex_goes_elsewhere_is_passed_on() -> None:
    assert judged(routing=CodexRoute(ours=False, why="to the provider")).why == "to the provider"
    assert judged(routing=CodexRoute(ours=None, why="unreadable")).why == "unreadable"


clients = st.builds(
    CodexProcess,
    pid=st.integers(1, 9),
    kind=st.just("cli"),
    started=st.none() | st.floats(0, 20),
)
evidence = st.builds(
    Evidence,
    routing=st.builds(
        CodexRoute,
        ours=st.sampled_from([True, True, True, False, None]),
        why=st.just(""),
        since=st.floats(0, 20) | st.floats(0, 20) | st.none(),
        exact=st.booleans(),
    ),
    clients=st.lists(clients, max_size=4).map(tuple),
    walked=st.booleans(),
    last_turn=st.none() | st.floats(0, 30),
    now=st.floats(10, 30),
)


@given(evidence)
def test_adopted_needs_every_client_to_be_known_and_young(given_evidence: Evidence) -> None:
    since = given_evidence.routing.since
    young = all(
        client.started is not None and since is not None and int(client.started) >= int(since)
        for client in given_evidence.clients
    )

    if judge_adoption(given_evidence).state is State.ADOPTED:
        assert given_evidence.routing.ours is True
        assert given_evidence.walked
        assert since is not None
        assert young


@given(evidence, clients)
def test_one_client_more_never_makes_it_look_better(
    given_evidence: Evidence, client: CodexProcess
) -> None:
    """Except that the first one turns a weak inference into a sound one: the same state."""
    order = [State.ADOPTED, State.UNKNOWN, State.PENDING]
    before = judge_adoption(given_evidence)
    after = judge_adoption(replace(given_evidence, clients=(*given_evidence.clients, client)))

    if before.state in order:
        assert order.index(after.state) >= order.index(before.state)
    else:
        assert after.state is before.state


@given(evidence, st.floats(0.001, 100))
def test_a_turn_after_the_routing_outranks_every_process(
    given_evidence: Evidence, later: float
) -> None:
    since = given_evidence.routing.since
    assume(given_evidence.routing.ours and since is not None and since <= given_evidence.now)
    assert since is not None
    found = judge_adoption(replace(given_evidence, last_turn=since + later))

    assert found.state is State.SEEN
    assert found.stale == judge_adoption(replace(given_evidence, last_turn=None)).stale


@given(evidence)
def test_where_codex_goes_elsewhere_no_process_matters(given_evidence: Evidence) -> None:
    elsewhere = replace(given_evidence, routing=CodexRoute(ours=False))

    assert judge_adoption(elsewhere) == judge_adoption(
        replace(elsewhere, clients=(), walked=True, last_turn=None)
    )


# From homes and processes.

BASE = URL.removesuffix("/v1")


@pytest.fixture
def homes(tmp_path: Path) -> Homes:
    homes = Homes(tmp_path)
    homes.codex.mkdir()
    return homes


def gathered(
    homes: Homes,
    *processes: FakeProcess,
    url: str | None = None,
    last_turn: float | None = None,
    codex: Path | None = None,
    files: Disk | None = None,
) -> Adoption:
    place = Environment(
        home=homes.home,
        environment={"CODEX_HOME": str(codex or homes.codex)},
        files=files or Disk(),
        wall=lambda: WALL + 100,
        walk=lambda: processes,
    )
    return adoption(place, read_sight(place, here=url), last_turn)


def client(homes: Homes, started: float) -> FakeProcess:
    return FakeProcess(
        ["codex", "app-server"],
        environment={"CODEX_HOME": str(homes.codex)},
        user=os.getuid(),
        started=started,
    )


def test_codex_home_is_where_codex_looks_for_it() -> None:
    assert codex_home({"HOME": "/home/user"}) == Path("/home/user/.codex")
    assert codex_home({"HOME": "/home/user", "CODEX_HOME": ""}) == Path("/home/user/.codex")
    assert codex_home({"CODEX_HOME": "/x/../y"}) == Path("/y")
    assert codex_home({}) == Path.home() / ".codex"


@pytest.mark.parametrize(("started", "state"), [(WALL - 1, State.PENDING), (WALL, State.ADOPTED)])
def test_a_client_is_compared_with_the_time_of_the_writing(
    started: float, state: State, homes: Homes
) -> None:
    homes.on()
    other = client(Homes(homes.root / "other"), WALL - 1)
    found = gathered(homes, client(homes, started), other)

    assert found.state is state
    assert [stale.pid for stale in found.stale] == ([7] if state is State.PENDING else [])
    assert gathered(homes, other).weak


def test_a_home_reached_through_a_link_is_the_same_home(homes: Homes) -> None:
    homes.on()
    link = homes.root / "link"
    link.symlink_to(homes.codex)
    old = client(homes, WALL - 1)
    old.environment["CODEX_HOME"] = str(link)

    assert gathered(homes, old).state is State.PENDING


def test_the_last_turn_is_the_newest_one_of_a_client_with_a_thread(homes: Homes) -> None:
    turn = TurnRecord(
        wall=WALL,
        principal="local",
        transport=Transport.HTTP,
        outcome=Outcome.COMPLETED,
        lane="a" * 32,
    )
    homes.home.mkdir()
    later = (
        replace(turn, wall=WALL + 20, total_ms=15_000.0),
        replace(turn, wall=WALL + 30, lane=None),
        replace(turn, wall=WALL + 40, outcome=Outcome.REFUSED, refusal="draining"),
    )
    with journal(homes.home, turn, *later):
        pass

    assert last_turn(homes.home, WALL) == WALL + 5


def test_without_a_journal_there_is_no_last_turn(homes: Homes) -> None:
    missing = last_turn(homes.home, WALL)
    homes.home.mkdir()
    (homes.home / DATABASE_NAME).write_bytes(b"nonsense" * 99)

    assert (missing, last_turn(homes.home, WALL)) == (None, None)


def test_codex_that_goes_elsewhere_is_not_ours(homes: Homes) -> None:
    homes.on()
    here = gathered(homes, url=BASE)
    elsewhere = [gathered(homes, url=OTHER_URL.removesuffix("/v1"))]
    homes.config.write_text(f'{homes.config.read_text()}model_provider = "x"\n')
    elsewhere.append(gathered(homes))
    homes.off()
    elsewhere.append(gathered(homes, client(homes, WALL - 1)))

    assert here.state is State.ADOPTED
    assert {each.state for each in elsewhere} == {State.NOT_APPLICABLE}


def test_a_line_written_by_hand_counts_from_the_last_change_of_the_file(homes: Homes) -> None:
    homes.config.write_text(f'{KEY} = "{URL}"\n')
    os.utime(homes.config, (WALL, WALL))

    assert gathered(homes, client(homes, WALL), url=BASE).state is State.ADOPTED
    assert gathered(homes, client(homes, WALL - 1), url=BASE).state is State.UNKNOWN
    assert gathered(homes, client(homes, WALL), last_turn=WALL + 1, url=BASE).state is State.SEEN


@pytest.mark.parametrize(
    ("value", "state"),
    [(URL, State.UNKNOWN), ("https://example.invalid/v1", State.NOT_APPLICABLE)],
)
def test_without_a_note_only_an_address_of_this_machine_may_be_ours(
    value: str, state: State, homes: Homes
) -> None:
    homes.config.write_text(f'{KEY} = "{value}"\n')

    assert gathered(homes).state is state


def test_a_note_about_another_home_says_nothing_about_this_one(homes: Homes) -> None:
    homes.on()
    other = homes.root / "other"
    other.mkdir()
    (other / "config.toml").write_bytes(homes.config.read_bytes())

    assert gathered(homes, codex=other).state is State.UNKNOWN


@pytest.mark.parametrize("broken", ["config", "note", "directory"])
def test_what_cannot_be_read_is_unknown_and_is_left_so(broken: str, homes: Homes) -> None:
    homes.on()
    if broken == "directory":
        homes.config.unlink()
        homes.config.mkdir()
    else:
        (homes.config if broken == "config" else homes.home / NOTE_NAME).write_bytes(b"{")
    found = gathered(homes)

    assert found.state is State.UNKNOWN
    assert found.why != ""


def test_a_writing_that_was_not_finished_counts_from_the_file(homes: Homes) -> None:
    dry = FragileDisk()
    Homes(homes.root / "dry").on(dry)
    with pytest.raises(Killed):
        homes.on(FragileDisk(last=dry.steps - 1))
    os.utime(homes.config, (WALL + 50, WALL + 50))

    assert gathered(homes, client(homes, WALL + 49)).state is State.UNKNOWN
    assert gathered(homes, client(homes, WALL + 50)).state is State.ADOPTED


def test_a_file_that_vanishes_between_two_looks_is_unknown(homes: Homes) -> None:
    class Vanishing(Disk):
        def read(self, path: Path) -> bytes | None:
            return f'{KEY} = "{URL}"\n'.encode() if path == homes.config else super().read(path)

    assert gathered(homes, url=BASE, files=Vanishing()).state is State.UNKNOWN


def test_looking_changes_no_file_and_makes_none(homes: Homes) -> None:
    nothing = Homes(homes.root / "nothing")
    homes.on()
    before = state_of(homes.root)
    gathered(homes, client(homes, WALL - 1))

    assert gathered(nothing).state is State.NOT_APPLICABLE
    assert state_of(homes.root) == before


def state_of(root: Path) -> dict[str, tuple[int, int]]:
    return {str(x): (x.stat().st_mtime_ns, x.stat().st_ino) for x in root.rglob("*")}
