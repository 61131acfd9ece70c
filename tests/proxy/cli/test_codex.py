"""`turnlane codex`: what it prints, where, and the code it exits with."""

from __future__ import annotations

import json
import logging
import os
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
from typer.testing import CliRunner, Result

from lifecycle import Ask, PrincipalId
from proxy.cli.codex import on
from proxy.cli.main import app
from proxy.codex.files import Disk
from proxy.codex.place import Environment, turn_on
from proxy.codex.saved import NOTE_NAME
from proxy.codex.toml_edit import KEY
from proxy.config.load import load
from proxy.control.identity import Answered, Answerer
from proxy.errors import ConfigError, RoutingError
from proxy.home.lock import locked
from proxy.keys import KEYS_NAME, KeyRing
from proxy.process.serve import serve
from proxy.runtime import Runtime
from tests.proxy.codex.kit import URL, WALL, Homes
from tests.proxy.codex.test_processes import FakeProcess
from tests.testkit.listeners import HEALTHY, answering, closed_port
from tests.testkit.snapshots import Snapshot

SECONDS = 20
BEFORE = b"# mine\n[tui]\n"


@pytest.fixture
def homes(tmp_path: Path) -> Homes:
    homes = Homes(tmp_path)
    homes.codex.mkdir()
    homes.config.write_bytes(BEFORE)
    return homes


def codex(homes: Homes, *arguments: str) -> Result:
    environment = {
        "TURNLANE_HOME": str(homes.home),
        "CODEX_HOME": str(homes.codex),
        "COLUMNS": "200",
    }
    runner = CliRunner(env=environment)
    return runner.invoke(app, ["codex", *arguments], catch_exceptions=False)


def place(homes: Homes, problem: str | None = None, **environment: str) -> Environment:
    """A place whose ports all answer alike."""
    answer = Answered(by=Answerer.OTHER if problem else Answerer.TURNLANE, problem=problem)
    return Environment(
        home=homes.home,
        environment={"CODEX_HOME": str(homes.codex), **environment},
        wall=lambda: WALL,
        asks=lambda _url: answer,
    )


# On.


def test_on_connects_once_turnlane_answers_on_the_port(homes: Homes) -> None:
    with answering(HEALTHY) as port:
        done = codex(homes, "on", "--port", str(port))

    assert done.exit_code == 0
    assert tomllib.loads(homes.config.read_text())[KEY] == f"http://127.0.0.1:{port}/v1"
    assert str(homes.config) in done.stdout


def test_on_refuses_a_port_where_nothing_listens(homes: Homes) -> None:
    port = closed_port()
    done = codex(homes, "on", "--port", str(port))

    assert (done.exit_code, done.stdout) == (1, "")
    assert f"127.0.0.1:{port}" in done.stderr
    assert "turnlane serve" in done.stderr
    assert homes.config.read_bytes() == BEFORE
    assert not (homes.home / NOTE_NAME).exists()


@pytest.mark.parametrize("port", ["0", "65536", "x"])
def test_an_invalid_port_is_a_usage_error(port: str, homes: Homes) -> None:
    assert codex(homes, "on", "--port", port).exit_code == 2
    assert homes.config.read_bytes() == BEFORE


def test_on_with_keys_points_to_show(homes: Homes, snapshot: Snapshot) -> None:
    KeyRing(homes.home).add("desk")
    done = codex(homes, "on")

    assert (done.exit_code, done.stdout) == (1, "")
    assert "turnlane codex show" in done.stderr
    assert homes.config.read_bytes() == BEFORE
    snapshot("codex", done.stderr)


def test_on_without_a_running_turnlane_looks_at_the_default_port(homes: Homes) -> None:
    turn_on(place(homes), None)

    assert tomllib.loads(homes.config.read_text())[KEY] == URL


