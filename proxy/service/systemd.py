"""Service: turnlane as a systemd service of its user: installed, removed, and asked how it is."""

import ipaddress
import os
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from proxy.config.load import Config
from proxy.errors import ConfigError
from proxy.service.units import MARK, SERVICE, SOCKET, Service, systemd_units

COMMAND_SECONDS: Final = 60.0
ENVIRONMENT_FILE: Final = "service.env"
UNITS: Final = (SERVICE, SOCKET)
_SHOWN: Final = ("ActiveState", "MainPID", "UnitFileState")
_KEPT_VARIABLES: Final = ("TURNLANE_UPSTREAM",)

RunCommand = Callable[[Sequence[str]], tuple[int, str]]
"""Runs a command to its end; brings its exit code and what it said."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitState:
    """`pid` is None where none runs; `problem` says why nothing could be asked."""

    installed: bool
    enabled: bool = False
    active: bool = False
    pid: int | None = None
    problem: str | None = None


def describe(
    config: Config, config_file: Path | None, environment: Mapping[str, str], python: str
) -> Service:
    """The service of this user's configuration. Raises ConfigError for one that needs more than a
    service gets."""
    if not config.server.port:
        raise ConfigError("server.port", "a service needs a port of its own")
    home = config.home.absolute()
    kept = {name: environment[name] for name in _KEPT_VARIABLES if environment.get(name)}
    if config_file is not None:
        kept["TURNLANE_CONFIG"] = str(config_file.absolute())
    return Service(
        command=(python, "-P", "-m", "turnlane", "serve"),
        variables={"TURNLANE_HOME": str(home), **kept},
        environment_file=str(home / ENVIRONMENT_FILE),
        host=_address(config.server.host),
        port=config.server.port,
        drain_seconds=config.server.drain_seconds,
    )


def _address(host: str) -> str:
    """systemd takes no names. Raises ConfigError."""
    if host.lower() == "localhost":
        return "127.0.0.1"
    try:
        return str(ipaddress.ip_address(host))
    except ValueError as error:
        raise ConfigError("server.host", "a service needs an address, not a name") from error


def missing_variables(config: Config) -> list[str]:
    """What the accounts take from the environment, and a service would not find there."""
    try:
        lines = (config.home / ENVIRONMENT_FILE).read_text("utf-8").splitlines()
    except OSError:
        lines = []
    return sorted(config.secrets.keys() - {line.partition("=")[0].strip() for line in lines})


class Systemd:
    """The units of one user, in `folder`."""

    def __init__(self, folder: Path, run: RunCommand) -> None:
        self.folder = folder
        self._run = run

    def problem(self) -> str | None:
        """Why systemd cannot be spoken to; None if it can."""
        code, said = self._run(_systemctl("show-environment"))
        return None if code == 0 else said.strip() or "systemctl --user fails"

    def install(self, service: Service, *, now: bool) -> list[Path]:
        """Write the units and enable them; brings the files. Raises ConfigError."""
        units = {self.folder / name: text for name, text in systemd_units(service).items()}
        for path in units:
            refuse_foreign(path)
        for path, text in units.items():
            write(path, text)
        for command in install_commands(now=now):
            self._do(command)
        return list(units)

    def uninstall(self) -> list[Path]:
        """Stop, disable and remove what is ours; brings the files that are gone. Raises
        ConfigError, with what failed still there."""
        ours = [self.folder / name for name in UNITS if is_ours(self.folder / name)]
        if ours:
            self._do(_systemctl("disable", "--now", *(path.name for path in ours)))
            for path in ours:
                path.unlink()
            self._do(_systemctl("daemon-reload"))
        return ours

    def standing(self) -> UnitState:
        installed = all(is_ours(self.folder / name) for name in UNITS)
        code, said = self._run(_systemctl("show", SERVICE, f"--property={','.join(_SHOWN)}"))
        if code:
            return UnitState(installed=installed, problem=said.strip() or f"it ended with {code}")
        shown = dict(line.partition("=")[::2] for line in said.splitlines())
        pid = shown.get("MainPID", "")
        return UnitState(
            installed=installed,
            enabled=shown.get("UnitFileState") == "enabled",
            active=shown.get("ActiveState") == "active",
            pid=int(pid) if pid.isdecimal() and pid != "0" else None,
        )

    def _do(self, command: Sequence[str]) -> None:
        code, said = self._run(command)
        if code:
            raise ConfigError(" ".join(command), said.strip() or f"it ended with {code}")


def install_commands(*, now: bool) -> list[list[str]]:
    enable = ["enable", "--now"] if now else ["enable"]
    return [_systemctl("daemon-reload"), _systemctl(*enable, *UNITS)]


def units_folder(environment: Mapping[str, str], user_home: Path) -> Path:
    """Where a user's units are."""
    named = environment.get("XDG_CONFIG_HOME")
    return (Path(named) if named else user_home / ".config") / "systemd" / "user"


def is_ours(path: Path) -> bool:
    try:
        return MARK in path.read_text("utf-8", "replace")
    except OSError:
        return False


def refuse_foreign(path: Path) -> None:
    """Raises ConfigError for a file that somebody else has written."""
    if path.exists() and not is_ours(path):
        raise ConfigError(str(path), "is not turnlane's own; move it away first")


def write(path: Path, text: str) -> None:
    """Atomic: whoever reads meanwhile finds the old one or the new one. Raises ConfigError."""
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        fresh.write_text(text, "utf-8")
        fresh.replace(path)
    except OSError as error:
        raise ConfigError(str(path), f"cannot be written: {error.strerror}") from error


def run_command(command: Sequence[str]) -> tuple[int, str]:
    """What cannot be run is an exit code of its own, as in a shell."""
    try:
        ended = subprocess.run(
            command, capture_output=True, text=True, timeout=COMMAND_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return 127, str(error)
    return ended.returncode, ended.stdout if ended.returncode == 0 else ended.stderr


def _systemctl(*arguments: str) -> list[str]:
    return ["systemctl", "--user", *arguments]
