"""The doctor on what is turnlane's own: each thing as it should be, and each way to be wrong."""

from __future__ import annotations

import os
import resource
from pathlib import Path

import pytest

from proxy.accounts.registry import REGISTRY_NAME, AccountRegistry
from proxy.accounts.spec import AccountSpec
from proxy.accounts.view import AccountId
from proxy.errors import ConfigError
from proxy.status.finding import Level
from proxy.status.local_checks import FEW_FILES, PRIVATE, inside, most_files
from proxy.status.processes import Listener
from tests.proxy.status.kit import RUNNING, bad, patient, seen
from tests.testkit.users import as_somebody

BROKEN = ConfigError("server.port", "must be a number")
NONE_RUNS = seen(None)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    return home


def put(path: Path, mode: int = 0o600) -> Path:
    path.parent.mkdir(mode=0o700, exist_ok=True)
    path.touch()
    path.chmod(mode)
    return path


def test_nothing_is_wrong_where_all_is_well(home: Path) -> None:
    for name in PRIVATE:
        put(home / name)
    (home / REGISTRY_NAME).write_text("{}")

    assert [x for x in inside(patient(home)) if x.level is not Level.GOOD] == []


# Configuration.


def test_a_wrong_configuration_is_named_by_its_key_and_its_file(home: Path) -> None:
    file = put(home.parent / "turnlane.toml")
    found = bad(inside(patient(home, config=BROKEN, file=file)), "config")

    assert found == [(Level.WRONG, "server.port: must be a number", f"$EDITOR {file}")]
    ((_, _, mend),) = bad(inside(patient(home, config=BROKEN)), "config")
    assert mend is None


def test_no_editor_is_recommended_for_what_is_no_file(home: Path) -> None:
    ((_, _, missing),) = bad(inside(patient(home, config=BROKEN, file=home / "x")), "config")
    ((_, _, folder),) = bad(inside(patient(home, config=BROKEN, file=home)), "config")

    assert (missing, folder) == (
        f"look at it first: ls -ld {home}/x",
        f"look at it first: ls -ld {home}",
    )


def test_an_upstream_that_the_environment_sets_is_named(home: Path) -> None:
    asked = patient(home, environment={"TURNLANE_UPSTREAM": "http://up"})
    (found,) = (x for x in inside(asked) if x.about == "config")

    assert found.said == "no file, so every default; TURNLANE_UPSTREAM is http://up"


def test_a_journal_that_cannot_be_read_is_wrong(home: Path) -> None:
    found = bad(inside(patient(home, seen=seen(journal_problem="journal: broken"))), "journal")

    ((level, said, mend),) = found
    assert (level, said) == (Level.WRONG, "journal: broken")
    assert f"mv {home}/" in (mend or "")


def test_the_file_of_a_good_configuration_is_named(home: Path) -> None:
    (named,) = (x for x in inside(patient(home, file=Path("/x.toml"))) if x.about == "config")
    (none,) = (x for x in inside(patient(home)) if x.about == "config")

    assert (named.said, none.said) == ("/x.toml", "no file, so every default")


# The home.


def test_a_home_that_is_not_there_yet_is_no_fault_and_is_not_made(tmp_path: Path) -> None:
    home = tmp_path / "home"
    found = list(inside(patient(home, seen=NONE_RUNS)))

    assert bad(iter(found), "home") == []
    assert not home.exists()


def test_a_file_is_no_home(tmp_path: Path) -> None:
    home = put(tmp_path / "home")

    ((level, said, mend),) = bad(inside(patient(home, seen=NONE_RUNS)), "home")
    assert (level, said) == (Level.WRONG, f"{home} is no directory")
    assert "TURNLANE_HOME" in (mend or "")


def test_a_home_below_a_file_cannot_be_looked_into(tmp_path: Path) -> None:
    put(tmp_path / "file")
    home = tmp_path / "file" / "home"

    ((level, said, _),) = bad(inside(patient(home, seen=NONE_RUNS)), "home")
    assert level is Level.WRONG
    assert "Not a directory" in said


