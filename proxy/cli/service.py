"""operate_service: `turnlane service`, from what was asked to what is printed and the exit code.

`turnlane service ...`: its arguments; the work is done in `operate_service`.
"""

import os
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import msgspec
import typer

from proxy.cli.common import AsJson, ConfigFile, operate
from proxy.config.load import load
from proxy.service.systemd import Systemd, UnitState, install_commands, refuse_foreign, write
from proxy.service.units import PLIST, Service, launchd_plist, systemd_units

LAUNCH_AGENTS: Final = Path("Library") / "LaunchAgents"


def install_systemd(systemd: Systemd, service: Service, *, now: bool) -> int:
    """Raises ConfigError."""
    if problem := systemd.problem():
        _say(f"there is no systemd of yours to speak to: {problem}")
        _show_by_hand(systemd.folder, service, now=now)
        return 1
    for path in systemd.install(service, now=now):
        typer.echo(path)
    if not now:
        _say("it starts with your next login, or now: systemctl --user start turnlane")
    _say("to have it run while you are not logged in: loginctl enable-linger")
    return 0


def uninstall_systemd(systemd: Systemd) -> int:
    """Raises ConfigError."""
    removed = systemd.uninstall()
    for path in removed:
        typer.echo(path)
    if not removed:
        _say(f"there is nothing of turnlane's in {systemd.folder}")
    return 0


def show_status(systemd: Systemd, *, as_json: bool) -> int:
    """0 if it is active."""
    standing = systemd.standing()
    typer.echo(msgspec.json.encode(standing).decode() if as_json else _told(standing))
    if standing.problem is not None:
        _say(f"there is no systemd of yours to ask: {standing.problem}")
    return 0 if standing.active else 1


def install_launchd(user_home: Path, service: Service) -> int:
    """launchd is left to be told by its owner. Raises ConfigError."""
    path = _plist(user_home)
    refuse_foreign(path)
    write(path, launchd_text(user_home, service))
    typer.echo(path)
    _say(f"to start it: launchctl bootstrap gui/$(id -u) {shlex.quote(str(path))}")
    return 0


def uninstall_launchd(user_home: Path) -> int:
    """Raises ConfigError."""
    path = _plist(user_home)
    refuse_foreign(path)
    path.unlink(missing_ok=True)
    _say("to stop it: launchctl bootout gui/$(id -u)/turnlane")
    return 0


def launchd_text(user_home: Path, service: Service) -> str:
    return launchd_plist(service, str(user_home / "Library" / "Logs" / "turnlane.log"))


def warn_of_missing(variables: list[str], file: str) -> None:
    """A service has none of its user's environment."""
    if variables:
        _say(f"accounts need {', '.join(variables)}: put NAME=value lines into {file} (mode 0600)")


def _show_by_hand(folder: Path, service: Service, *, now: bool) -> None:
    for name, text in systemd_units(service).items():
        typer.echo(f"# --- {folder / name}\n{text}")
    typer.echo("# --- then")
    for command in install_commands(now=now):
        typer.echo(shlex.join(command))


def _told(standing: UnitState) -> str:
    installed = "installed" if standing.installed else "not installed"
    if standing.problem is not None:
        return installed
    enabled = "enabled" if standing.enabled else "not enabled"
    active = "active" if standing.active else "not active"
    pid = "" if standing.pid is None else f", pid {standing.pid}"
    return f"{installed}, {enabled}, {active}{pid}"


def _plist(user_home: Path) -> Path:
    return user_home / LAUNCH_AGENTS / PLIST


def _say(text: str) -> None:
    typer.echo(f"turnlane: {text}", err=True)


if TYPE_CHECKING:
    from proxy.service.systemd import Systemd

service = typer.Typer(help="turnlane as a service of its user.", no_args_is_help=True)


@service.command("install")
def install(
    now: Annotated[bool, typer.Option("--now", help="Start it, too.")] = False,
    launchd: Annotated[
        bool, typer.Option("--launchd", help="Print the plist for launchd; change nothing.")
    ] = False,
    config: ConfigFile = None,
) -> None:
    """Have systemd start turnlane, keep its port, and restart it when it fails."""
    operate(lambda _: _install(config, now=now, launchd=launchd))


def _install(config: Path | None, *, now: bool, launchd: bool) -> int:
    from proxy.service.systemd import describe, missing_variables

    settings = load(config, os.environ, {})
    described = describe(settings, config, os.environ, sys.executable)
    if launchd:
        typer.echo(launchd_text(Path.home(), described), nl=False)
        return 0
    warn_of_missing(missing_variables(settings), described.environment_file)
    if _is_mac():
        return install_launchd(Path.home(), described)
    return install_systemd(_systemd(), described, now=now)


@service.command("uninstall")
def uninstall() -> None:
    """Stop it, and remove what was installed."""

    operate(
        lambda _: uninstall_launchd(Path.home()) if _is_mac() else uninstall_systemd(_systemd())
    )


@service.command("status")
def status(as_json: AsJson = False) -> None:
    """Say whether it is installed, enabled and active; 0 if it is active."""

    operate(lambda _: show_status(_systemd(), as_json=as_json))


def _is_mac() -> bool:
    return sys.platform == "darwin"


def _systemd() -> "Systemd":
    from proxy.service.systemd import Systemd, run_command, units_folder

    return Systemd(units_folder(os.environ, Path.home()), run_command)