@pytest.mark.parametrize("named", [True, False], ids=["CODEX_HOME", "HOME"])
def test_on_does_not_create_the_home_of_codex(
    named: bool, homes: Homes, snapshot: Snapshot
) -> None:
    user = homes.root / "user"
    user.mkdir()
    wrong = place(homes, CODEX_HOME=str(user / "typo") if named else "", HOME=str(user))
    with pytest.raises(RoutingError) as raised:
        turn_on(wrong, None)

    assert list(user.iterdir()) == []
    snapshot("codex", raised.value, root=homes.root)


def provided(name: str, url: str) -> str:
    return f'model_provider = "{name}"\n[model_providers.{name}]\nbase_url = "{url}"\n'


def test_on_writes_nothing_if_a_provider_decides(homes: Homes, snapshot: Snapshot) -> None:
    homes.config.write_text(provided("mine", "https://example.invalid/v1"))
    with pytest.raises(RoutingError, match=URL) as raised:
        turn_on(place(homes), None)
    homes.config.write_text(before := provided("mine", URL))

    snapshot("codex", raised.value, turn_on(place(homes), None), config=homes.config)
    assert homes.config.read_text() == before
    assert not (homes.home / NOTE_NAME).exists()


def test_on_warns_of_a_profile_and_of_a_turnlane_with_another_home(
    homes: Homes, capsys: pytest.CaptureFixture[str], snapshot: Snapshot
) -> None:
    homes.config.write_text('profile = "work"\n')

    assert on(place(homes), None) == 0
    said = capsys.readouterr().err
    snapshot("codex", said, config=homes.config, home=homes.home)


def test_keys_that_cannot_be_read_are_named(homes: Homes) -> None:
    homes.home.mkdir()
    (homes.home / KEYS_NAME).write_bytes(b"{")

    for command in ("on", "show"):
        done = codex(homes, command)
        assert (done.exit_code, done.stdout) == (1, "")
        assert KEYS_NAME in done.stderr
    with pytest.raises(ConfigError):
        turn_on(place(homes), None)


def test_on_names_the_clients_that_have_to_be_restarted(
    homes: Homes, capsys: pytest.CaptureFixture[str], snapshot: Snapshot
) -> None:
    old = FakeProcess(
        ["codex", "app-server"],
        environment={"CODEX_HOME": str(homes.codex)},
        user=os.getuid(),
        started=WALL - 1,
    )
    code = on(replace(place(homes), walk=lambda: [old]), None)
    said = capsys.readouterr()

    assert code == 0
    assert str(homes.config) in said.out
    assert "7 (app-server)" in said.err
    snapshot("codex", said.out, said.err, config=homes.config, home=homes.home)


# Off.


def test_off_needs_no_answer_and_can_be_repeated(homes: Homes) -> None:
    turn_on(place(homes), None)
    with locked(homes.home):
        done, again = codex(homes, "off"), codex(homes, "off")

    assert (done.exit_code, again.exit_code) == (0, 0)
    assert homes.config.read_bytes() == BEFORE


def test_off_says_what_has_to_be_done_by_hand(homes: Homes, snapshot: Snapshot) -> None:
    turn_on(place(homes), None)
    homes.config.write_bytes(homes.config.read_bytes() + b"a = \n")
    done = codex(homes, "off")

    assert (done.exit_code, done.stdout) == (1, "")
    snapshot("codex", done.stderr, config=homes.config)


def test_off_looks_where_on_wrote_and_not_where_codex_home_is_now(homes: Homes) -> None:
    turn_on(place(homes), None)
    other = Homes(homes.root / "other")
    runner = CliRunner(env={"TURNLANE_HOME": str(homes.home), "CODEX_HOME": str(other.codex)})

    assert runner.invoke(app, ["codex", "off"]).exit_code == 0
    assert homes.config.read_bytes() == BEFORE


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (f'# mine\n{KEY} = "{URL}"\n', 2),
        (provided("turnlane", URL), 1),
    ],
    ids=["root-key", "provider"],
)
def test_off_names_the_line_that_it_did_not_write(
    text: str, line: int, homes: Homes, snapshot: Snapshot
) -> None:
    homes.config.write_text(text)
    done = codex(homes, "off")

    assert (done.exit_code, done.stdout) == (1, "")
    assert f"line {line} of {homes.config}" in done.stderr
    assert homes.config.read_text() == text
    snapshot("codex", done.stderr, config=homes.config)


