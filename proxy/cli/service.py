"""The `turnlane service` commands: arguments only; `proxy.cli.service_actions` does the work."""

from typing import Annotated

import typer

from proxy.cli.common import AsJson, ConfigFile, operate

service = typer.Typer(help="Run turnlane as a service of your user.", no_args_is_help=True)


@service.command("install")
def install(
    now: Annotated[bool, typer.Option("--now", help="Start it immediately.")] = False,
    launchd: Annotated[
        bool, typer.Option("--launchd", help="Print the plist for launchd; change nothing.")
    ] = False,
    config: ConfigFile = None,
) -> None:
    """Install a service that restarts on failure and keeps its port."""
    from proxy.cli.service_actions import install as run

    operate(lambda _: run(config, now=now, launchd=launchd))


@service.command("uninstall")
def uninstall() -> None:
    """Stop the service and remove its files."""
    from proxy.cli.service_actions import uninstall as run

    operate(lambda _: run())


@service.command("status")
def status(as_json: AsJson = False) -> None:
    """Show whether the service is installed, enabled and active.

    The exit code is 0 only if it is active.
    """
    from proxy.cli.service_actions import status as run

    operate(lambda _: run(as_json=as_json))
