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
from tests.proxy.status.kit import bad, patient, seen, told
from tests.testkit.snapshots import Snapshot
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


def test_a_healthy_turnlane_has_no_findings(home: Path) -> None:
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


def test_an_editor_is_recommended_only_for_a_file(home: Path) -> None:
    ((_, _, missing),) = bad(inside(patient(home, config=BROKEN, file=home / "x")), "config")
    ((_, _, folder),) = bad(inside(patient(home, config=BROKEN, file=home)), "config")

    assert missing == f"ls -ld {home}/x"
    assert folder == f"ls -ld {home}"


def test_the_source_of_a_good_configuration_is_named(home: Path, snapshot: Snapshot) -> None:
    set_up = patient(home, environment={"TURNLANE_UPSTREAM": "http://up"})
    asked = (patient(home, file=Path("/x.toml")), patient(home), set_up)
    found = [x for each in asked for x in inside(each) if x.about == "config"]

    assert {x.level for x in found} == {Level.GOOD}
    snapshot("doctor", *told(found))


# What is wrong, and what helps.


@pytest.mark.parametrize(
    ("changes", "about", "level", "mend"),
    [
        ({"seen": seen(journal_problem="<why>")}, "journal", Level.WRONG, "mv "),
        ({"seen": seen(None, held_by="9")}, "lock", Level.WRONG, "kill -9 9"),
        ({"most_files": FEW_FILES - 1}, "files", Level.WARNING, f"ulimit -Hn {FEW_FILES}"),
        ({"seen": NONE_RUNS, "config": BROKEN}, "port", Level.WARNING, None),
        ({"seen": seen(problem="<why>")}, "port", Level.WARNING, None),
        (
            {"seen": seen(None, held_by="9"), "listener": lambda *_: Listener(pid=9)},
            "port",
            Level.WARNING,
            None,
        ),
        *(
            ({"seen": NONE_RUNS, "listener": lambda *_, x=taken: x}, "port", Level.WRONG, mend)
            for taken, mend in (
                (Listener(pid=5, name="python3"), "turnlane serve --port 10111"),
                (Listener(pid=5), "turnlane serve --port 10111"),
                (Listener(), "turnlane serve --port 10111"),
                (Listener(pid=5, turnlane=True), "turnlane serve --port 10111"),
                (Listener(problem="<why>"), "set server.host"),
            )
        ),
    ],
    ids=[
        *("journal", "lock", "files", "no-config", "not-serving", "hangs"),
        *("program", "nameless", "unknown", "turnlane", "address"),
    ],
)
def test_what_is_wrong_comes_with_what_helps(
    changes: dict[str, object],
    about: str,
    level: Level,
    mend: str | None,
    home: Path,
    snapshot: Snapshot,
) -> None:
    findings = list(inside(patient(home, **changes)))

    ((found, _, how),) = bad(iter(findings), about)
    assert found is level
    assert how is None if mend is None else mend in (how or "")
    snapshot("doctor", *told(findings, about), home=home)


@pytest.mark.parametrize(
    ("changes", "about"),
    [
        ({"seen": NONE_RUNS}, "port"),
        ({"most_files": FEW_FILES}, "files"),
        ({"most_files": None}, "files"),
        ({"seen": NONE_RUNS}, "lock"),
    ],
)
def test_what_is_as_it_should_be_is_good(
    changes: dict[str, object], about: str, home: Path
) -> None:
    put(home / "lock").write_text("9\n")  # left by a process; not a lock

    assert bad(inside(patient(home, **changes)), about) == []


# The home.


def test_a_missing_home_is_no_fault_and_is_not_created(tmp_path: Path, snapshot: Snapshot) -> None:
    home = tmp_path / "home"
    found = list(inside(patient(home, seen=NONE_RUNS)))

    assert bad(iter(found), "home") == []
    assert not home.exists()
    snapshot("doctor", *told(found), home=home)


@pytest.mark.parametrize("below", ["", "home"], ids=["file", "below-a-file"])
def test_a_file_cannot_be_the_home(below: str, tmp_path: Path, snapshot: Snapshot) -> None:
    home = put(tmp_path / "file") / below
    findings = list(inside(patient(home, seen=NONE_RUNS)))

    ((level, _, mend),) = bad(iter(findings), "home")
    assert level is Level.WRONG
    assert "TURNLANE_HOME" in (mend or "")
    snapshot("doctor", *told(findings, "home"), folder=tmp_path)


