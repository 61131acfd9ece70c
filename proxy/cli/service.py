"""The `turnlane service` commands: arguments only; `proxy.cli.service_actions` does the work."""

from typing import Annotated

import typer

from proxy.cli.common import AsJson, ConfigFile, operate

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
    from proxy.cli.service_actions import install as run

    operate(lambda _: run(config, now=now, launchd=launchd))


@service.command("uninstall")
def uninstall() -> None:
    """Stop it, and remove what was installed."""
    from proxy.cli.service_actions import uninstall as run

    operate(lambda _: run())


@service.command("status")
def status(as_json: AsJson = False) -> None:
    """Say whether it is installed, enabled and active; 0 if it is active."""
    from proxy.cli.service_actions import status as run

    operate(lambda _: run(as_json=as_json))
