"""The `turnlane keys` and `turnlane workflows` commands."""

from collections.abc import Iterable
from typing import Annotated

import typer

from proxy.cli.common import AsJson, home, print_json, say

keys = typer.Typer(help="Manage the keys that callers need.", no_args_is_help=True)
workflows = typer.Typer(
    help="List the tasks that are tracked, and reset their budgets.", invoke_without_command=True
)


@keys.command("add")
def keys_add(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Who or what uses the key.")],
) -> int:
    """Create a key and print it; it is not shown again."""
    from proxy.control.commands import AddKey
    from proxy.control.offline import ask_about_keys

    made = ask_about_keys(home(), AddKey(name=name))
    typer.echo(made.secret)
    say(f"created {made.key.id}; the key itself is not shown again")
    return 0


@keys.command("list")
def keys_list(as_json: AsJson = False) -> int:
    """List the keys with their ids and names."""
    from proxy.cli.log import when
    from proxy.control.commands import ListKeys
    from proxy.control.offline import ask_about_keys

    found = ask_about_keys(home(), ListKeys()).keys
    rows = [(key.id, key.name, when(key.created)) for key in found]
    return _show(found, ("id", "name", "created"), rows, as_json=as_json)


@keys.command("revoke")
def keys_revoke(
    key_id: Annotated[str, typer.Argument(metavar="ID", help="Id of the key, from `keys list`.")],
) -> int:
    """Revoke a key immediately."""
    from proxy.control.commands import RevokeKey
    from proxy.control.offline import ask_about_keys

    revoked = ask_about_keys(home(), RevokeKey(id=key_id))
    say(f"{key_id} is revoked; its open connections end at their next frame")
    if not revoked.left:
        say("no keys are left: every user of this machine can now call turnlane on loopback")
    return 0


@workflows.callback()
def workflows_list(context: typer.Context, as_json: AsJson = False) -> int:
    """List the tasks that are tracked, each by the digest of its root."""
    if context.invoked_subcommand is not None:
        return 0
    from proxy.control.client import ask
    from proxy.control.commands import ListWorkflows

    found = ask(home(), ListWorkflows()).workflows
    names = ("root", "active", "workers", "children", "worker_sends", "interactive_sends")
    rows = [[str(getattr(one, name))[:16] for name in (*names, "refused")] for one in found]
    titles = ("root", "active", "workers", "children", "sends", "interactive sends", "refused")
    return _show(found, titles, rows, as_json=as_json)


@workflows.command("clear")
def workflows_clear(
    root: Annotated[str, typer.Argument(metavar="ROOT", help="Beginning of the root's digest.")],
) -> int:
    """Reset a task's usage window."""
    from proxy.control.client import ask
    from proxy.control.commands import ClearWorkflow

    cleared = ask(home(), ClearWorkflow(root=root)).cleared
    say(f"the usage window of {cleared[:16]} is reset")
    return 0


def _show(
    answer: object, titles: Iterable[str], rows: Iterable[Iterable[str]], *, as_json: bool
) -> int:
    if as_json:
        print_json(answer)
        return 0
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(*titles)
    for row in rows:
        table.add_row(*map(Text, row))  # a name is not markup
    Console().print(table)
    return 0
