"""A Runtime made of fakes, and the Bench on which a test sets up clients around it."""

import json
from collections.abc import Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Any, Literal, TypedDict, Unpack, overload

import trio

from lifecycle import Admission, Ledger, Limits
from proxy.accounts.account import Account
from proxy.accounts.credentials.refresh import Refresher
from proxy.accounts.opening import Opener
from proxy.accounts.pool import AccountPool
from proxy.accounts.registry import AccountRegistry
from proxy.accounts.route import RoutingSettings
from proxy.config.load import Config
from proxy.config.settings import ClientSettings, ServerSettings, UpstreamSettings
from proxy.ingress.app import App
from proxy.journal.journal import Journal
from proxy.journal.record import Outcome, Transport, TurnRecord
from proxy.keys import KeyRing
from proxy.runtime import Runtime
from tests.testkit.asgi import Client, HttpClient, SocketClient
from tests.testkit.events import create, post
from tests.testkit.upstream import FakeUpstream, Script

WALL = 1_800_000_000.0
HOST = (b"host", b"127.0.0.1:10110")

NO_KEYS = KeyRing(Path("no-such-home"))
NO_REGISTRY = AccountRegistry(Path("no-such-home"))

TRANSPORTS: Sequence[Transport] = (Transport.HTTP, Transport.WEBSOCKET)
Pairs = Sequence[tuple[str, str]]


def opener() -> Opener:
    """Return an opener for accounts whose tokens are not refreshed."""

    async def post(url: str, body: Mapping[str, str]) -> tuple[int, bytes]:
        raise AssertionError(f"a token is refreshed at {url}")

    return Opener(refresher=Refresher(post), environment={}, known={}, wall=lambda: WALL)


