"""Service: units that systemd takes, files of others that stay, and commands that may fail."""

from __future__ import annotations

import plistlib
import shutil
import stat
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType

import pytest
from typer.testing import CliRunner

from proxy.cli.main import app
from proxy.cli.service import (
    install_launchd,
    install_systemd,
    show_unit,
    uninstall_launchd,
    uninstall_systemd,
    warn_of_missing,
)
from proxy.config.load import Config, load
from proxy.config.settings import ServerSettings
from proxy.errors import ConfigError
from proxy.service.systemd import Systemd, describe, missing_variables, run_command, units_folder
from proxy.service.units import MARK, Service, systemd_units
from tests.testkit.snapshots import Snapshot

SERVICE = Service(
    command=("/opt/$turn lane/python", "-P", "-m", "turnlane", "serve"),
    variables=MappingProxyType({"TURNLANE_HOME": '/data/100% "mine" $HOME\\x'}),
    environment_file="/data/100%/service.env",
    host="127.0.0.1",
    port=10110,
    drain_seconds=10.5,
)
SHOWN = "ActiveState=active\nMainPID=4711\nUnitFileState=enabled\n"


@dataclass(slots=True)
class FakeRun:
    """`fails`: what is said by commands that begin so, after systemctl's own options."""

    fails: Mapping[str, str] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)

    def __call__(self, command: Sequence[str]) -> tuple[int, str]:
        assert command[:2] == ["systemctl", "--user"]
        text = " ".join(command[2:])
        self.asked.append(text)
        for beginning, said in self.fails.items():
            if text.startswith(beginning):
                return 1, said
        return 0, SHOWN if text.startswith("show ") else ""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "config" / "systemd" / "user"


# The units.


def test_the_units_restart_on_failure_and_keep_the_listener() -> None:
    units = systemd_units(SERVICE)
    service, sock = (units[f"turnlane.{kind}"].splitlines() for kind in ("service", "socket"))

    assert all(MARK in text.splitlines()[0] for text in units.values())
    assert {
        "Type=notify",
        "Restart=on-failure",
        "RestartSec=1",
        "TimeoutStopSec=20",
        "LimitNOFILE=65536",
        "SyslogIdentifier=turnlane",
        "NoNewPrivileges=yes",
        "Requires=turnlane.socket",
    } <= set(service)
    assert 'ExecStart="/opt/$$turn lane/python" "-P" "-m" "turnlane" "serve"' in service
    assert 'Environment="TURNLANE_HOME=/data/100%% \\"mine\\" $HOME\\\\x"' in service
    assert "EnvironmentFile=-/data/100%%/service.env" in service
    assert "ListenStream=127.0.0.1:10110" in sock
    six = systemd_units(replace(SERVICE, host="::1"))
    assert "ListenStream=[::1]:10110" in six["turnlane.socket"].splitlines()


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="there is no systemd here")
def test_systemd_finds_nothing_wrong_with_them(tmp_path: Path) -> None:
    python = shutil.which("python3")
    assert python is not None
    units = systemd_units(replace(SERVICE, command=(python, "-P", "-m", "turnlane", "serve")))
    for name, text in units.items():
        (tmp_path / name).write_text(text)
    paths = [str(tmp_path / name) for name in units]
    found = subprocess.run(
        ["systemd-analyze", "--user", "verify", *paths],
        capture_output=True,
        text=True,
        check=False,
        env={"XDG_RUNTIME_DIR": str(tmp_path), "HOME": str(tmp_path), "PATH": "/usr/bin:/bin"},
    )

    assert (found.returncode, found.stderr) == (0, "")


# What a service needs to know.


def test_a_service_is_told_where_everything_is(tmp_path: Path) -> None:
    config = Config(home=tmp_path / "home", server=ServerSettings(host="localhost", port=7))
    environment = {"TURNLANE_UPSTREAM": "http://127.0.0.1:1/v1", "SECRET": "x"}
    service = describe(config, tmp_path / "t.toml", environment, "/bin/python")

    assert service.command == ("/bin/python", "-P", "-m", "turnlane", "serve")
    assert service.variables == {
        "TURNLANE_HOME": str(tmp_path / "home"),
        "TURNLANE_UPSTREAM": "http://127.0.0.1:1/v1",
        "TURNLANE_CONFIG": str(tmp_path / "t.toml"),
    }
    assert (service.host, service.port) == ("127.0.0.1", 7)


