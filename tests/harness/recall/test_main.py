"""The command: exit codes, the report on paper, and the proxy itself under a small load."""

import os
import signal
import socket
import threading
from collections.abc import Mapping
from io import StringIO
from pathlib import Path

import msgspec
import pytest
import trio
from rich.console import Console

from harness.recall.__main__ import main, recall
from harness.recall.options import read_options
from harness.wire.client import HOST
from tests.e2e.proxy import open_proxy
from tests.harness.recall.kit import AT_ONCE


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


async def run(line: str, environment: Mapping[str, str] = os.environ) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of a run whose tools take no time."""
    out, err = StringIO(), StringIO()
    with trio.fail_after(30):
        code = await recall(
            read_options(line.split()),
            environment,
            Console(file=out, width=200),
            Console(file=err, width=200),
            AT_ONCE,
        )
    return code, out.getvalue(), err.getvalue()


async def at_a_target(line: str) -> tuple[int, str, str]:
    """Run against a proxy that the harness has not started."""
    port = free_port()
    async with open_proxy(f"http://{HOST}:{port}/v1") as proxy:
        return await run(f"{line} --target http://{HOST}:{proxy.port} --upstream-port {port}")


async def test_a_sound_target_passes_and_the_report_is_written(tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    code, out, err = await at_a_target(f"--sessions 3 --rounds 1 --json {report}")

    assert code == 0
    assert out.rstrip().endswith("PASS")
    assert err.strip() == ""
    assert msgspec.json.decode(report.read_bytes())["verdict"] == "pass"


async def test_a_swapped_call_fails_the_run() -> None:
    code, out, _ = await at_a_target("--sessions 2 --rounds 1 --inject swap")

    assert code == 1
    assert "1 lost, 0 doubled, 1 foreign" in out
    assert out.rstrip().endswith("FAIL")


async def test_a_port_that_is_taken() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        code, _, err = await run(f"--target localhost:1 --upstream-port {port}")

    assert code == 1
    assert f"port {port}" in err


def test_a_target_that_does_not_answer_fails_the_run(capsys: pytest.CaptureFixture[str]) -> None:
    code = main(f"--target 127.0.0.1:1 --upstream-port {free_port()}".split())

    assert code == 1
    assert "/status cannot be read" in capsys.readouterr().err


def test_a_run_that_is_interrupted(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as target:

        def interrupt() -> None:
            connection, _ = target.accept()
            with connection:
                os.kill(os.getpid(), signal.SIGINT)
                connection.recv(2**16)

        thread = threading.Thread(target=interrupt)
        thread.start()
        port = target.getsockname()[1]
        code = main(f"--target 127.0.0.1:{port} --upstream-port {free_port()}".split())
        thread.join()

    assert code == 1
    assert "interrupted" in capsys.readouterr().err


def test_a_wrong_command_line_exits_with_2() -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--sessions", "0"])

    assert ended.value.code == 2


@pytest.mark.parametrize("transport", ["ws", "http"])
async def test_the_proxy_itself_passes(transport: str) -> None:
    code, out, err = await run(f"--sessions 3 --rounds 1 --transport {transport}")

    assert code == 0, out + err


async def test_the_last_words_of_a_proxy_that_failed_are_shown() -> None:
    code, _, err = await run("--sessions 2 --rounds 1 --transport http --inject swap")

    assert code == 1
    assert "the last words of the proxy:" in err
    assert "completed" in err


async def test_a_proxy_that_does_not_start(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("raise SystemExit('out of order')")
    code, _, err = await run("--sessions 1 --rounds 1", {"PYTHONPATH": str(tmp_path)})

    assert code == 1
    assert "the proxy did not start" in err
    assert "out of order" in err