def test_off_names_a_provider_that_is_left_when_the_key_is_restored(homes: Homes) -> None:
    turn_on(place(homes), None)
    text = provided("turnlane", URL)
    homes.config.write_text(f'{KEY} = "{URL}"\n{text}')
    done = codex(homes, "off")

    assert done.exit_code == 1
    assert f"line 1 of {homes.config}" in done.stderr
    assert homes.config.read_text() == text


@pytest.mark.parametrize(
    "text",
    [
        f'{KEY} = "https://example.invalid/v1"\n',
        provided("mine", "http://127.0.0.1:11434/v1"),
        "",
        "a = \n",
    ],
)
def test_off_ignores_a_configuration_that_leads_elsewhere(text: str, homes: Homes) -> None:
    homes.config.write_text(text)
    done = codex(homes, "off")

    assert done.exit_code == 0
    assert done.stderr == ""


@pytest.mark.parametrize("on_first", [True, False], ids=["connected", "not-connected"])
def test_off_says_what_to_do_about_an_invalid_note(
    on_first: bool, homes: Homes, snapshot: Snapshot
) -> None:
    if on_first:
        turn_on(place(homes), None)
    homes.home.mkdir(exist_ok=True)
    (homes.home / NOTE_NAME).write_bytes(b"{")
    done = codex(homes, "off")

    assert (done.exit_code, done.stdout) == (1, "")
    assert str(homes.home / NOTE_NAME) in done.stderr
    assert (f"line 1 of {homes.config}" in done.stderr) is on_first
    snapshot("codex", done.stderr, config=homes.config, home=homes.home)


# Show.


def shown(homes: Homes) -> dict[str, Any]:
    done = codex(homes, "show", "--json")
    assert done.exit_code == 0
    document: dict[str, Any] = json.loads(done.stdout)
    return document


def test_show_before_on_and_after(homes: Homes) -> None:
    before = shown(homes)
    turn_on(place(homes), None)
    after = shown(homes)

    assert (before["url"], before["note"], before["provider"]) == (None, None, None)
    assert before["adoption"]["state"] == "not-applicable"
    assert (after["url"], after["value"]) == (URL, URL)
    assert after["note"]["agrees"]
    assert after["note"]["since"] == WALL


def test_show_is_for_people_too(homes: Homes, snapshot: Snapshot) -> None:
    unconnected = codex(homes, "show").stdout
    turn_on(place(homes), None)
    more = 'profile = "x"\n[profiles.x]\nmodel_provider = "y"\n'
    homes.config.write_text(f'{KEY} = "{URL}"\n{more}')
    connected = codex(homes, "show").stdout

    # The other lines depend on what listens and runs on this machine.
    fixed = ("configuration", "Codex goes to", "note", "profile", "bypass")
    lines = [line for line in connected.splitlines() if line.startswith(fixed)]
    snapshot("codex", unconnected, *lines, config=homes.config)


@pytest.mark.parametrize("what", ["changed", "removed", "interrupted"])
def test_show_says_when_the_note_does_not_agree(
    what: str, homes: Homes, snapshot: Snapshot
) -> None:
    turn_on(place(homes), None)
    file = homes.home / NOTE_NAME
    if what == "interrupted":
        file.write_text(file.read_text().replace('"done"', '"intent"'))
    else:
        gone = "" if what == "removed" else f'{KEY} = "https://example.invalid/v1"\n'
        homes.config.write_text(gone)
    note = shown(homes)["note"]

    assert not note["agrees"]
    assert note["problem"] in codex(homes, "show").stdout
    snapshot("codex", note["problem"])


