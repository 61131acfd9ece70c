"""The ASGI entry: the route table, the answers that need no turn, and bugs in a handler."""

import json

import pytest
import trio

from lifecycle import Limits
from proxy.ingress.asgi import Scope
from proxy.journal.record import Outcome, Transport
from tests.testkit.events import completed, created
from tests.testkit.runtime import HOST, Bench, OpenBench
from tests.testkit.upstream import Script, streaming

FOREIGN = [("origin", "https://evil.example")]


@pytest.mark.parametrize(
    ("draining", "code", "state"), [(False, 200, "ready"), (True, 503, "draining")]
)
async def test_a_draining_proxy_is_alive_but_not_ready(
    draining: bool, code: int, state: str, bench: Bench
) -> None:
    if draining:
        bench.runtime.admission.close_door(10)

    alive = await bench.get("/healthz").wait_returned()
    ready = await bench.get("/readyz").wait_returned()

    assert (alive.status, json.loads(alive.body)) == (
        200,
        {"service": "turnlane", "status": "alive"},
    )
    assert (ready.status, json.loads(ready.body)["status"]) == (code, state)


async def test_status_shows_what_is_held_now(open_bench: OpenBench) -> None:
    bench = open_bench(streaming(created(), trio.Event()), limits=Limits(turns=1))

    await bench.turn(Transport.WEBSOCKET, until="response.created")
    await bench.post(thread="another").wait_returned()
    client = await bench.get("/status").wait_returned()

    status = json.loads(client.body)
    assert status["turns"] == {"active": 1, "peak": 1, "admitted": 1, "refused": 1, "limit": 1}
    assert (status["lanes"]["active"], status["websockets"]["active"]) == (1, 1)
    assert status["memory"]["held_bytes"] == bench.held_bytes > 0
    assert (status["refusals"], status["outcomes"]) == ({"turns_at_capacity": 1}, {"refused": 1})


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
async def test_a_request_without_a_route_is_refused(
    method: str, path: str, status: int, reason: str, bench: Bench
) -> None:
    client = bench.request(method, path)
    client.send_body_nowait(b"{}")
    refused = (await client.wait_returned()).refused

    assert (refused.status, refused.reason, refused.retry_after) == (status, reason, None)
    assert path in refused.message
    assert [record.refusal for record in bench.records] == [reason]
    assert path != "/v1/responses" or refused.message.endswith("POST, WebSocket upgrade")


@pytest.mark.parametrize(
    ("path", "status"), [("/v1/models", 405), ("/healthz", 405), ("/elsewhere", 404)]
)
async def test_a_websocket_elsewhere_is_denied_over_http(
    path: str, status: int, open_bench: OpenBench
) -> None:
    socket = await open_bench().socket(path=path).wait_returned()

    assert not socket.accepted
    assert socket.refused.status == status
    assert path in socket.refused.message


@pytest.mark.parametrize("path", ["/v1/responses", "/status", "/healthz", "/nowhere"])
async def test_a_foreign_page_is_refused_before_anything_else(path: str, bench: Bench) -> None:
    bench.runtime.admission.close_door(10)

    client = await bench.post(path=path, headers=FOREIGN).wait_returned()

    assert (client.refused.status, client.refused.reason) == (403, "foreign_origin")
    assert "evil.example" in client.refused.message
    assert bench.outcomes == [Outcome.REFUSED]


async def test_a_foreign_page_that_sends_a_body_sees_its_refusal(open_bench: OpenBench) -> None:
    client = open_bench().request("POST", "/v1/responses", headers=FOREIGN)
    await client.wait_until(lambda: client.chunks)
    await client.send_body(b"x" * 100_000, more=True)
    await client.send_body(b"", more=False)
    await client.wait_returned()

    assert client.refused.reason == "foreign_origin"
    assert client.headers["connection"] == "close"
    assert trio.current_time() == 0


async def test_the_log_line_of_a_turn_shows_nothing_that_was_said(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", logger="proxy")
    bench.upstream.will(streaming(created(), completed()))

    await bench.post(
        b'{"model":"m","stream":true,"input":"a secret"}',
        headers=[("authorization", "Bearer hush"), ("x-codex-turn-metadata", '{"/home":1}')],
    ).wait_returned()

    (line,) = [record.getMessage() for record in caplog.records]
    assert line.startswith("http completed m ")
    assert not any(word in line for word in ("secret", "hush", "/home", "thread"))


async def test_a_bug_in_a_handler_is_logged_and_answered_with_500(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    bench.upstream.will(Script(before=[ValueError("a bug of ours")]))

    client = await bench.get("/v1/models").wait_returned()

    assert (client.refused.status, client.refused.code) == (500, "internal_error")
    assert client.headers["connection"] == "close"
    assert "a bug of ours" in caplog.text


async def test_a_bug_after_the_answer_has_begun_reaches_the_server(bench: Bench) -> None:
    """The server then cuts the connection, whose answer cannot be completed."""
    scope = {"type": "http", "path": "/healthz", "query_string": b"", "headers": [HOST]}
    sent: list[str] = []

    async def send(message: Scope) -> None:
        await trio.lowlevel.checkpoint()
        sent.append(message["type"])
        if len(sent) > 1:
            raise ValueError("a bug of ours")

    with pytest.raises(ValueError, match="a bug of ours"):
        await bench.app(scope, trio.sleep_forever, send, bench.get("/healthz"))

    assert sent == ["http.response.start", "http.response.body"]
