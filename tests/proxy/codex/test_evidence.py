"""From two homes and a list of processes to a state; and looking changes nothing."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from proxy.codex.adoption import Adoption, State
from proxy.codex.evidence import adoption, codex_home, last_turn, read_codex
from proxy.codex.files import Disk
from proxy.codex.saved import NOTE_NAME
from proxy.codex.toml_edit import KEY
from proxy.database import DATABASE_NAME
from proxy.journal.record import Outcome, Transport, TurnRecord
from tests.proxy.codex.kit import OTHER_URL, URL, WALL, FragileDisk, Homes, Killed
from tests.proxy.codex.test_processes import FakeProcess
from tests.testkit.home import journal

BASE = URL.removesuffix("/v1")


@pytest.fixture
def homes(tmp_path: Path) -> Homes:
    homes = Homes(tmp_path)
    homes.codex.mkdir()
    return homes


def judged(
    homes: Homes,
    *processes: FakeProcess,
    url: str | None = None,
    last_turn: float | None = None,
    now: float = WALL + 100,
) -> Adoption:
    environment = {"CODEX_HOME": str(homes.codex)}
    return adoption(homes.home, environment, now, last_turn, url=url, walk=lambda: processes)


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


@pytest.mark.parametrize(
    ("started", "state"),
    [(WALL - 1, State.PENDING), (WALL, State.ADOPTED), (WALL + 1, State.ADOPTED)],
)
def test_a_client_is_compared_with_the_time_of_the_writing(
    started: float, state: State, homes: Homes
) -> None:
    homes.on()
    found = judged(homes, client(homes, started))

    assert found.state is state
    assert [stale.pid for stale in found.stale] == ([7] if state is State.PENDING else [])


def test_a_client_of_another_home_does_not_count(homes: Homes) -> None:
    homes.on()
    other = client(Homes(homes.root / "other"), WALL - 1)

    assert judged(homes, other).weak


def test_a_home_reached_through_a_link_is_the_same_home(homes: Homes) -> None:
    homes.on()
    link = homes.root / "link"
    link.symlink_to(homes.codex)
    old = client(homes, WALL - 1)
    old.environment["CODEX_HOME"] = str(link)

    assert judged(homes, old).state is State.PENDING


def test_a_turn_after_the_writing_is_seen(homes: Homes) -> None:
    homes.on()
    found = judged(homes, client(homes, WALL - 1), last_turn=WALL + 1)

    assert (found.state, len(found.stale)) == (State.SEEN, 1)


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


def test_codex_that_goes_to_its_provider_is_none_of_ours(homes: Homes) -> None:
    homes.on()
    homes.off()

    assert judged(homes, client(homes, WALL - 1)).state is State.NOT_APPLICABLE


def test_codex_that_goes_to_another_port_than_the_one_that_runs_is_none_of_ours(
    homes: Homes,
) -> None:
    homes.on()

    assert judged(homes, url=BASE).state is State.ADOPTED
    assert judged(homes, url=OTHER_URL.removesuffix("/v1")).state is State.NOT_APPLICABLE


def test_a_provider_of_its_own_hides_the_root_key(homes: Homes) -> None:
    homes.on()
    text = homes.config.read_text()
    homes.config.write_text(f'{text}model_provider = "x"\n')

    assert judged(homes).state is State.NOT_APPLICABLE


def test_a_line_written_by_hand_counts_from_the_last_change_of_the_file(homes: Homes) -> None:
    homes.config.write_text(f'{KEY} = "{URL}"\n')
    os.utime(homes.config, (WALL, WALL))

    assert judged(homes, client(homes, WALL), url=BASE).state is State.ADOPTED
    assert judged(homes, client(homes, WALL - 1), url=BASE).state is State.UNKNOWN
    assert judged(homes, client(homes, WALL), last_turn=WALL + 1, url=BASE).state is State.SEEN


@pytest.mark.parametrize(
    ("value", "state"),
    [(URL, State.UNKNOWN), ("https://example.invalid/v1", State.NOT_APPLICABLE)],
)
def test_without_a_note_only_an_address_of_this_machine_may_be_ours(
    value: str, state: State, homes: Homes
) -> None:
    homes.config.write_text(f'{KEY} = "{value}"\n')

    assert judged(homes).state is state


def test_a_note_about_another_home_says_nothing_about_this_one(homes: Homes) -> None:
    homes.on()
    other = homes.root / "other"
    other.mkdir()
    (other / "config.toml").write_bytes(homes.config.read_bytes())
    found = adoption(homes.home, {"CODEX_HOME": str(other)}, WALL, None, walk=list)

    assert found.state is State.UNKNOWN


@pytest.mark.parametrize("broken", ["config", "note", "directory"])
def test_what_cannot_be_read_is_unknown_and_is_left_so(broken: str, homes: Homes) -> None:
    homes.on()
    if broken == "directory":
        homes.config.unlink()
        homes.config.mkdir()
    else:
        (homes.config if broken == "config" else homes.home / NOTE_NAME).write_bytes(b"{")
    found = judged(homes)

    assert found.state is State.UNKNOWN
    assert found.why != ""


def test_a_writing_that_was_not_finished_counts_from_the_file(homes: Homes) -> None:
    dry = FragileDisk()
    Homes(homes.root / "dry").on(dry)
    with pytest.raises(Killed):
        homes.on(FragileDisk(last=dry.steps - 1))
    os.utime(homes.config, (WALL + 50, WALL + 50))

    assert judged(homes, client(homes, WALL + 49)).state is State.UNKNOWN
    assert judged(homes, client(homes, WALL + 50)).state is State.ADOPTED


def test_a_file_that_vanishes_between_two_looks_is_unknown(homes: Homes) -> None:
    class Vanishing(Disk):
        def read(self, path: Path) -> bytes | None:
            return f'{KEY} = "{URL}"\n'.encode() if path == homes.config else super().read(path)

    environment = {"CODEX_HOME": str(homes.codex)}
    found = adoption(
        homes.home, environment, WALL, None, url=BASE, files=Vanishing(), walk=lambda: ()
    )

    assert found.state is State.UNKNOWN


def test_looking_changes_no_file(homes: Homes) -> None:
    homes.on()
    before = state_of(homes.root)
    judged(homes, client(homes, WALL - 1))
    read_codex(Disk(), homes.codex)

    assert state_of(homes.root) == before


def test_looking_where_nothing_is_makes_nothing(tmp_path: Path) -> None:
    homes = Homes(tmp_path)

    assert judged(homes).state is State.NOT_APPLICABLE
    assert list(tmp_path.iterdir()) == []


def state_of(root: Path) -> dict[str, tuple[int, int]]:
    return {str(x): (x.stat().st_mtime_ns, x.stat().st_ino) for x in root.rglob("*")}
