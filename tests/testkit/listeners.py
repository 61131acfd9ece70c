"""Programs that listen: on a port of this machine, or on the control socket of a home."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from proxy.home.lock import CONTROL_NAME

HEALTHY = b'{"service":"turnlane","status":"alive"}'


@contextmanager
def _one_peer(listening: socket.socket, serve: Callable[[socket.socket], None]) -> Iterator[None]:
    """Serve one connection, after its request has been read."""

    def accept() -> None:
        peer, _ = listening.accept()
        with peer:
            peer.recv(65536)
            serve(peer)

    thread = threading.Thread(target=accept)
    thread.start()
    yield
    thread.join()


@contextmanager
def answering(body: bytes = b"", head: bytes = b"HTTP/1.1 200 OK\r\n") -> Iterator[int]:
    """Give one answer to one request on a port."""
    answer = head + b"content-length: %d\r\n\r\n" % len(body) + body
    with (
        socket.create_server(("127.0.0.1", 0)) as listening,
        _one_peer(listening, lambda peer: peer.sendall(answer)),
    ):
        yield listening.getsockname()[1]


def closed_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port: int = listening.getsockname()[1]
    return port


@contextmanager
def listening(home: Path, serve: Callable[[socket.socket], None]) -> Iterator[None]:
    """Serve one connection at the control socket of a home."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(home / CONTROL_NAME))
        listener.listen()
        with _one_peer(listener, serve):
            yield


@contextmanager
def commanded(home: Path, answers: Mapping[str, object]) -> Iterator[None]:
    """Answer some commands at the control socket of a home; the last command is `end`."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(home / CONTROL_NAME))
        listener.listen()
        thread = threading.Thread(target=_answer, args=(listener, answers))
        thread.start()
        try:
            yield
        finally:
            with socket.socket(socket.AF_UNIX) as last:
                last.connect(str(home / CONTROL_NAME))
                last.sendall(b'{"command":"end"}\n')
            thread.join()


def _answer(listener: socket.socket, answers: Mapping[str, object]) -> None:
    command = ""
    while command != "end":
        peer, _ = listener.accept()
        with peer:
            command = json.loads(peer.recv(65536))["command"]
            if command in answers:
                peer.sendall(json.dumps(answers[command]).encode() + b"\n")