def test_show_says_when_codex_home_has_changed(homes: Homes, snapshot: Snapshot) -> None:
    turn_on(place(homes), None)
    other = Homes(homes.root / "other")
    runner = CliRunner(env={"TURNLANE_HOME": str(homes.home), "CODEX_HOME": str(other.codex)})
    said = runner.invoke(app, ["codex", "show"])

    (note,) = (line for line in said.stdout.splitlines() if line.startswith("note "))
    assert said.exit_code == 0
    snapshot("codex", note, config=homes.config, other=other.config)


def test_show_says_what_cannot_be_read(homes: Homes) -> None:
    turn_on(place(homes), None)
    homes.config.write_bytes(b"\xff")
    (homes.home / NOTE_NAME).write_bytes(b"{")
    said = codex(homes, "show")

    assert said.exit_code == 0
    assert "UTF-8" in said.stdout
    assert NOTE_NAME in said.stdout
    assert "adoption       unknown" in said.stdout


def test_show_prints_a_provider_when_keys_are_required(homes: Homes, snapshot: Snapshot) -> None:
    KeyRing(homes.home).add("desk")
    text = codex(homes, "show").stdout
    table = tomllib.loads(shown(homes)["provider"])
    provider = table["model_providers"][table["model_provider"]]

    assert provider["base_url"] == URL
    assert provider["env_http_headers"] == {"x-turnlane-key": "TURNLANE_KEY"}
    assert shown(homes)["provider"].rstrip() in text
    snapshot("codex", text.partition("\n\n")[2], config=homes.config)


# Around a turnlane that serves.


class WatchedDisk(Disk):
    """Tells what the configuration became, each time that it is replaced."""

    def __init__(self, config: Path) -> None:
        self._config = config
        self._token = trio.lowlevel.current_trio_token()
        self._tell, self.contents = trio.open_memory_channel[bytes](9)

    def replace(self, fresh: Path, path: Path) -> None:
        super().replace(fresh, path)
        if path == self._config:
            self._token.run_sync_soon(self._tell.send_nowait, path.read_bytes())