@pytest.mark.parametrize(
    ("server", "key"),
    [
        (ServerSettings(port=0), "server.port"),
        (ServerSettings(host="example.invalid"), "server.host"),
    ],
    ids=["port", "host"],
)
def test_an_address_that_systemd_cannot_keep_is_refused(
    server: ServerSettings, key: str, snapshot: Snapshot
) -> None:
    with pytest.raises(ConfigError) as raised:
        describe(Config(server=server), None, {}, "/bin/python")

    assert raised.value.key == key
    snapshot("errors", raised.value)


def test_secrets_of_the_environment_are_asked_for_and_written_nowhere(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], snapshot: Snapshot
) -> None:
    file = tmp_path / "t.toml"
    file.write_text('[accounts.a]\nkey = "env:KEY_A"\n[accounts.b]\nkey = "env:KEY_B"\n')
    environment = {"KEY_A": "sk-secret", "KEY_B": "sk-secret", "TURNLANE_HOME": str(tmp_path)}
    config = load(file, environment, {})
    service = describe(config, file, environment, "/bin/python")
    both = missing_variables(config)
    (tmp_path / "service.env").write_text("# mine\nKEY_A=sk-secret\n")
    one = missing_variables(config)
    warn_of_missing(one, service.environment_file)
    warn_of_missing([], service.environment_file)

    assert (both, one) == (["KEY_A", "KEY_B"], ["KEY_B"])
    assert "sk-secret" not in "".join(systemd_units(service).values())
    (line,) = capsys.readouterr().err.splitlines()
    assert "KEY_B" in line
    snapshot("service", line, home=tmp_path)


# systemd.


@pytest.mark.parametrize("now", [False, True], ids=["later", "now"])
def test_installing_writes_the_units_and_enables_them(
    folder: Path, capsys: pytest.CaptureFixture[str], now: bool, snapshot: Snapshot
) -> None:
    run = FakeRun()
    for _ in range(2):
        assert install_systemd(Systemd(folder, run), SERVICE, now=now) == 0

    enable = "enable --now" if now else "enable"
    commands = ["show-environment", "daemon-reload", f"{enable} turnlane.service turnlane.socket"]
    assert run.asked == 2 * commands
    files = {path.name: path.read_text() for path in folder.iterdir()}
    assert files == systemd_units(SERVICE)
    said = capsys.readouterr()
    assert said.out.splitlines() == 2 * [str(folder / name) for name in systemd_units(SERVICE)]
    assert ("systemctl --user start" in said.err) is not now
    snapshot("service", said.err)


@pytest.mark.parametrize("name", ["turnlane.service", "turnlane.socket"])
def test_a_file_that_turnlane_did_not_write_stays_as_it_is(folder: Path, name: str) -> None:
    folder.mkdir(parents=True)
    (folder / name).write_text("[Unit]\n")
    run = FakeRun()
    systemd = Systemd(folder, run)
    with pytest.raises(ConfigError, match=str(folder / name)):
        install_systemd(systemd, SERVICE, now=True)

    assert uninstall_systemd(systemd) == 0
    assert run.asked == ["show-environment"]
    assert [path.name for path in folder.iterdir()] == [name]
    assert (folder / name).read_text() == "[Unit]\n"


def test_without_a_systemd_everything_is_shown_and_nothing_done(
    folder: Path, capsys: pytest.CaptureFixture[str], snapshot: Snapshot
) -> None:
    run = FakeRun({"": "Failed to connect to bus"})

    assert install_systemd(Systemd(folder, run), SERVICE, now=True) == 1
    said = capsys.readouterr()
    snapshot("service", said.err)
    assert all(text in said.out for text in systemd_units(SERVICE).values())
    assert "systemctl --user enable --now turnlane.service turnlane.socket" in said.out
    assert run.asked == ["show-environment"]
    assert not folder.exists()


def test_a_command_that_fails_is_reported_with_its_reason(folder: Path, snapshot: Snapshot) -> None:
    systemd = Systemd(folder, FakeRun({"enable": "no such thing\n"}))
    with pytest.raises(ConfigError, match=r"systemctl --user enable .*: no such thing$") as first:
        install_systemd(systemd, SERVICE, now=False)
    systemd = Systemd(folder, FakeRun({"disable": ""}))
    with pytest.raises(ConfigError) as second:
        uninstall_systemd(systemd)

    assert len(list(folder.iterdir())) == 2
    snapshot("service", first.value, second.value)