def test_a_home_that_is_not_writable_is_wrong(snapshot: Snapshot) -> None:
    with as_somebody() as root:
        home = root / "home"
        home.mkdir(mode=0o500)
        findings = list(inside(patient(home, seen=NONE_RUNS)))

    ((level, _, mend),) = bad(iter(findings), "home")
    assert (level, mend) == (Level.WRONG, f"chmod u+rwx {home}")
    snapshot("doctor", *told(findings, "home"), home=home)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give a directory away")
def test_a_home_of_another_user_is_wrong(home: Path) -> None:
    os.chown(home, os.getuid() + 1, -1)

    ((level, said, _),) = bad(inside(patient(home, seen=NONE_RUNS)), "home")
    assert level is Level.WRONG
    assert str(home) in said


@pytest.mark.parametrize("mode", [0o750, 0o705, 0o701])
def test_a_home_that_others_can_enter_should_be_closed(
    mode: int, home: Path, snapshot: Snapshot
) -> None:
    home.chmod(mode)
    findings = list(inside(patient(home)))

    ((level, _, mend),) = bad(iter(findings), "home")
    assert (level, mend) == (Level.WARNING, f"chmod 700 {home}")
    snapshot("doctor", *told(findings, "home"), home=home)


@pytest.mark.parametrize("length", [80, 99])
def test_a_home_too_long_for_a_control_socket_is_wrong(length: int, snapshot: Snapshot) -> None:
    home = Path("/", "h" * length)
    findings = list(inside(patient(home, seen=NONE_RUNS)))

    assert [level for level, _, _ in bad(iter(findings), "home")] == (
        [] if length == 80 else [Level.WRONG]
    )
    snapshot("doctor", *told(findings, "home"), home=home)


def test_a_home_that_cannot_be_created_is_wrong(tmp_path: Path) -> None:
    dangling = tmp_path / "link"
    dangling.symlink_to(tmp_path / "gone")
    with as_somebody() as root:
        (root / "closed").mkdir(mode=0o500)
        ((level, said, _),) = bad(
            inside(patient(root / "closed" / "a" / "home", seen=NONE_RUNS)), "home"
        )

    assert level is Level.WRONG
    assert str(root / "closed") in said
    ((level, said, _),) = bad(inside(patient(dangling, seen=NONE_RUNS)), "home")
    assert level is Level.WRONG
    assert str(dangling) in said


# Files with secrets.


def described(kind: str, path: Path) -> AccountSpec:
    if kind == "key":
        return AccountSpec(key=f"file:{path}")
    return AccountSpec(auth_json=str(path))


@pytest.mark.parametrize("name", [*PRIVATE, "accounts/work.key", "accounts/work.json"])
@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604, 0o620])
def test_a_private_file_that_others_may_use_is_wrong(name: str, mode: int, home: Path) -> None:
    path = put(home / name, mode)

    ((level, _, mend),) = bad(inside(patient(home)), "secrets")
    assert (level, mend) == (Level.WRONG, f"chmod 600 {path}")


@pytest.mark.parametrize(
    ("kind", "command"), [("auth_json", "accounts import work"), ("key", "accounts add work")]
)
def test_a_file_that_an_account_refers_to_must_be_there_and_private(
    kind: str, command: str, home: Path, snapshot: Snapshot
) -> None:
    path = home.parent / "elsewhere"
    AccountRegistry(home).put(AccountId("work"), described(kind, path))
    missing = list(inside(patient(home)))
    put(path, 0o644)
    shared = list(inside(patient(home)))
    path.chmod(0o600)

    ((level, _, mend),) = bad(iter(missing), "secrets")
    assert level is Level.WRONG
    assert command in (mend or "")
    snapshot("doctor", *told(missing, "secrets"), *told(shared, "secrets"), path=path)
    assert bad(inside(patient(home)), "secrets") == []


def test_a_credential_in_the_environment_is_no_file(home: Path) -> None:
    AccountRegistry(home).put(AccountId("work"), AccountSpec(key="env:SOME_KEY"))

    assert bad(inside(patient(home)), "secrets") == []


def test_a_registry_that_cannot_be_read_does_not_end_the_examination(home: Path) -> None:
    put(home / REGISTRY_NAME).write_text("no registry")

    assert bad(inside(patient(home)), "secrets") == []


# Open files.


def test_the_limit_of_this_machine_is_read() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)

    assert most_files() == (None if hard == resource.RLIM_INFINITY else hard)
