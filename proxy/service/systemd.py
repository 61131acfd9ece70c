"""Install turnlane as a systemd user service, remove it, and report its state."""

import ipaddress
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from proxy.config.load import Config
from proxy.errors import ConfigError
from proxy.files import replace_file
from proxy.service.units import MARK, SERVICE, SOCKET, Service, systemd_units

COMMAND_SECONDS: Final = 60.0
ENVIRONMENT_FILE: Final = "service.env"
UNITS: Final = (SERVICE, SOCKET)
_SHOWN: Final = ("ActiveState", "MainPID", "UnitFileState")
_KEPT_VARIABLES: Final = ("TURNLANE_UPSTREAM",)

RunCommand = Callable[[Sequence[str]], tuple[int, str]]
"""Run a command to its end; return its exit code and its output."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitState:
    """The state of the units; `pid` is None if none runs.

    `problem` says why systemd did not answer, and is None if it did.
    """

    installed: bool
    enabled: bool = False
    active: bool = False
    pid: int | None = None
    problem: str | None = None


def describe(
    config: Config, config_file: Path | None, environment: Mapping[str, str], python: str
) -> Service:
    """Return the service for this configuration, started by `python`.

    Raise ConfigError for a configuration that a service cannot have.
    """
    if not config.server.port:
        raise ConfigError("server.port", "a service needs a fixed port, not 0")
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
    """Return `host` as an address, since systemd takes no names. Raise ConfigError for a name."""
    if host.lower() == "localhost":
        return "127.0.0.1"
    try:
        return str(ipaddress.ip_address(host))
    except ValueError as error:
        raise ConfigError(
            "server.host", "a service needs an IP address, not a host name"
        ) from error


def missing_variables(config: Config) -> list[str]:
    """Return the variables that accounts refer to and a service would not have."""
    try:
        lines = (config.home / ENVIRONMENT_FILE).read_text("utf-8").splitlines()
    except OSError:
        lines = []
    return sorted(config.secrets.keys() - {line.partition("=")[0].strip() for line in lines})


class Systemd:
    """The units of one user, in `folder`, and the systemd that runs them."""

    def __init__(self, folder: Path, run: RunCommand) -> None:
        self.folder = folder
        self._run = run

    def problem(self) -> str | None:
        """Return why systemd cannot be reached, or None if it can."""
        code, said = self._run(_systemctl("show-environment"))
        return None if code == 0 else said.strip() or "systemctl --user fails"

    def install(self, service: Service, *, now: bool) -> list[Path]:
        """Write the units, enable them, and return their files. Raise ConfigError on failure."""
        units = {self.folder / name: text for name, text in systemd_units(service).items()}
        for path in units:
            refuse_foreign(path)
        for path, text in units.items():
            write(path, text)
        for command in install_commands(now=now):
            self._do(command)
        return list(units)

    def uninstall(self) -> list[Path]:
        """Stop, disable and remove turnlane's units, and return the files that are gone.

        Raise ConfigError if a command fails; the files are then still there.
        """
        ours = [self.folder / name for name in UNITS if is_ours(self.folder / name)]
        if ours:
            self._do(_systemctl("disable", "--now", *(path.name for path in ours)))
            for path in ours:
                path.unlink()
            self._do(_systemctl("daemon-reload"))
        return ours

    def standing(self) -> UnitState:
        """Return the state of the units, as systemd reports it."""
        installed = all(is_ours(self.folder / name) for name in UNITS)
        code, said = self._run(_systemctl("show", SERVICE, f"--property={','.join(_SHOWN)}"))
        if code:
            return UnitState(
                installed=installed, problem=said.strip() or f"failed with exit code {code}"
            )
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
            raise ConfigError(" ".join(command), said.strip() or f"failed with exit code {code}")


def install_commands(*, now: bool) -> list[list[str]]:
    """Return the commands that enable the written units, and start them if `now`."""
    enable = ["enable", "--now"] if now else ["enable"]
    return [_systemctl("daemon-reload"), _systemctl(*enable, *UNITS)]


def units_folder(environment: Mapping[str, str], user_home: Path) -> Path:
    """Return the folder of a user's units (systemd.unit(5))."""
    named = environment.get("XDG_CONFIG_HOME")
    return (Path(named) if named else user_home / ".config") / "systemd" / "user"


def is_ours(path: Path) -> bool:
    """Return whether turnlane has written the file."""
    try:
        return MARK in path.read_text("utf-8", "replace")
    except OSError:
        return False


def refuse_foreign(path: Path) -> None:
    """Raise ConfigError for a file that turnlane has not written."""
    if path.exists() and not is_ours(path):
        raise ConfigError(str(path), "was not written by turnlane; move it away first")


def write(path: Path, text: str) -> None:
    """Replace the file atomically, with the mode that the umask allows. Raise ConfigError if it
    cannot be written."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, text.encode(), mode=0o666)
    except OSError as error:
        raise ConfigError(str(path), f"cannot be written: {error.strerror}") from error


def run_command(command: Sequence[str]) -> tuple[int, str]:
    """Run `command`; one that cannot be run returns exit code 127, as in a shell."""
    try:
        ended = subprocess.run(
            command, capture_output=True, text=True, timeout=COMMAND_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return 127, str(error)
    return ended.returncode, ended.stdout if ended.returncode == 0 else ended.stderr


def _systemctl(*arguments: str) -> list[str]:
    return ["systemctl", "--user", *arguments]
