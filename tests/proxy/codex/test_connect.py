"""Codex is connected and restored, whatever its configuration was and wherever a kill falls."""

from __future__ import annotations

import json
import os
import tomllib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from proxy.codex.connect import connect, settle
from proxy.codex.files import MOST_BYTES, Disk
from proxy.codex.saved import NOTE_NAME, read_note
from proxy.codex.toml_edit import KEY
from proxy.errors import RoutingError
from tests.proxy.codex.kit import OTHER_URL, URL, WALL, FragileDisk, Homes, Killed
from tests.testkit.snapshots import Snapshot
from tests.testkit.users import as_somebody

TABLES = b"""#:schema https://example.invalid/config.json
# The model that I like.
model = "gpt-5.5"   # this one

[projects."/home/user/work"]
trust_level = "trusted"
"""
ONLY_TABLES = b"# about history\n[history]\npersistence = 'none'\n\n[[hooks]]\nname = 'a'\n"
CRLF = b'model = "gpt-5.5"\r\n\r\n[history]\r\npersistence = "none"\r\n'
WITH_BOM = b'\xef\xbb\xbfmodel = "gpt-5.5"\n'
NO_LAST_NEWLINE = b'[history]\npersistence = "none"'
PREVIOUS = b'# mine\nopenai_base_url = "https://example.invalid/v1" # a gateway\n[a]\nb = 1.50\n'
QUOTED = b"\"openai_base_url\"   =   'https://example.invalid/v1'\nmodel = 'm'\n"

Prepare = Callable[[Homes], None]


def plain(content: bytes, mode: int = 0o644) -> Prepare:
    def prepare(homes: Homes) -> None:
        homes.codex.mkdir()
        homes.config.write_bytes(content)
        homes.config.chmod(mode)

    return prepare


def no_file(homes: Homes) -> None:
    homes.codex.mkdir()


def no_directory(_homes: Homes) -> None:
    pass


def linked(homes: Homes) -> None:
    """The file as people have it who keep their settings in a repository."""
    homes.codex.mkdir()
    (homes.root / "dotfiles").mkdir()
    (homes.root / "dotfiles" / "codex.toml").write_bytes(TABLES)
    homes.config.symlink_to(Path("..") / "dotfiles" / "codex.toml")


def linked_to_nothing(homes: Homes) -> None:
    homes.codex.mkdir()
    (homes.root / "dotfiles").mkdir()
    homes.config.symlink_to(homes.root / "dotfiles" / "codex.toml")


FILES: dict[str, Prepare] = {
    "comments and tables": plain(TABLES),
    "only tables": plain(ONLY_TABLES),
    "empty": plain(b""),
    "none": no_file,
    "no directory": no_directory,
    "read-only": plain(TABLES, 0o444),
    "private": plain(TABLES, 0o600),
    "link": linked,
    "link to nothing": linked_to_nothing,
    "CRLF": plain(CRLF),
    "byte order mark": plain(WITH_BOM),
    "no last newline": plain(NO_LAST_NEWLINE),
    "previous value": plain(PREVIOUS),
    "previous value, quoted": plain(QUOTED),
}


FEW = {name: FILES[name] for name in ("comments and tables", "none", "link", "previous value")}


@pytest.fixture
def homes(tmp_path: Path) -> Homes:
    return Homes(tmp_path)


@pytest.fixture(params=list(FILES.values()), ids=list(FILES))
def prepared(request: pytest.FixtureRequest, homes: Homes) -> Homes:
    request.param(homes)
    return homes


# On and off.


def test_on_sets_the_root_key_and_changes_no_other_line_mode_or_link(prepared: Homes) -> None:
    files, before = prepared.everything(), read(prepared.config).removeprefix("\ufeff")
    prepared.on()
    after = read(prepared.config).removeprefix("\ufeff")

    assert tomllib.loads(after) == {**tomllib.loads(before), KEY: URL}
    assert [x for x in after.splitlines(keepends=True) if KEY not in x] == [
        x for x in before.splitlines(keepends=True) if KEY not in x
    ]
    assert set(prepared.everything()) - set(files) <= {"codex/config.toml", "dotfiles/codex.toml"}
    for name, (mode, content) in prepared.everything().items():
        expected = files.get(name, (0o600, b""))
        assert mode == expected[0], name
        assert isinstance(content, str) == isinstance(expected[1], str), name
    assert (prepared.home / NOTE_NAME).stat().st_mode & 0o777 == 0o600


def test_on_and_off_can_be_repeated_and_leave_every_byte_as_it_was(prepared: Homes) -> None:
    before = prepared.everything()
    prepared.on()
    first, note = prepared.everything(), read_note(Disk(), prepared.home)
    prepared.on()
    second, same = prepared.everything(), read_note(Disk(), prepared.home)
    prepared.off()
    restored = prepared.everything()
    prepared.off()

    assert (second, same) == (first, note)
    assert first != before
    assert restored == prepared.everything() == before
    assert prepared.left_behind() == set()


