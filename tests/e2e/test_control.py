"""The control socket: one JSON line there, one back."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any, Final

import trio

from tests.e2e.proxy import Proxy

SECONDS = 10
STATUS: Final = b'{"command":"status"}\n'
BAD: Final = (
    b"no JSON\n",
    b"[]\n",
    b"{}\n",
    b'{"command":"\xff"}\n',
    b'{"command":"fly"}\n',
    b'{"command":' + b"[" * 60_000 + b"\n",
    b"x" * 70_000,
)


async def test_the_control_socket_is_its_users_own_and_answers(proxy: Proxy) -> None:
    path = control_of(proxy)
    with trio.fail_after(SECONDS):
        answer = await _command(path, STATUS)

    assert stat.S_IMODE((await trio.Path(path).stat()).st_mode) == 0o600
    assert (answer["service"], answer["pid"]) == ("turnlane", os.getpid())


async def test_a_bad_command_gets_an_error_and_harms_nobody(proxy: Proxy) -> None:
    with trio.fail_after(SECONDS):
        for line in BAD:
            assert "error" in await _command(control_of(proxy), line), line[:20]

        assert "pid" in await _command(control_of(proxy), STATUS)


async def test_commands_do_not_wait_for_those_that_do_not_come(proxy: Proxy) -> None:
    path = control_of(proxy)
    with trio.fail_after(3):
        async with await trio.open_unix_socket(path) as silent:
            await silent.send_all(b'{"comm')
            assert "pid" in await _command(path, STATUS)
            for _ in range(40):
                async with await trio.open_unix_socket(path) as hasty:
                    await hasty.send_all(STATUS)
            assert "pid" in await _command(path, STATUS)


def control_of(proxy: Proxy) -> str:
    assert proxy.runtime is not None
    return str(Path(proxy.runtime.config.home) / "control.sock")


async def _command(path: str, line: bytes) -> Any:
    async with await trio.open_unix_socket(path) as stream:
        await stream.send_all(line)
        answer = bytearray()
        while not answer.endswith(b"\n"):
            piece = await stream.receive_some()
            assert piece, bytes(answer)
            answer += piece
    return json.loads(answer)
