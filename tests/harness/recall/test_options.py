"""A command line is read as it was meant, or refused with 2 and a reason."""

from pathlib import Path

import pytest

from harness.recall.faults import RecallTransport
from harness.recall.line import Address
from harness.recall.options import Inject, read_options


def test_the_defaults() -> None:
    options = read_options([])

    assert (options.sessions, options.rounds, options.seed) == (32, 10, 1)
    assert options.transport is RecallTransport.WS
    assert (options.target, options.json, options.inject) == (None, None, None)


def test_everything_said() -> None:
    line = (
        "--sessions 64 --rounds 3 --transport http --seed 7 --json out.json --inject swap "
        "--target http://127.0.0.1:8765 --upstream-port 9000"
    )
    options = read_options(line.split())

    assert (options.sessions, options.rounds, options.seed) == (64, 3, 7)
    assert (options.transport, options.inject) == (RecallTransport.HTTP, Inject.SWAP)
    assert options.target == Address(host="127.0.0.1", port=8765)
    assert (options.upstream_port, options.json) == (9000, Path("out.json"))


@pytest.mark.parametrize("url", ["localhost:8765", "http://localhost:8765/", "//localhost:8765"])
def test_a_target_however_it_is_written(url: str) -> None:
    options = read_options(["--target", url, "--upstream-port", "9000"])

    assert options.target == Address(host="localhost", port=8765)


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("--sessions 0", "not between 1 and 64"),
        ("--sessions 65", "not between 1 and 64"),
        ("--rounds 0", "not between 1 and"),
        ("--rounds many", "invalid"),
        ("--transport carrier-pigeon", "invalid"),
        ("--inject fault", "invalid"),
        ("--target ftp://x:1 --upstream-port 1", "is not like http://"),
        ("--target http://localhost --upstream-port 1", "is not like http://"),
        ("--target http://localhost:1", "--target needs --upstream-port"),
        ("--target http://localhost:1 --upstream-port 2 --inject leak", "not with --target"),
        ("--sessions 1 --inject swap", "two sessions"),
        ("--nonsense", "unrecognized"),
    ],
)
def test_a_wrong_command_line(line: str, says: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        read_options(line.split())

    assert ended.value.code == 2
    assert says in capsys.readouterr().err
