"""The `turnlane accounts` commands: arguments only; `proxy.cli.accounts_actions` does the work.

A key is never an argument, which every process of the machine could read.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from proxy.cli.common import AsJson, ConfigFile, operate

if TYPE_CHECKING:
    from proxy.config.load import Config

accounts = typer.Typer(help="Manage the accounts that serve turns.", no_args_is_help=True)

Name = Annotated[
    str, typer.Argument(metavar="NAME", help="Lower-case letters, digits, '.', '_' and '-'.")
]
Url = Annotated[
    str | None,
    typer.Option(metavar="URL", help="Base URL of the account (default: the provider's)."),
]
Models = Annotated[
    list[str] | None,
    typer.Option(
        "--model",
        metavar="PATTERN",
        help="Model that its plan includes, such as 'gpt-5*'; repeatable.",
    ),
]


@accounts.callback()
def _configured(context: typer.Context, config: ConfigFile = None) -> None:
    """Read the file only if no turnlane is running, because it may describe accounts too."""

    def read() -> "Config":
        from proxy.config.load import load

        return load(config, os.environ, {}, offline=True)

    context.obj = read


def _config(context: typer.Context) -> "Callable[[], Config]":
    found: Callable[[], Config] = context.obj
    return found


@accounts.command("add")
def accounts_add(
    context: typer.Context,
    name: Name,
    env: Annotated[
        str | None,
        typer.Option(
            metavar="VAR", help="Read the key from this environment variable, not from stdin."
        ),
    ] = None,
    url: Url = None,
    models: Models = None,
    organization: Annotated[
        str | None,
        typer.Option(metavar="ID", help="Sent with each request as openai-organization."),
    ] = None,
    project: Annotated[
        str | None, typer.Option(metavar="ID", help="Sent with each request as openai-project.")
    ] = None,
) -> None:
    """Add an API key from stdin, or replace an account's credential."""
    from proxy.cli.accounts_actions import Described, add_account

    operate(
        lambda home: add_account(
            home,
            _config(context),
            Described(
                name=name, url=url, models=models, organization=organization, project=project
            ),
            env,
        )
    )


@accounts.command("import")
def accounts_import(
    context: typer.Context,
    name: Name,
    path: Annotated[
        Path | None,
        typer.Argument(metavar="[PATH]", help="An auth.json file (default: the one of Codex)."),
    ] = None,
    copy: Annotated[
        bool, typer.Option("--copy", help="Keep a copy, for a login that Codex no longer uses.")
    ] = False,
    url: Url = None,
    models: Models = None,
) -> None:
    """Add a ChatGPT login, which stays shared with Codex."""
    from proxy.cli.accounts_actions import Described, import_account

    operate(
        lambda home: import_account(
            home, _config(context), Described(name=name, url=url, models=models), path, copy=copy
        )
    )


@accounts.command("list")
def accounts_list(context: typer.Context, as_json: AsJson = False) -> None:
    """List the accounts with their state, usage and last hour."""
    from proxy.cli.accounts_actions import list_accounts

    operate(lambda home: list_accounts(home, _config(context), as_json=as_json))


@accounts.command("pause")
def accounts_pause(context: typer.Context, name: Name) -> None:
    """Stop using an account until it is resumed; its threads move."""
    from proxy.cli.accounts_actions import pause_account

    operate(lambda home: pause_account(home, _config(context), name, paused=True))


@accounts.command("resume")
def accounts_resume(context: typer.Context, name: Name) -> None:
    """Use a paused account again."""
    from proxy.cli.accounts_actions import pause_account

    operate(lambda home: pause_account(home, _config(context), name, paused=False))


@accounts.command("remove")
def accounts_remove(context: typer.Context, name: Name) -> None:
    """Remove an account and its secret; a shared auth.json is kept."""
    from proxy.cli.accounts_actions import remove_account

    operate(lambda home: remove_account(home, _config(context), name))


@accounts.command("test")
def accounts_test(name: Name, as_json: AsJson = False) -> None:
    """Check an account's credential with its provider, at no cost."""
    from proxy.cli.accounts_actions import test_account

    operate(lambda home: test_account(home, name, as_json=as_json))


@accounts.command("preview")
def accounts_preview(
    context: typer.Context,
    thread: Annotated[
        str, typer.Argument(metavar="THREAD", help="The client's own id of the thread.")
    ],
    model: Annotated[
        str | None,
        typer.Option(
            metavar="MODEL", help="Model to preview (default: those the thread is bound for)."
        ),
    ] = None,
    key: Annotated[
        str | None, typer.Option(metavar="ID", help="Id of the key whose thread it is.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show which account the next turn of a thread would use."""
    from proxy.cli.accounts_actions import preview_thread

    operate(
        lambda home: preview_thread(
            home, _config(context), thread=thread, model=model, key=key, as_json=as_json
        )
    )