class Heard(logging.Handler):
    """Sets an event at the first error."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.text = ""
        self.heard = trio.Event()

    def emit(self, record: logging.LogRecord) -> None:
        self.text += record.getMessage()
        self.heard.set()


@pytest.fixture
def quiet() -> Iterator[None]:
    logger = logging.getLogger("proxy")
    logger.setLevel(logging.ERROR)
    yield
    logger.setLevel(logging.NOTSET)


async def serving(nursery: trio.Nursery, homes: Homes, where: Environment | None = None) -> Runtime:
    flags: dict[str, dict[str, object]] = {"server": {"port": 0}}
    config = load(None, {"TURNLANE_HOME": str(homes.home)}, flags)
    running: Runtime = await nursery.start(partial(serve, config, lambda _url: None, codex=where))
    return running


async def test_on_and_show_find_the_turnlane_that_runs(homes: Homes, quiet: None) -> None:
    with trio.fail_after(SECONDS):
        async with trio.open_nursery() as nursery:
            running = await serving(nursery, homes)
            done = await trio.to_thread.run_sync(codex, homes, "on")
            seen = await trio.to_thread.run_sync(shown, homes)
            said = await trio.to_thread.run_sync(codex, homes, "show")
            KeyRing(homes.home).add("desk")
            keyed = await trio.to_thread.run_sync(shown, homes)
            running.admission.close_door(SECONDS)

    assert done.exit_code == 0
    assert seen["url"] not in {None, URL}
    assert seen["note"]["agrees"]
    assert seen["adoption"]["state"] != "not-applicable"
    assert (seen["way"], seen["serving"]) == ("here", True)
    assert "goes through turnlane\n" in said.stdout
    assert (keyed["way"], keyed["mend"]) == ("no-key", "turnlane codex show")
    assert shown(homes)["url"] == seen["url"]


def test_show_says_that_no_turnlane_serves(homes: Homes) -> None:
    turn_on(place(homes), closed_port())
    seen = shown(homes)

    assert (seen["way"], seen["answered"], seen["serving"]) == ("nobody", "nobody", False)
    assert seen["said"] in codex(homes, "show").stdout


async def test_serve_connects_codex_and_puts_it_back_when_the_drain_begins(
    homes: Homes, nursery: trio.Nursery, quiet: None
) -> None:
    disk = WatchedDisk(homes.config)
    where = replace(place(homes), files=disk, asks=None)
    with trio.fail_after(SECONDS):
        running = await serving(nursery, homes, where)
        connected = await disk.contents.receive()
        async with running.admission.lease(Ask(principal=PrincipalId("local"))):
            running.admission.close_door(SECONDS)
            put_back = await disk.contents.receive()

    assert tomllib.loads(connected.decode())[KEY].startswith("http://127.0.0.1:")
    assert put_back == BEFORE


async def test_serve_puts_codex_back_when_it_is_ended_at_once(homes: Homes, quiet: None) -> None:
    disk = WatchedDisk(homes.config)
    with trio.fail_after(SECONDS):
        async with trio.open_nursery() as nursery:
            await serving(nursery, homes, replace(place(homes), files=disk))
            await disk.contents.receive()
            nursery.cancel_scope.cancel()

    assert homes.config.read_bytes() == BEFORE


@pytest.mark.parametrize("connected", [True, False])
async def test_serve_settles_at_its_start_what_a_kill_left(
    connected: bool, homes: Homes, nursery: trio.Nursery, quiet: None
) -> None:
    """It cannot connect this time: what is seen is what it found, settled."""
    turn_on(place(homes), None)
    note = homes.home / NOTE_NAME
    if not connected:
        note.write_text(note.read_text().replace('"done"', '"intent"'))
    with trio.fail_after(SECONDS), heard() as errors:
        await serving(nursery, homes, place(homes, problem="nothing answers"))
        await errors.heard.wait()

    assert (homes.config.read_bytes() != BEFORE) is connected
    assert "nothing answers" in errors.text


async def test_serve_goes_on_when_codex_cannot_be_connected(
    homes: Homes, nursery: trio.Nursery, quiet: None
) -> None:
    homes.config.write_bytes(b"a = \n")
    with trio.fail_after(SECONDS), heard() as errors:
        running = await serving(nursery, homes, place(homes))
        await errors.heard.wait()

    assert "Codex is not connected" in errors.text
    assert not running.admission.draining
    assert homes.config.read_bytes() == b"a = \n"


async def test_serve_says_what_it_cannot_put_back_and_ends_all_the_same(
    homes: Homes, quiet: None
) -> None:
    disk = WatchedDisk(homes.config)
    with trio.fail_after(SECONDS), heard() as errors:
        async with trio.open_nursery() as nursery:
            await serving(nursery, homes, replace(place(homes), files=disk))
            connected = await disk.contents.receive()
            homes.config.write_bytes(connected + b"a = \n")
            nursery.cancel_scope.cancel()

    assert str(homes.config) in errors.text
    assert "line 1" in errors.text


async def test_serve_leaves_another_configuration_alone(homes: Homes, quiet: None) -> None:
    other = Homes(homes.root / "other")
    other.codex.mkdir(parents=True)
    turn_on(place(homes), None)
    with trio.fail_after(SECONDS), heard() as errors:
        async with trio.open_nursery() as nursery:
            await serving(nursery, homes, place(homes, CODEX_HOME=str(other.codex)))
            await errors.heard.wait()
            nursery.cancel_scope.cancel()

    assert str(homes.config) in errors.text
    assert URL.encode() in homes.config.read_bytes()


async def test_an_invalid_note_does_not_keep_serve_from_starting(
    homes: Homes, nursery: trio.Nursery, quiet: None
) -> None:
    homes.home.mkdir()
    (homes.home / NOTE_NAME).write_bytes(b"{")
    with trio.fail_after(SECONDS), heard() as errors:
        await serving(nursery, homes, place(homes))

    assert NOTE_NAME in errors.text


@contextmanager
def heard() -> Iterator[Heard]:
    handler = Heard()
    logging.getLogger("proxy").addHandler(handler)
    yield handler
    logging.getLogger("proxy").removeHandler(handler)