def test_a_home_that_cannot_be_written_is_wrong() -> None:
    with as_somebody() as root:
        home = root / "home"
        home.mkdir(mode=0o500)

        assert bad(inside(patient(home, seen=NONE_RUNS)), "home") == [
            (Level.WRONG, f"{home} cannot be written", f"chmod u+rwx {home}")
        ]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give a directory away")
def test_a_home_of_another_user_is_wrong(home: Path) -> None:
    os.chown(home, os.getuid() + 1, -1)

    ((level, said, _),) = bad(inside(patient(home, seen=NONE_RUNS)), "home")
    assert (level, said) == (Level.WRONG, f"{home} belongs to another user")


@pytest.mark.parametrize("mode", [0o750, 0o705, 0o701])
def test_a_home_that_others_may_look_into_is_to_be_closed(mode: int, home: Path) -> None:
    home.chmod(mode)

    assert bad(inside(patient(home)), "home") == [
        (Level.WARNING, f"others may look into {home}", f"chmod 700 {home}")
    ]


@pytest.mark.parametrize("length", [80, 99])
def test_a_home_too_long_for_a_control_socket_is_wrong(length: int, tmp_path: Path) -> None:
    home = Path("/", "h" * length)
    found = bad(inside(patient(home, seen=NONE_RUNS)), "home")

    assert [(level, mend) for level, _, mend in found] == (
        [] if length == 80 else [(Level.WRONG, "set TURNLANE_HOME to a shorter path")]
    )


def test_a_home_that_cannot_be_made_is_wrong(tmp_path: Path) -> None:
    dangling = tmp_path / "link"
    dangling.symlink_to(tmp_path / "gone")
    with as_somebody() as root:
        (root / "closed").mkdir(mode=0o500)
        ((level, said, _),) = bad(
            inside(patient(root / "closed" / "a" / "home", seen=NONE_RUNS)), "home"
        )

    assert level is Level.WRONG
    assert said.endswith("closed cannot be written")
    ((level, said, _),) = bad(inside(patient(dangling, seen=NONE_RUNS)), "home")
    assert (level, said) == (Level.WRONG, f"{dangling} is a link that leads nowhere")


# Files with secrets.


def described(kind: str, path: Path) -> AccountSpec:
    if kind == "key":
        return AccountSpec(key=f"file:{path}")
    return AccountSpec(auth_json=str(path))


@pytest.mark.parametrize("name", [*PRIVATE, "accounts/work.key", "accounts/work.json"])
@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604, 0o620])
def test_a_private_file_that_others_may_use_is_wrong(name: str, mode: int, home: Path) -> None:
    path = put(home / name, mode)

    assert bad(inside(patient(home)), "secrets") == [
        (Level.WRONG, f"{path} can be read by others", f"chmod 600 {path}")
    ]


@pytest.mark.parametrize("kind", ["auth_json", "key"])
def test_so_is_one_that_an_account_refers_to(kind: str, home: Path) -> None:
    path = put(home.parent / "elsewhere", 0o644)
    spec = described(kind, path)
    AccountRegistry(home).put(AccountId("work"), spec)

    assert [said for _, said, _ in bad(inside(patient(home)), "secrets")] == [
        f"{path} can be read by others"
    ]
    path.chmod(0o600)
    assert bad(inside(patient(home)), "secrets") == []


@pytest.mark.parametrize(
    ("kind", "mend"),
    [
        ("auth_json", "sign in again (codex login), then turnlane accounts import work"),
        ("key", "turnlane accounts add work"),
    ],
)
def test_a_credential_that_is_not_there_is_named(kind: str, mend: str, home: Path) -> None:
    path = home.parent / "gone"
    spec = described(kind, path)
    AccountRegistry(home).put(AccountId("work"), spec)

    ((level, said, how),) = bad(inside(patient(home)), "secrets")
    assert (level, how) == (Level.WRONG, mend)
    assert said.startswith(f"{path} of account work is not there")


