"""The ASGI entry: who is let in at all, the route table, and the answers that need no turn."""

import json

import pytest
import trio
from trio.testing import MockClock

from lifecycle import Limits
from proxy import __version__
from proxy.config.settings import ServerSettings
from proxy.ingress.asgi import Scope
from proxy.journal.record import Outcome, Transport
from tests.testkit.events import completed, created
from tests.testkit.runtime import HOST, Bench
from tests.testkit.upstream import Script, streaming

FOREIGN = [("origin", "https://evil.example")]


async def test_it_is_alive_and_ready(nursery: trio.Nursery, autojump_clock: MockClock) -> None:
    bench = Bench(nursery)

    alive, ready = bench.get("/healthz"), bench.get("/readyz")
    await alive.wait_returned()
    await ready.wait_returned()

    assert (alive.status, json.loads(alive.body)["status"]) == (200, "alive")
    assert (ready.status, json.loads(ready.body)["status"]) == (200, "ready")
    assert json.loads(alive.body)["service"] == "turnlane"


async def test_draining_it_is_alive_and_not_ready(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    bench = Bench(nursery)

    bench.runtime.admission.close_door(10)
    alive, ready = bench.get("/healthz"), bench.get("/readyz")
    await alive.wait_returned()
    await ready.wait_returned()

    assert alive.status == 200
    assert (ready.status, json.loads(ready.body)["status"]) == (503, "draining")


async def test_status_is_every_number_that_there_is(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    bench = Bench(nursery, streaming(created(), trio.Event()), limits=Limits(turns=1))

    socket = await bench.turn(Transport.WEBSOCKET)
    await socket.wait_for("response.created")
    refused = bench.post(thread="another")
    await refused.wait_returned()
    await trio.sleep(5)
    client = bench.get("/status")
    await client.wait_returned()

    status = json.loads(client.body)
    assert (status["service"], status["version"]) == ("turnlane", __version__)
    assert (status["state"], status["uptime_seconds"]) == ("ready", 5)
    assert status["lanes"] == {
        "active": 1,
        "peak": 1,
        "peak_retained_bytes": 32,
        "admitted": 1,
        "refused": 0,
        "retained_bytes": 32,
        "limit": 64,
    }
    assert status["turns"] == {"active": 1, "peak": 1, "admitted": 1, "refused": 1, "limit": 1}
    assert status["websockets"] == {"active": 1, "limit": 256}
    assert status["memory"]["held_bytes"] == bench.held_bytes > 0
    assert status["refusals"] == {"turns_at_capacity": 1}
    assert status["outcomes"] == {"refused": 1}


@pytest.mark.parametrize(
    ("method", "path", "status", "reason"),
    [
        ("GET", "/", 404, "not_found"),
        ("POST", "/v1/chat/completions", 404, "not_found"),
        ("GET", "/v1/responses", 405, "method_not_allowed"),
        ("DELETE", "/v1/responses", 405, "method_not_allowed"),
        ("POST", "/status", 405, "method_not_allowed"),
    ],
)
async def test_what_is_not_routed_is_refused(
    method: str,
    path: str,
    status: int,
    reason: str,
    nursery: trio.Nursery,
    autojump_clock: MockClock,
) -> None:
    bench = Bench(nursery)

    client = bench.request(method, path)
    client.send_body_nowait(b"{}")
    await client.wait_returned()

    assert (client.refused.status, client.refused.reason) == (status, reason)
    assert path in client.refused.message
    assert client.refused.retry_after is None
    assert [record.refusal for record in bench.records] == [reason]


async def test_a_405_says_what_would_be_taken(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    bench = Bench(nursery)

    client = bench.get("/v1/responses")
    await client.wait_returned()

    taken = client.refused.message.partition("it takes ")[2]
    assert taken == "POST, WebSocket upgrade"


@pytest.mark.parametrize(
    ("path", "status"), [("/v1/models", 405), ("/healthz", 405), ("/elsewhere", 404)]
)
async def test_a_websocket_elsewhere_is_denied_over_http(
    path: str, status: int, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    bench = Bench(nursery)

    socket = bench.socket(path=path)
    await socket.wait_returned()

    assert not socket.accepted
    assert socket.refused.status == status
    assert path in socket.refused.message


@pytest.mark.parametrize("path", ["/v1/responses", "/status", "/healthz", "/nowhere"])
async def test_a_foreign_page_is_refused_before_anything_else(
    path: str, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    bench = Bench(nursery)
    bench.runtime.admission.close_door(10)

    client = bench.post(path=path, headers=FOREIGN)
    await client.wait_returned()

    assert (client.refused.status, client.refused.reason) == (403, "foreign_origin")
    assert "evil.example" in client.refused.message
    assert bench.outcomes == [Outcome.REFUSED]


async def test_a_foreign_pages_websocket_is_denied_before_accept(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    bench = Bench(nursery)

    socket = bench.socket(headers=FOREIGN)
    await socket.wait_returned()

    assert not socket.accepted
    assert (socket.refused.status, socket.refused.reason) == (403, "foreign_origin")
    assert socket.headers["connection"] == "close"
    assert bench.records[0].transport is Transport.WEBSOCKET


async def test_a_foreign_page_that_sends_a_body_sees_its_refusal(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    bench = Bench(nursery)

    client = bench.request("POST", "/v1/responses", headers=FOREIGN)
    await client.wait_until(lambda: client.chunks)
    await client.send_body(b"x" * 100_000, more=True)
    await client.send_body(b"", more=False)
    await client.wait_returned()

    assert client.refused.reason == "foreign_origin"
    assert client.headers["connection"] == "close"
    assert trio.current_time() == 0


async def test_a_host_that_is_not_ours_is_refused(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    bench = Bench(nursery)

    client = bench.get("/v1/models", host=False, headers=[("host", "rebound.example")])
    await client.wait_returned()

    assert client.refused.status == 403
    assert "rebound.example" in client.refused.message


async def test_a_host_and_an_origin_that_are_configured_are_let_in(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    server = ServerSettings(hosts=("proxy.lan",), origins=("https://desk.lan",))
    bench = Bench(nursery, server=server)

    client = bench.get(
        "/healthz", host=False, headers=[("host", "proxy.lan:80"), ("origin", "https://desk.lan")]
    )
    await client.wait_returned()

    assert client.status == 200


async def test_the_log_of_a_turn_is_one_line_without_a_word_of_it(
    nursery: trio.Nursery, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", logger="proxy")
    bench = Bench(nursery, streaming(created(), completed()))

    client = bench.post(
        b'{"model":"m","stream":true,"input":"a secret"}',
        headers=[("authorization", "Bearer hush"), ("x-codex-turn-metadata", '{"/home":1}')],
    )
    await client.wait_returned()

    (line,) = [record.getMessage() for record in caplog.records]
    assert line.startswith("http completed m ")
    assert not any(word in line for word in ("secret", "hush", "/home", "thread"))


async def test_a_bug_in_a_request_is_logged_and_told_as_a_500(
    nursery: trio.Nursery, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    bench = Bench(nursery, Script(before=[ValueError("a bug of ours")]))

    client = bench.get("/v1/models")
    await client.wait_returned()

    assert (client.refused.status, client.refused.code) == (500, "internal_error")
    assert client.headers["connection"] == "close"
    assert "a bug of ours" in caplog.text


async def test_a_bug_behind_the_begin_of_an_answer_ends_its_connection(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """It leaves the app, and the server below cuts what it cannot complete."""
    bench = Bench(nursery)
    scope = {
        "type": "http",
        "method": "GET",
        "path": "/healthz",
        "query_string": b"",
        "headers": [HOST],
    }
    sent: list[str] = []

    async def send(message: Scope) -> None:
        await trio.lowlevel.checkpoint()
        sent.append(message["type"])
        if len(sent) > 1:
            raise ValueError("a bug of ours")

    with pytest.raises(ValueError, match="a bug of ours"):
        await bench.app(scope, trio.sleep_forever, send, bench.get("/healthz"))

    assert sent == ["http.response.start", "http.response.body"]