class Bench:
    """A proxy with a scripted upstream. `log` is what happened, in the order in which it did."""

    def __init__(
        self,
        nursery: trio.Nursery,
        *scripts: Script,
        limits: Limits | None = None,
        client: ClientSettings | None = None,
        upstream: UpstreamSettings | None = None,
        server: ServerSettings | None = None,
        keys: KeyRing | None = None,
        accounts: Sequence[Account] = (),
        routing: RoutingSettings | None = None,
    ) -> None:
        self.nursery = nursery
        self.log: list[str] = []
        self.upstream = FakeUpstream()
        self.upstream.will(*scripts)
        limits = limits or Limits()
        wall = (lambda: WALL + trio.current_time()) if accounts else (lambda: WALL)
        ledger = Ledger(limits, lambda what, lease: self.log.append(f"{what} {lease}"))
        self.runtime = Runtime(
            config=Config(
                server=server or ServerSettings(),
                client=client or ClientSettings(),
                upstream=upstream or UpstreamSettings(),
                limits=limits,
            ),
            admission=Admission(limits, ledger),
            upstream=self.upstream,
            journal=Journal(),
            keys=NO_KEYS if keys is None else keys,
            accounts=AccountPool(accounts, routing or RoutingSettings(), wall),
            registry=NO_REGISTRY,
            opener=opener(),
            wall=wall,
        )
        self.app = App(self.runtime)
        self._names = count(1)

    # Clients.

    def request(
        self, method: str, path: str, *, query: bytes = b"", headers: Pairs = (), host: bool = True
    ) -> HttpClient:
        """A request whose body is still to be sent."""
        scope = _scope("http", path, query, headers, host=host) | {"method": method}
        client = HttpClient(self.app, scope, f"http {next(self._names)}", self.log.append)
        self.nursery.start_soon(client.run)
        return client

    def post(
        self,
        body: bytes | None = None,
        *,
        thread: str | None = "thread",
        session: str | None = "session",
        parent: str | None = None,
        headers: Pairs = (),
        query: bytes = b"",
        path: str = "/v1/responses",
    ) -> HttpClient:
        """A turn over HTTP, its body sent at once."""
        body = post() if body is None else body
        named = [*headers, *_identity(thread, session, parent)]
        if not any(name == "content-length" for name, _ in named):
            named.append(("content-length", str(len(body))))
        client = self.request("POST", path, query=query, headers=named)
        client.send_body_nowait(body)
        return client

    def get(self, path: str, **more: Any) -> HttpClient:
        client = self.request("GET", path, **more)
        client.send_body_nowait(b"")
        return client

    def socket(
        self,
        *,
        headers: Pairs = (),
        query: bytes = b"",
        path: str = "/v1/responses",
        host: bool = True,
    ) -> SocketClient:
        scope = _scope("websocket", path, query, headers, host=host)
        client = SocketClient(self.app, scope, f"socket {next(self._names)}", self.log.append)
        self.nursery.start_soon(client.run)
        return client

    @overload
    async def turn(
        self, transport: Literal[Transport.HTTP], *, until: str | None = ..., **named: Any
    ) -> HttpClient: ...
    @overload
    async def turn(
        self, transport: Literal[Transport.WEBSOCKET], *, until: str | None = ..., **named: Any
    ) -> SocketClient: ...
    @overload
    async def turn(
        self, transport: Transport, *, until: str | None = ..., **named: Any
    ) -> Client: ...
    async def turn(
        self,
        transport: Transport,
        *,
        until: str | None = None,
        headers: Pairs = (),
        **named: Any,
    ) -> Client:
        """Begin a turn of these names on a connection of its own; return once its client has seen
        an event of type `until`."""
        client: Client
        if transport is Transport.HTTP:
            client = self.post(headers=headers, **named)
        else:
            client = socket = self.socket(headers=headers)
            await socket.say(create(**named))
        return client if until is None else await client.wait_for(until)

    # What there is to see.

    @property
    def records(self) -> list[TurnRecord]:
        return list(self.runtime.journal.recent)

    @property
    def outcomes(self) -> list[Outcome]:
        return [record.outcome for record in self.records]

    @property
    def lanes(self) -> int:
        return self.runtime.admission.statistics().lanes.active

    @property
    def turns(self) -> int:
        return self.runtime.admission.statistics().turns.active

    @property
    def held_bytes(self) -> int:
        return self.runtime.admission.statistics().memory.held_bytes

    @property
    def at_rest(self) -> bool:
        """Nothing is held, nothing is open."""
        books = self.runtime.admission.statistics()
        held = (
            books.lanes.active,
            books.lanes.retained_bytes,
            books.turns.active,
            books.memory.held_bytes,
            books.websockets.active,
            self.upstream.running,
        )
        return held == (0, 0, 0, 0, 0, 0)

    def input_of(self, sent: int) -> list[dict[str, Any]]:
        """The input that went up with one send."""
        items: list[dict[str, Any]] = json.loads(self.upstream.sent[sent].body)["input"]
        return items


class BenchSettings(TypedDict, total=False):
    """Keyword arguments of Bench."""

    limits: Limits
    client: ClientSettings
    upstream: UpstreamSettings
    server: ServerSettings
    keys: KeyRing
    accounts: Sequence[Account]
    routing: RoutingSettings


class OpenBench:
    """Open benches whose clients run in one nursery."""

    def __init__(self, nursery: trio.Nursery) -> None:
        self._nursery = nursery

    def __call__(self, *scripts: Script, **settings: Unpack[BenchSettings]) -> Bench:
        return Bench(self._nursery, *scripts, **settings)


def _identity(thread: str | None, session: str | None, parent: str | None) -> Pairs:
    named = {"thread-id": thread, "session-id": session, "x-codex-parent-thread-id": parent}
    return [(name, value) for name, value in named.items() if value is not None]


def _scope(kind: str, path: str, query: bytes, headers: Pairs, *, host: bool) -> dict[str, Any]:
    raw = [(name.encode(), value.encode()) for name, value in headers]
    return {
        "type": kind,
        "path": path,
        "query_string": query,
        "headers": [HOST, *raw] if host else raw,
    }