def test_each_step_says_what_was_done(homes: Homes, snapshot: Snapshot) -> None:
    plain(TABLES)(homes)
    said = [homes.off(), homes.on(), homes.on(), homes.off(), homes.off()]

    snapshot("codex", *said, config=homes.config)


def test_another_port_takes_the_place_of_the_first(prepared: Homes) -> None:
    before = prepared.everything()
    prepared.on()
    prepared.on(value=OTHER_URL)

    assert tomllib.loads(read(prepared.config).removeprefix("\ufeff"))[KEY] == OTHER_URL
    prepared.off()
    assert prepared.everything() == before


def test_a_directive_for_editors_stays_the_first_line(homes: Homes) -> None:
    plain(TABLES)(homes)
    homes.on()

    assert read(homes.config).splitlines()[:2] == [
        "#:schema https://example.invalid/config.json",
        f'{KEY} = "{URL}"',
    ]


def test_off_without_on_makes_no_file(homes: Homes) -> None:
    homes.off()

    assert list(homes.root.iterdir()) == []


# A kill at any step.

Act = Callable[[Homes, Disk], object]


def on(homes: Homes, disk: Disk) -> str:
    return homes.on(disk)


def off(homes: Homes, disk: Disk) -> str:
    return homes.off(disk)


def move(homes: Homes, disk: Disk) -> str:
    return homes.on(disk, OTHER_URL)


def connected(homes: Homes) -> None:
    homes.on()


def steps_of(act: Act, homes: Homes) -> int:
    disk = FragileDisk()
    act(homes, disk)
    return disk.steps


def killed(
    root: Path, files: Mapping[str, Prepare], act: Act, begin: Prepare = no_directory
) -> Iterator[tuple[str, Homes, object]]:
    """Yield what a kill at each step of an act leaves, and what was there before `begin`."""
    for name, prepare in files.items():
        dry = made(root / f"{name} dry", prepare)
        begin(dry)
        for step in range(steps_of(act, dry)):
            homes = made(root / f"{name} {step}", prepare)
            before = homes.everything()
            begin(homes)
            with pytest.raises(Killed):
                act(homes, FragileDisk(last=step))
            yield f"{name} {step}", homes, before


@pytest.mark.parametrize(
    ("files", "act", "begin"),
    [(FILES, on, no_directory), (FILES, off, connected), (FEW, move, connected)],
    ids=["on", "off", "another-port"],
)
def test_after_a_kill_at_any_step_off_restores_all(
    files: Mapping[str, Prepare], act: Act, begin: Prepare, tmp_path: Path
) -> None:
    for where, homes, before in killed(tmp_path, files, act, begin):
        homes.off()

        assert homes.everything() == before, where
        assert homes.left_behind() == set(), where


@pytest.mark.parametrize("value", [URL, OTHER_URL])
def test_after_a_kill_at_any_step_of_on_the_next_on_works_and_off_restores_all(
    value: str, tmp_path: Path
) -> None:
    for where, homes, before in killed(tmp_path, FEW, on):
        homes.on(value=value)
        note = read_note(Disk(), homes.home)

        assert tomllib.loads(read(homes.config).removeprefix("\ufeff"))[KEY] == value
        assert note is not None
        assert (note.value, note.phase) == (value, "done"), where
        homes.off()
        assert homes.everything() == before, where


def test_the_next_serve_settles_what_was_begun_and_leaves_what_is_done(tmp_path: Path) -> None:
    for where, homes, before in killed(tmp_path, {"one": plain(TABLES)}, on):
        settle(Disk(), homes.home)

        assert homes.everything() == before, where
        assert read_note(Disk(), homes.home) is None
    done = made(tmp_path / "done", plain(TABLES))
    done.on()
    settle(Disk(), done.home)
    assert URL in read(done.config)


def test_after_a_kill_at_any_step_of_off_a_rewritten_file_loses_only_our_value(
    tmp_path: Path,
) -> None:
    def rewritten(homes: Homes) -> None:
        homes.on()
        homes.config.write_text(f'{KEY} = "{URL}"\nmodel = "gpt-6"\n')

    for where, homes, _ in killed(tmp_path, FEW, off, rewritten):
        homes.off()
        left = f'{KEY} = "https://example.invalid/v1"\n' if "previous" in where else ""

        assert read(homes.config) == f'{left}model = "gpt-6"\n'
        assert homes.left_behind() == set()


def made(root: Path, prepare: Prepare) -> Homes:
    root.mkdir()
    homes = Homes(root)
    prepare(homes)
    return homes


