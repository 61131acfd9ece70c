"""A turnlane that stops says so when Codex still points at it."""

from __future__ import annotations

import logging
import signal

import msgspec
import pytest
import trio

from harness.wire.upstream import ScriptedUpstream
from proxy.codex.files import Disk
from proxy.codex.saved import NOTE_NAME, Note, keep_note
from tests.e2e.proxy import open_proxy

SECONDS = 20
NOTE = Note(
    config="/c",
    target="/c",
    original=None,
    previous=None,
    value="http://127.0.0.1:10110/v1",
    written_sha256="",
    wall=0.0,
    phase="done",
)


@pytest.mark.parametrize(
    ("note", "warnings"),
    [(NOTE, 1), (msgspec.structs.replace(NOTE, phase="intent"), 0), (None, 0)],
)
async def test_a_codex_that_is_connected_is_named_at_the_signal(
    note: Note | None, warnings: int, upstream: ScriptedUpstream, caplog: pytest.LogCaptureFixture
) -> None:
    with trio.fail_after(SECONDS), caplog.at_level(logging.WARNING, "proxy"):
        async with open_proxy(upstream.url) as proxy:
            assert proxy.runtime is not None
            if note is not None:
                keep_note(Disk(), proxy.runtime.config.home, note)
            signal.raise_signal(signal.SIGTERM)
            await proxy.over.wait()

    said = [x.getMessage() for x in caplog.records if "turnlane codex off" in x.getMessage()]
    assert len(said) == warnings


async def test_a_note_that_cannot_be_read_keeps_nothing_from_stopping(
    upstream: ScriptedUpstream,
) -> None:
    with trio.fail_after(SECONDS):
        async with open_proxy(upstream.url) as proxy:
            assert proxy.runtime is not None
            (proxy.runtime.config.home / NOTE_NAME).write_bytes(b"nonsense")
            signal.raise_signal(signal.SIGTERM)
            await proxy.over.wait()
