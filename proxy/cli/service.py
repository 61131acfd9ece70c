"""The `turnlane service` commands: install, remove and inspect the service of this user."""

import os
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from proxy.cli.common import AsJson, ConfigFile, print_json, say
from proxy.service.units import PLIST, Service, launchd_plist, systemd_units

if TYPE_CHECKING:
    from proxy.service.systemd import Systemd, UnitState

LAUNCH_AGENTS: Final = Path("Library") / "LaunchAgents"

service = typer.Typer(help="Run turnlane as a service of your user.", no_args_is_help=True)


@service.command("install")
def install(
    now: Annotated[bool, typer.Option("--now", help="Start it immediately.")] = False,
    launchd: Annotated[
        bool, typer.Option("--launchd", help="Print the plist for launchd; change nothing.")
    ] = False,
    config: ConfigFile = None,
) -> int:
    """Install a service that restarts on failure and keeps its port."""
    from proxy.config.load import load
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
def uninstall() -> int:
    """Stop the service and remove its files."""
    return uninstall_launchd(Path.home()) if _is_mac() else uninstall_systemd(_systemd())


@service.command("status")
def status(as_json: AsJson = False) -> int:
    """Show whether the service is installed, enabled and active.

    The exit code is 0 only if it is active.
    """
    return show_unit(_systemd(), as_json=as_json)


def install_systemd(systemd: "Systemd", service: Service, *, now: bool) -> int:
    """Raises ConfigError."""
    if problem := systemd.problem():
        say(f"cannot reach your systemd user instance: {problem}")
        _show_by_hand(systemd.folder, service, now=now)
        return 1
    for path in systemd.install(service, now=now):
        typer.echo(path)
    if not now:
        say("it starts at your next login; to start it now: systemctl --user start turnlane")
    say("to keep it running while you are logged out: loginctl enable-linger")
    return 0


def uninstall_systemd(systemd: "Systemd") -> int:
    """Raises ConfigError."""
    removed = systemd.uninstall()
    for path in removed:
        typer.echo(path)
    if not removed:
        say(f"turnlane has no files in {systemd.folder}")
    return 0


def show_unit(systemd: "Systemd", *, as_json: bool) -> int:
    """Print the state of the service; 0 if it is active."""
    standing = systemd.standing()
    if as_json:
        print_json(standing)
    else:
        typer.echo(_told(standing))
    if standing.problem is not None:
        say(f"cannot reach your systemd user instance: {standing.problem}")
    return 0 if standing.active else 1


def install_launchd(user_home: Path, service: Service) -> int:
    """Write the plist; its owner is left to tell launchd. Raises ConfigError."""
    from proxy.service.systemd import refuse_foreign, write

    path = _plist(user_home)
    refuse_foreign(path)
    write(path, launchd_text(user_home, service))
    typer.echo(path)
    say(f"to start it: launchctl bootstrap gui/$(id -u) {shlex.quote(str(path))}")
    return 0


def uninstall_launchd(user_home: Path) -> int:
    """Raises ConfigError."""
    from proxy.service.systemd import refuse_foreign

    path = _plist(user_home)
    refuse_foreign(path)
    path.unlink(missing_ok=True)
    say("to stop it: launchctl bootout gui/$(id -u)/turnlane")
    return 0


def launchd_text(user_home: Path, service: Service) -> str:
    return launchd_plist(service, str(user_home / "Library" / "Logs" / "turnlane.log"))


def warn_of_missing(variables: list[str], file: str) -> None:
    """Warn of variables that accounts need: a service has none of its user's environment."""
    if variables:
        say(f"accounts need {', '.join(variables)}: add NAME=value lines to {file} (mode 0600)")


def _show_by_hand(folder: Path, service: Service, *, now: bool) -> None:
    for name, text in systemd_units(service).items():
        typer.echo(f"# --- {folder / name}\n{text}")
    from proxy.service.systemd import install_commands

    typer.echo("# --- then")
    for command in install_commands(now=now):
        typer.echo(shlex.join(command))


def _told(standing: "UnitState") -> str:
    installed = "installed" if standing.installed else "not installed"
    if standing.problem is not None:
        return installed
    enabled = "enabled" if standing.enabled else "not enabled"
    active = "active" if standing.active else "not active"
    pid = "" if standing.pid is None else f", pid {standing.pid}"
    return f"{installed}, {enabled}, {active}{pid}"


def _plist(user_home: Path) -> Path:
    return user_home / LAUNCH_AGENTS / PLIST


def _is_mac() -> bool:
    return sys.platform == "darwin"


def _systemd() -> "Systemd":
    from proxy.service.systemd import Systemd, run_command, units_folder

    return Systemd(units_folder(os.environ, Path.home()), run_command)
