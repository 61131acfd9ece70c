"""Streams to clients: frames that any client can read, writes that end, a side that can be shut."""

from collections import deque
from collections.abc import Callable, Sequence
from typing import cast

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import MockClock, wait_all_tasks_blocked
from wsproto import ConnectionType
from wsproto.connection import Connection
from wsproto.events import TextMessage

from proxy.server.stream import ClientStream, text_frames

STALL_SECONDS = 30.0


def read_by_a_client(data: bytes) -> list[bytes]:
    """Return the messages that wsproto finds, unmasked as only a server may send them."""
    client = Connection(ConnectionType.CLIENT)
    client.receive_data(data)
    messages, parts = [], []
    for event in client.events():
        assert isinstance(event, TextMessage)
        parts.append(event.data)
        if event.message_finished:
            messages.append("".join(parts).encode())
            parts = []
    assert parts == []
    return messages


@pytest.mark.parametrize("size", [0, 1, 125, 126, 127, 255, 256, 65535, 65536, 65537, 300_000])
def test_a_frame_of_any_size_is_read_as_one_message(size: int) -> None:
    message = b"x" * size

    assert read_by_a_client(text_frames([message])) == [message]


@given(st.lists(st.text(max_size=140).map(str.encode), max_size=5))
def test_messages_that_go_together_are_read_one_by_one(messages: Sequence[bytes]) -> None:
    assert read_by_a_client(text_frames(messages)) == messages


# The stream.


class Peer:
    """A socket and its stream: each send waits some seconds, then takes some bytes or fails."""

    def __init__(self, *sends: tuple[float, int | OSError]) -> None:
        self.sends = deque(sends)
        self.sent = b""
        self.shut_with: list[int] = []
        self.shut_error: OSError | None = None
        self.closed = False
        self.to_us, self._from_peer = trio.open_memory_channel[bytes | Exception](10)

    @property
    def socket(self) -> "Peer":
        return self

    async def send(self, data: memoryview) -> int:
        seconds, taken = self.sends.popleft() if self.sends else (0, len(data))
        await trio.sleep(seconds)
        if isinstance(taken, OSError):
            raise taken
        self.sent += bytes(data[:taken])
        return min(taken, len(data))

    def fileno(self) -> int:
        return 7

    def attempt(self, file: int, data: bytes) -> int:
        """A write that does not wait."""
        assert file == self.fileno()
        seconds, taken = self.sends.popleft()
        if seconds:
            raise BlockingIOError
        if isinstance(taken, OSError):
            raise taken
        self.sent += data[:taken]
        return min(taken, len(data))

    def shutdown(self, how: int) -> None:
        self.shut_with.append(how)
        if self.shut_error is not None:
            raise self.shut_error

    async def receive_some(self, max_bytes: int) -> bytes:
        found = await self._from_peer.receive()
        if isinstance(found, Exception):
            raise found
        return found[:max_bytes]

    async def aclose(self) -> None:
        await trio.lowlevel.checkpoint()
        self.closed = True


def wired(peer: Peer) -> ClientStream:
    return ClientStream(cast(trio.SocketStream, peer), STALL_SECONDS, peer.attempt)


@pytest.mark.parametrize(
    ("sends", "rest"), [((0, 6), b""), ((0, 4), b"ef"), ((1, 0), b"abcdef")], ids=repr
)
def test_a_write_at_once_returns_what_was_not_taken(sends: tuple[float, int], rest: bytes) -> None:
    peer = Peer(sends)

    assert wired(peer).write(b"abcdef") == rest
    assert peer.sent + rest == b"abcdef"


async def test_a_write_goes_on_until_everything_is_taken(autojump_clock: MockClock) -> None:
    peer = Peer((0, 3), (29, 1), (29, 2))
    await wired(peer).send_all(b"abcdefgh")

    assert peer.sent == b"abcdefgh"
    assert not peer.closed


async def test_a_peer_that_takes_nothing_for_long_is_closed(autojump_clock: MockClock) -> None:
    peer = Peer((20, 1), (20, 1), (1000, 1))
    with pytest.raises(trio.BrokenResourceError, match="takes nothing"):
        await wired(peer).send_all(b"abc")

    assert trio.current_time() == 40 + STALL_SECONDS
    assert peer.sent == b"ab"
    assert peer.closed


@pytest.mark.parametrize("way", ["at once", "all"])
async def test_a_peer_that_is_gone_breaks_the_write(way: str) -> None:
    gone = ConnectionResetError("gone")
    stream = wired(Peer((0, gone)))

    async def write() -> None:
        if way == "at once":
            stream.write(b"abc")
        else:
            await stream.send_all(b"abc")

    with pytest.raises(trio.BrokenResourceError) as raised:
        await write()

    assert raised.value.__cause__ is gone


async def test_a_shut_side_reads_nothing_more(nursery: trio.Nursery) -> None:
    peer = Peer()
    wire = wired(peer)
    ended: list[str] = []

    async def read() -> None:
        with pytest.raises(trio.ClosedResourceError):
            await wire.receive_some(10)
        ended.append("read")

    nursery.start_soon(read)
    await wait_all_tasks_blocked()
    assert ended == []
    wire.shut()
    await wait_all_tasks_blocked()

    assert ended == ["read"]
    assert peer.shut_with == [trio.socket.SHUT_WR]
    with pytest.raises(trio.ClosedResourceError):
        await wire.receive_some(10)


def test_a_side_can_be_shut_when_the_peer_is_gone_already() -> None:
    peer = Peer()
    peer.shut_error = OSError("not connected")
    wired(peer).shut()

    assert peer.shut_with == [trio.socket.SHUT_WR]


@pytest.mark.parametrize(
    "end",
    [
        lambda peer, wire: peer.to_us.send_nowait(b""),
        lambda peer, wire: peer.to_us.send_nowait(trio.BrokenResourceError()),
        lambda peer, wire: wire.shut(),
    ],
    ids=["hung up", "reset", "shut by us"],
)
async def test_reading_on_ends_with_the_peer(
    end: Callable[[Peer, ClientStream], None], nursery: trio.Nursery
) -> None:
    peer = Peer()
    wire = wired(peer)
    done = trio.Event()

    async def read_on() -> None:
        await wire.read_on()
        done.set()

    nursery.start_soon(read_on)
    await peer.to_us.send(b"a second request")
    await wait_all_tasks_blocked()
    assert not done.is_set()
    end(peer, wire)
    await wait_all_tasks_blocked()

    assert done.is_set()


@pytest.mark.parametrize(
    ("last", "at"),
    [(b"", 3.0), (trio.BrokenResourceError(), 3.0), (trio.ClosedResourceError(), 3.0), (None, 5.0)],
    ids=["closed", "reset", "closed by us", "never"],
)
async def test_lingering_lasts_until_the_peer_has_closed_or_long_enough(
    last: bytes | Exception | None,
    at: float,
    nursery: trio.Nursery,
    autojump_clock: MockClock,
) -> None:
    peer = Peer()

    async def leave() -> None:
        await trio.sleep(3)
        await peer.to_us.send(b"the rest of a body")
        if last is not None:
            await peer.to_us.send(last)

    nursery.start_soon(leave)
    await wired(peer).linger(5)

    assert trio.current_time() == at
    assert peer.shut_with == [trio.socket.SHUT_WR]
