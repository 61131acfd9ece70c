"""Commands about keys, workflows and the log; each returns an exit code."""

import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Final

import typer

from proxy.cli.common import print_json, say
from proxy.cli.log_table import log_lines, when
from proxy.control.client import ask
from proxy.control.commands import AddKey, ClearWorkflow, ListKeys, ListWorkflows, RevokeKey
from proxy.control.offline import ask_about_keys
from proxy.home.lock import holder

if TYPE_CHECKING:
    from proxy.journal.record import TurnRecord

FOLLOW_SECONDS: Final = 0.5


def add_key(home: Path, name: str) -> int:
    made = ask_about_keys(home, AddKey(name=name))
    typer.echo(made.secret)
    say(f"created {made.key.id}; the key itself is not shown again")
    return 0


def list_keys(home: Path, *, as_json: bool) -> int:
    keys = ask_about_keys(home, ListKeys()).keys
    rows = [(key.id, key.name, when(key.created)) for key in keys]
    return _show(keys, ("id", "name", "created"), rows, as_json=as_json)


def revoke_key(home: Path, key_id: str) -> int:
    revoked = ask_about_keys(home, RevokeKey(id=key_id))
    say(f"{key_id} is revoked; its open connections end at their next frame")
    if not revoked.left:
        say("no keys are left: every user of this machine can now call turnlane on loopback")
    return 0


def list_workflows(home: Path, *, as_json: bool) -> int:
    workflows = ask(home, ListWorkflows()).workflows
    names = ("root", "active", "workers", "children", "worker_sends", "interactive_sends")
    rows = [[str(getattr(one, name))[:16] for name in (*names, "refused")] for one in workflows]
    titles = ("root", "active", "workers", "children", "sends", "interactive sends", "refused")
    return _show(workflows, titles, rows, as_json=as_json)


def clear_workflow(home: Path, root: str) -> int:
    cleared = ask(home, ClearWorkflow(root=root)).cleared
    say(f"the usage window of {cleared[:16]} is reset")
    return 0


def show_log(
    home: Path,
    *,
    lines: int,
    follow: bool,
    as_json: bool,
    columns: int | None = None,
    pause: Callable[[float], None] = time.sleep,
) -> int:
    """Print the newest records, oldest first; with `follow`, also those that come after, until
    interrupted. `columns`: how wide the terminal is, if it is one."""
    from proxy.journal.store import after, newest

    write = print_json if as_json else _text_line(columns)
    last = 0
    held = holder(home) is not None
    for number, record in newest(home, lines, untouched=not held):
        write(record)
        last = number
    try:
        while follow:
            pause(FOLLOW_SECONDS)
            before, held = held, holder(home) is not None
            if not (before or held):  # no process has written since the last look
                continue
            for number, record in after(home, last, untouched=not held):
                write(record)
                last = number
    except KeyboardInterrupt:
        pass
    return 0


def _text_line(columns: int | None) -> "Callable[[TurnRecord], None]":
    titles, line = log_lines(columns)
    typer.echo(titles)
    return lambda record: typer.echo(line(record))


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
