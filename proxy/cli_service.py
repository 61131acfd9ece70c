"""`turnlane service ...`: its arguments; the work is done in `operate_service`."""

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from proxy.config import load
from proxy.exits import AsJson, ConfigFile, operate

if TYPE_CHECKING:
    from proxy.service import Systemd

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
    from proxy.operate_service import (
        install_launchd,
        install_systemd,
        launchd_text,
        warn_of_missing,
    )
    from proxy.service import describe, missing_variables

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
    from proxy.operate_service import uninstall_launchd, uninstall_systemd

    operate(
        lambda _: uninstall_launchd(Path.home()) if _is_mac() else uninstall_systemd(_systemd())
    )


@service.command("status")
def status(as_json: AsJson = False) -> None:
    """Say whether it is installed, enabled and active; 0 if it is active."""
    from proxy.operate_service import show_status

    operate(lambda _: show_status(_systemd(), as_json=as_json))


def _is_mac() -> bool:
    return sys.platform == "darwin"


def _systemd() -> "Systemd":
    from proxy.service import Systemd, run_command, units_folder

    return Systemd(units_folder(os.environ, Path.home()), run_command)
