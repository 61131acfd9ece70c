"""operate: the commands about a running turnlane or its home; each returns an exit code."""

import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec
import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from proxy.cli.log_table import log_lines, when
from proxy.control.client import ANSWER_SECONDS, LOOK_SECONDS, Answer, NoAnswer, NotRunning, ask
from proxy.control.offline import ask_about_keys
from proxy.home.lock import holder
from proxy.journal.record import TurnRecord
from proxy.journal.store import after, newest

FOLLOW_SECONDS: Final = 0.5


def add_key(home: Path, name: str) -> int:
    answer = ask_about_keys(home, {"command": "keys.add", "name": name})
    if failed(answer):
        return 1
    typer.echo(answer["secret"])
    say(f"this is {answer['key']['id']}; the key itself is not shown again")
    return 0


def list_keys(home: Path, *, as_json: bool) -> int:
    answer = ask_about_keys(home, {"command": "keys.list"})
    if failed(answer):
        return 1
    rows = [(key["id"], key["name"], when(key["created"])) for key in answer["keys"]]
    return _show(answer["keys"], ("id", "name", "made"), rows, as_json=as_json)


def revoke_key(home: Path, key_id: str) -> int:
    answer = ask_about_keys(home, {"command": "keys.revoke", "id": key_id})
    if failed(answer):
        return 1
    say(f"{key_id} is revoked; what it has open ends at its next frame")
    if not answer["left"]:
        say("there is no key left: on loopback, everybody on this machine may call now")
    return 0


def list_workflows(home: Path, *, as_json: bool) -> int:
    answer = asked(home, {"command": "workflows"}, LOOK_SECONDS)
    if failed(answer):
        return 1
    names = ("root", "active", "workers", "children", "worker_sends", "interactive_sends")
    rows = [[str(one[name])[:16] for name in (*names, "refused")] for one in answer["workflows"]]
    titles = ("root", "active", "workers", "children", "sends", "interactive sends", "refused")
    return _show(answer["workflows"], titles, rows, as_json=as_json)


def clear_workflow(home: Path, root: str) -> int:
    answer = asked(home, {"command": "workflows.clear", "root": root})
    if failed(answer):
        return 1
    say(f"the window of {answer['cleared'][:16]} is forgiven")
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
    """The newest records, oldest first; with `follow` all that come after, until interrupted.
    `columns`: how wide the terminal is, if it is one."""
    write = _json_line if as_json else _text_line(columns)
    last = 0
    held = holder(home) is not None
    for number, record in newest(home, lines, untouched=not held):
        write(record)
        last = number
    try:
        while follow:
            pause(FOLLOW_SECONDS)
            before, held = held, holder(home) is not None
            if not (before or held):  # nobody has written since the last look
                continue
            for number, record in after(home, last, untouched=not held):
                write(record)
                last = number
    except KeyboardInterrupt:
        pass
    return 0


def _json_line(record: TurnRecord) -> None:
    typer.echo(msgspec.json.encode(record).decode())


def _text_line(columns: int | None) -> Callable[[TurnRecord], None]:
    titles, line = log_lines(columns)
    typer.echo(titles)
    return lambda record: typer.echo(line(record))


def _show(
    answer: object, titles: Iterable[str], rows: Iterable[Iterable[str]], *, as_json: bool
) -> int:
    if as_json:
        typer.echo(msgspec.json.encode(answer).decode())
        return 0
    table = Table(*titles)
    for row in rows:
        table.add_row(*map(Text, row))  # a name is no markup
    Console().print(table)
    return 0


def failed(answer: dict[str, Any]) -> bool:
    if "error" not in answer:
        return False
    say(answer["error"])
    return True


def asked(home: Path, command: Mapping[str, Any], seconds: float = ANSWER_SECONDS) -> Answer:
    """What only a turnlane that runs can say; that none does stands under `error`."""
    try:
        return ask(home, command, seconds)
    except NoAnswer as error:
        return {"error": str(error)}
    except NotRunning:
        return {"error": f"no turnlane runs on {home}; start one with `turnlane serve`"}


def say(text: str) -> None:
    typer.echo(f"turnlane: {text}", err=True)
