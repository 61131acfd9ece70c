"""`turnlane service`: install, remove and ask after the service; each returns an exit code."""

import os
import shlex
import sys
from pathlib import Path
from typing import Final

import typer

from proxy.cli.common import print_json, say
from proxy.config.load import load
from proxy.service.systemd import (
    Systemd,
    UnitState,
    describe,
    install_commands,
    missing_variables,
    refuse_foreign,
    run_command,
    units_folder,
    write,
)
from proxy.service.units import PLIST, Service, launchd_plist, systemd_units

LAUNCH_AGENTS: Final = Path("Library") / "LaunchAgents"


def install(config: Path | None, *, now: bool, launchd: bool) -> int:
    """Raises ConfigError."""
    settings = load(config, os.environ, {})
    described = describe(settings, config, os.environ, sys.executable)
    if launchd:
        typer.echo(launchd_text(Path.home(), described), nl=False)
        return 0
    warn_of_missing(missing_variables(settings), described.environment_file)
    if _is_mac():
        return install_launchd(Path.home(), described)
    return install_systemd(_systemd(), described, now=now)


def uninstall() -> int:
    """Raises ConfigError."""
    return uninstall_launchd(Path.home()) if _is_mac() else uninstall_systemd(_systemd())


def status(*, as_json: bool) -> int:
    return show_unit(_systemd(), as_json=as_json)


def install_systemd(systemd: Systemd, service: Service, *, now: bool) -> int:
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


def uninstall_systemd(systemd: Systemd) -> int:
    """Raises ConfigError."""
    removed = systemd.uninstall()
    for path in removed:
        typer.echo(path)
    if not removed:
        say(f"turnlane has no files in {systemd.folder}")
    return 0


def show_unit(systemd: Systemd, *, as_json: bool) -> int:
    """Print how the service is; 0 if it is active."""
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
    path = _plist(user_home)
    refuse_foreign(path)
    write(path, launchd_text(user_home, service))
    typer.echo(path)
    say(f"to start it: launchctl bootstrap gui/$(id -u) {shlex.quote(str(path))}")
    return 0


def uninstall_launchd(user_home: Path) -> int:
    """Raises ConfigError."""
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


def _is_mac() -> bool:
    return sys.platform == "darwin"


def _systemd() -> Systemd:
    return Systemd(units_folder(os.environ, Path.home()), run_command)