def test_a_credential_in_the_environment_is_no_file(home: Path) -> None:
    AccountRegistry(home).put(AccountId("work"), AccountSpec(key="env:SOME_KEY"))

    assert bad(inside(patient(home)), "secrets") == []


def test_a_book_that_cannot_be_read_does_not_end_the_examination(home: Path) -> None:
    put(home / REGISTRY_NAME).write_text("no registry")

    assert bad(inside(patient(home)), "secrets") == []


# The lock.


def test_the_lock_of_one_that_does_not_answer_is_wrong(home: Path) -> None:
    held = seen(None, held_by="9")

    assert bad(inside(patient(home, seen=held)), "lock") == [
        (
            Level.WRONG,
            "pid 9 holds this home and does not answer",
            "look at it first: ps -p 9; kill -9 9, then turnlane serve",
        )
    ]


def test_a_file_that_is_left_is_no_lock(home: Path) -> None:
    put(home / "lock").write_text("9\n")
    (found,) = (x for x in inside(patient(home, seen=NONE_RUNS)) if x.about == "lock")

    assert (found.level, found.said) == (Level.GOOD, "free: no turnlane holds this home")


# The port.


def port_of(home: Path, taken: Listener | None, **changes: object) -> list[tuple[str, str]]:
    asked = patient(home, **{"seen": NONE_RUNS, "listener": lambda _host, _port: taken, **changes})
    return [(x.level.value, x.said) for x in inside(asked) if x.about == "port"]


def test_a_free_port_is_good(home: Path) -> None:
    assert port_of(home, None) == [("good", "127.0.0.1:10110 is free")]


@pytest.mark.parametrize(
    ("taken", "by"),
    [
        (Listener(pid=5, name="python3"), "another program, pid 5 (python3)"),
        (Listener(pid=5), "another program, pid 5"),
        (Listener(), "another program"),
        (Listener(pid=5, turnlane=True), "a turnlane with another home, pid 5"),
    ],
)
def test_whoever_has_the_port_is_named(taken: Listener, by: str, home: Path) -> None:
    assert port_of(home, taken) == [("wrong", f"127.0.0.1:10110 is taken by {by}")]


def test_the_next_port_is_proposed(home: Path) -> None:
    asked = patient(home, seen=NONE_RUNS, listener=lambda _host, _port: Listener())

    ((_, _, mend),) = bad(inside(asked), "port")
    assert mend == "turnlane serve --port 10111"


def test_an_address_that_nobody_can_have_is_wrong(home: Path) -> None:
    found = port_of(home, Listener(problem="Permission denied"))

    assert found == [("wrong", "nobody can listen on 127.0.0.1:10110: Permission denied")]


def test_the_port_of_the_holder_that_does_not_answer_is_no_second_fault(home: Path) -> None:
    found = port_of(home, Listener(pid=9), seen=seen(None, held_by="9"))

    assert found == [("warning", "127.0.0.1:10110 is kept by that pid 9")]


def test_the_port_of_one_that_runs_and_does_not_serve_says_why(home: Path) -> None:
    assert port_of(home, None, seen=seen(problem="it ends")) == [("warning", "it ends")]
    assert port_of(home, None, seen=seen(RUNNING))[0][0] == "good"


def test_without_a_configuration_there_is_no_port_to_look_at(home: Path) -> None:
    assert port_of(home, None, config=BROKEN)[0][0] == "warning"


# Open files.


@pytest.mark.parametrize("most", [FEW_FILES, None])
def test_enough_files_are_good(most: int | None, home: Path) -> None:
    assert bad(inside(patient(home, most_files=most)), "files") == []


def test_too_few_files_are_warned_of(home: Path) -> None:
    assert bad(inside(patient(home, most_files=FEW_FILES - 1)), "files") == [
        (Level.WARNING, "only 4095 files may be open", f"ulimit -Hn {FEW_FILES}")
    ]


def test_the_limit_of_this_machine_is_read() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)

    assert most_files() == (None if hard == resource.RLIM_INFINITY else hard)