def test_uninstalling_stops_it_and_leaves_nothing(
    folder: Path, capsys: pytest.CaptureFixture[str], snapshot: Snapshot
) -> None:
    run = FakeRun()
    systemd = Systemd(folder, run)
    install_systemd(systemd, SERVICE, now=True)
    run.asked.clear()

    assert uninstall_systemd(systemd) == uninstall_systemd(systemd) == 0
    assert run.asked == ["disable --now turnlane.service turnlane.socket", "daemon-reload"]
    assert list(folder.iterdir()) == []
    snapshot("service", capsys.readouterr().err, folder=folder)


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="file/user"):
        install_systemd(Systemd(tmp_path / "file" / "user", FakeRun()), SERVICE, now=False)


@pytest.mark.parametrize(
    ("shown", "told", "code"),
    [
        (SHOWN, "installed, enabled, active, pid 4711", 0),
        ("ActiveState=failed\nMainPID=0\nUnitFileState=", "installed, not enabled, not active", 1),
    ],
)
def test_the_status_says_how_it_stands(
    folder: Path, capsys: pytest.CaptureFixture[str], shown: str, told: str, code: int
) -> None:
    install_systemd(Systemd(folder, FakeRun()), SERVICE, now=True)
    capsys.readouterr()
    systemd = Systemd(folder, lambda _: (0, shown))

    assert show_unit(systemd, as_json=False) == show_unit(systemd, as_json=True) == code
    text, document = capsys.readouterr().out.splitlines()
    assert text == told
    assert document.startswith('{"installed":true,')


def test_the_status_without_a_systemd_says_so(
    folder: Path, capsys: pytest.CaptureFixture[str], snapshot: Snapshot
) -> None:
    assert show_unit(Systemd(folder, FakeRun({"": ""})), as_json=False) == 1
    said = capsys.readouterr()
    assert said.out == "not installed\n"
    snapshot("service", said.err)


def test_units_are_where_the_user_has_them(tmp_path: Path) -> None:
    assert units_folder({}, tmp_path) == tmp_path / ".config" / "systemd" / "user"
    assert units_folder({"XDG_CONFIG_HOME": "/x"}, tmp_path) == Path("/x/systemd/user")


def test_a_command_brings_its_code_and_what_it_said() -> None:
    assert run_command(["sh", "-c", "echo good"]) == (0, "good\n")
    assert run_command(["sh", "-c", "echo bad >&2; exit 3"]) == (3, "bad\n")
    code, said = run_command(["no-such-command-anywhere"])
    assert code == 127
    assert "no-such-command-anywhere" in said


# launchd.


def test_the_plist_is_written_for_its_owner_to_load(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], snapshot: Snapshot
) -> None:
    path = tmp_path / "Library" / "LaunchAgents" / "turnlane.plist"

    assert install_launchd(tmp_path, SERVICE) == 0
    document = plistlib.loads(path.read_bytes())
    assert document["ProgramArguments"] == list(SERVICE.command)
    assert document["EnvironmentVariables"] == dict(SERVICE.variables)
    assert document["KeepAlive"] == {"SuccessfulExit": False}
    assert (document["RunAtLoad"], document["ExitTimeOut"]) == (True, 20)
    assert stat.S_IMODE(path.stat().st_mode) & 0o022 == 0
    said = capsys.readouterr()
    assert said.out == f"{path}\n"
    assert "launchctl bootstrap" in said.err
    assert uninstall_launchd(tmp_path) == uninstall_launchd(tmp_path) == 0
    assert not path.exists()
    path.write_text("mine")
    with pytest.raises(ConfigError) as raised:
        uninstall_launchd(tmp_path)
    snapshot("service", said.err, raised.value, home=tmp_path)


# The command line.


def test_the_commands_reach_it(tmp_path: Path) -> None:
    env = {"HOME": str(tmp_path), "TURNLANE_HOME": str(tmp_path / "home"), "PATH": str(tmp_path)}
    runner = CliRunner(env={**env, "XDG_CONFIG_HOME": None})
    plist, installed, status, removed = (
        runner.invoke(app, ["service", *arguments], catch_exceptions=False)
        for arguments in (["install", "--launchd"], ["install"], ["status"], ["uninstall"])
    )

    assert plist.exit_code == 0
    assert plistlib.loads(plist.stdout.encode())["Label"] == "turnlane"
    assert installed.exit_code == status.exit_code == 1
    assert f"# --- {tmp_path}/.config/systemd/user/turnlane.service" in installed.stdout
    assert status.stdout == "not installed\n"
    assert removed.exit_code == 0
