"""What a command imports: nothing heavy that it does not use."""

import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from tests.proxy.status.kit import RUNNING
from tests.testkit.listeners import commanded

HEAVY: Final = {
    "harness",
    "httpx",
    "hypercorn",
    "msgspec",
    "psutil",
    "pydantic",
    "rich",
    "sqlite3",
    "tomlkit",
    "trio",
    "typer",
}
COMMAND: Final = f"""
import sys
try:
    from proxy.__main__ import main
    main()
finally:
    print(*sorted({HEAVY} & sys.modules.keys()), file=sys.stderr)
"""


def loaded(home: Path, *arguments: str) -> set[str]:
    """Run a command on a home, with a Codex that goes to its provider."""
    codex = home / "codex"
    codex.mkdir(exist_ok=True)
    (codex / "config.toml").write_text('model = "gpt-5"\n')
    config = home / "turnlane.toml"
    config.write_text("[server]\nport = 0\n")  # another program may have the usual one
    done = subprocess.run(
        [sys.executable, "-c", COMMAND, *arguments],
        env={
            "TURNLANE_HOME": str(home),
            "TURNLANE_CONFIG": str(config),
            "CODEX_HOME": str(codex),
            "HOME": str(home),
        },
        check=False,
        timeout=60,
        capture_output=True,
        text=True,
    )
    assert done.returncode in {0, 1}, done.stderr
    return set(done.stderr.splitlines()[-1].split())


@pytest.mark.parametrize(
    ("arguments", "needed"),
    [
        ("--version", set()),
        ("--help", set()),
        ("codex off", {"msgspec"}),
        ("codex show", {"msgspec", "sqlite3"}),
        ("status", {"msgspec", "rich", "sqlite3"}),
        ("keys list", {"msgspec", "rich"}),
        ("log", {"msgspec", "sqlite3", "pydantic"}),  # typer converts a number with it
    ],
)
def test_a_command_loads_no_more_than_it_needs(
    arguments: str, needed: set[str], tmp_path: Path
) -> None:
    assert loaded(tmp_path, *arguments.split()) <= {"typer", *needed}


def test_the_status_of_one_that_runs_neither_opens_a_database_nor_walks_processes(
    tmp_path: Path,
) -> None:
    url = {"url": "http://127.0.0.1:9", "upstream": None}
    with commanded(tmp_path, {"status": RUNNING, "url": url, "past": {"past": {}}}):
        assert loaded(tmp_path, "status") <= {"typer", "msgspec", "rich"}


@pytest.mark.parametrize(
    "module", ["proxy.runtime", "proxy.process.serve", "proxy.status.external_checks"]
)
def test_what_serves_and_what_checks_load_no_client_or_screen_that_few_need(module: str) -> None:
    program = f"import {module}, sys; print(*{HEAVY} & sys.modules.keys())"
    done = subprocess.run(
        [sys.executable, "-c", program], check=True, timeout=60, capture_output=True, text=True
    )

    assert set(done.stdout.split()) <= {"hypercorn", "msgspec", "sqlite3", "trio"}