# A disk that fails.


def test_a_step_that_fails_leaves_nothing_changed(tmp_path: Path) -> None:
    for name, prepare in FEW.items():
        dry = made(tmp_path / f"{name} dry", prepare)
        for step in range(steps_of(on, dry)):
            homes = made(tmp_path / f"{name} {step}", prepare)
            before = homes.everything()
            full = FragileDisk(last=step, failure=lambda: OSError("the disk is full"))
            with pytest.raises(RoutingError, match="the disk is full"):
                homes.on(full)

            assert read(homes.config).count(URL) == 0
            homes.off()
            assert homes.everything() == before


def test_a_directory_without_write_permission_is_left_alone(snapshot: Snapshot) -> None:
    with as_somebody() as root:
        homes = Homes(root)
        plain(TABLES)(homes)
        homes.codex.chmod(0o500)
        with pytest.raises(RoutingError) as raised:
            homes.on()
        homes.codex.chmod(0o700)

        assert homes.config.read_bytes() == TABLES
        assert homes.left_behind() == set()
    snapshot("codex", raised.value, codex=homes.codex)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give files away")
def test_a_file_that_root_edits_stays_its_owners(homes: Homes) -> None:
    plain(TABLES)(homes)
    os.chown(homes.config, 12345, 12345)
    homes.on()
    owner = homes.config.stat()
    homes.off()

    assert (owner.st_uid, owner.st_gid) == (12345, 12345)
    assert homes.config.stat().st_uid == 12345


def test_a_file_that_changes_at_the_same_moment_is_not_overwritten(
    homes: Homes, snapshot: Snapshot
) -> None:
    plain(TABLES)(homes)

    class Busy(Disk):
        def write_beside(self, path: Path, content: bytes, *, like: bool) -> Path:
            if path == homes.config:
                homes.config.write_bytes(TABLES + b"[a]\n")
            return super().write_beside(path, content, like=like)

    with pytest.raises(RoutingError) as raised:
        homes.on(Busy())

    snapshot("codex", raised.value, config=homes.config)
    assert homes.config.read_bytes() == TABLES + b"[a]\n"
    assert homes.left_behind() == set()
    assert [path.name for path in homes.codex.iterdir()] == ["config.toml"]


@pytest.mark.parametrize(
    "content",
    [None, b"#" * (MOST_BYTES + 1), b"openai_base_url = 1\n"],
    ids=["directory", "large", "type"],
)
def test_a_file_that_cannot_be_edited_is_left_as_it_is(
    content: bytes | None, homes: Homes, snapshot: Snapshot
) -> None:
    if content is None:
        homes.config.mkdir(parents=True)
    else:
        plain(content)(homes)
    with pytest.raises(RoutingError) as raised:
        homes.on()

    assert content is None or homes.config.read_bytes() == content
    assert homes.left_behind() == set()
    snapshot("codex", raised.value, config=homes.config)


def test_a_path_that_cannot_be_noted_is_refused(homes: Homes, snapshot: Snapshot) -> None:
    config = homes.root / "c\udcff" / "config.toml"

    with pytest.raises(RoutingError) as raised:
        connect(Disk(), homes.home, config, URL, lambda: WALL)
    snapshot("codex", raised.value, root=homes.root)
    assert homes.left_behind() == set()


# A file that was changed since.


def test_a_file_that_became_unreadable_is_left_with_the_line_to_remove(
    homes: Homes, snapshot: Snapshot
) -> None:
    plain(TABLES)(homes)
    homes.on()
    broken = homes.config.read_bytes() + b"model = \n"
    homes.config.write_bytes(broken)
    with pytest.raises(RoutingError) as refused:
        homes.off()

    assert "line 2" in str(refused.value)
    assert URL in str(refused.value)
    assert homes.config.read_bytes() == broken
    assert NOTE_NAME in homes.left_behind()
    by_hand = b"".join(x for x in broken.splitlines(keepends=True) if URL.encode() not in x)
    homes.config.write_bytes(by_hand)
    homes.off()
    assert homes.config.read_bytes() == by_hand
    assert homes.left_behind() == set()


def test_the_value_to_restore_by_hand_is_named(homes: Homes, snapshot: Snapshot) -> None:
    plain(PREVIOUS)(homes)
    homes.on()
    homes.config.write_bytes(homes.config.read_bytes() + b"\xff")

    with pytest.raises(RoutingError) as raised:
        homes.off()
    assert "https://example.invalid/v1" in str(raised.value)
    snapshot("codex", raised.value, config=homes.config)


REWRITTEN = (
    f'model = "gpt-6"\n{KEY} = "{URL}"\n\n[projects."/home/user/other"]\ntrust_level = "t"\n'
)
OWN = f'{KEY} = "{URL}"\n'
CHOSEN = f'{KEY} = "https://example.invalid/v2"\n'


@pytest.mark.parametrize(
    ("prepare", "rewritten", "left"),
    [
        (plain(TABLES), REWRITTEN, REWRITTEN.replace(OWN, "")),
        (plain(PREVIOUS), OWN, f'{KEY} = "https://example.invalid/v1"\n'),
        (plain(TABLES), CHOSEN, CHOSEN),
        (plain(OWN.encode()), f"{OWN}a = 1\n", f"{OWN}a = 1\n"),
        (no_file, f"{OWN}[tui]\n", "[tui]\n"),
    ],
    ids=["rewritten", "previous", "chosen", "own", "made"],
)
def test_a_file_that_the_client_rewrote_loses_only_our_value(
    prepare: Prepare, rewritten: str, left: str, homes: Homes, snapshot: Snapshot
) -> None:
    prepare(homes)
    homes.on()
    homes.config.write_text(rewritten)
    said = homes.off()

    assert read(homes.config) == left
    assert homes.left_behind() == set()
    snapshot("codex", said, config=homes.config)


def test_a_client_that_replaced_the_link_by_a_file_has_both_put_back(homes: Homes) -> None:
    linked(homes)
    homes.on()
    homes.config.unlink()
    homes.config.write_text(f'{KEY} = "{URL}"\nmodel = "gpt-6"\n')
    homes.off()

    assert read(homes.config) == 'model = "gpt-6"\n'
    assert (homes.root / "dotfiles" / "codex.toml").read_bytes() == TABLES


def test_on_does_not_take_an_unreadable_file_for_its_own(homes: Homes) -> None:
    plain(TABLES)(homes)
    homes.on()
    homes.config.write_bytes(b"a = \n")
    with pytest.raises(RoutingError):
        homes.on()

    assert homes.config.read_bytes() == b"a = \n"


def test_a_value_that_was_removed_stays_out_and_on_starts_afresh(homes: Homes) -> None:
    plain(TABLES)(homes)
    homes.on()
    homes.config.write_text('model = "gpt-6"\n')
    homes.on()
    homes.off()

    assert read(homes.config) == 'model = "gpt-6"\n'


def test_a_file_that_was_removed_is_not_created_again(homes: Homes, snapshot: Snapshot) -> None:
    plain(TABLES)(homes)
    homes.on()
    homes.config.unlink()

    snapshot("codex", homes.off(), config=homes.config)
    assert homes.everything() == {}


def test_a_mode_that_was_changed_since_is_kept(homes: Homes) -> None:
    plain(TABLES)(homes)
    homes.on()
    homes.config.chmod(0o640)
    homes.off()

    assert homes.everything() == {"codex/config.toml": (0o640, TABLES)}


# The note.


def test_one_home_connects_one_configuration(homes: Homes, snapshot: Snapshot) -> None:
    plain(TABLES)(homes)
    homes.on()
    other = homes.root / "other" / "config.toml"
    with pytest.raises(RoutingError, match=str(homes.config)) as raised:
        connect(Disk(), homes.home, other, URL, lambda: WALL)
    snapshot("codex", raised.value, config=homes.config)

    assert not other.exists()


def test_the_note_has_the_original_and_the_time_of_the_change(homes: Homes) -> None:
    plain(PREVIOUS)(homes)
    homes.on()
    note = read_note(Disk(), homes.home)

    assert note is not None
    assert (note.original, note.previous) == (PREVIOUS, "https://example.invalid/v1")
    assert (note.value, note.wall, note.phase) == (URL, WALL, "done")


@pytest.mark.parametrize("content", [b"", b"{}", b"\xff", b"[" * 100_000])
def test_an_invalid_note_is_named_and_nothing_is_touched(content: bytes, homes: Homes) -> None:
    plain(TABLES)(homes)
    homes.on()
    before = homes.everything()
    (homes.home / NOTE_NAME).write_bytes(content)
    for act in (homes.on, homes.off):
        with pytest.raises(RoutingError, match=NOTE_NAME):
            act()

    assert homes.everything() == before
    assert (homes.home / NOTE_NAME).read_bytes() == content


def test_a_note_survives_a_turnlane_that_knows_more(homes: Homes) -> None:
    plain(TABLES)(homes)
    homes.on()
    path = homes.home / NOTE_NAME
    path.write_text(json.dumps({**json.loads(path.read_text()), "more": 1}))
    homes.off()

    assert homes.config.read_bytes() == TABLES


def test_a_file_in_place_of_the_home_is_refused(homes: Homes) -> None:
    homes.home.write_text("a file")

    for act in (homes.on, homes.off):
        with pytest.raises(RoutingError):
            act()


def read(path: Path) -> str:
    return path.read_bytes().decode() if path.exists() else ""
