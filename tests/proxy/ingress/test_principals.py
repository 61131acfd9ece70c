"""Keys at the door: who is let in, what each may reach, and that no key travels on."""

from pathlib import Path

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from lifecycle import PrincipalId
from proxy.journal.record import Outcome, Transport
from proxy.keys import IssuedKey, KeyRing
from tests.testkit.asgi import Client
from tests.testkit.events import completed, create, created, message
from tests.testkit.runtime import TRANSPORTS, Bench, Pairs
from tests.testkit.upstream import answer, streaming

both = pytest.mark.parametrize("transport", TRANSPORTS)
STRANGERS = 1000


@pytest.fixture
def ring(tmp_path: Path) -> KeyRing:
    return KeyRing(tmp_path)


@pytest.fixture
def made(ring: KeyRing) -> IssuedKey:
    return ring.add("one")


@pytest.fixture
def bench(
    nursery: trio.Nursery, autojump_clock: MockClock, ring: KeyRing, made: IssuedKey
) -> Bench:
    return Bench(nursery, keys=ring)


def key(made: IssuedKey) -> tuple[str, str]:
    return ("x-turnlane-key", made.secret)


def ask(bench: Bench, transport: Transport, headers: Pairs) -> Client:
    return (
        bench.post(headers=headers)
        if transport is Transport.HTTP
        else bench.socket(headers=headers)
    )


async def answered(client: Client) -> Client:
    await client.wait_until(lambda: client.complete)
    return client


@both
async def test_strangers_leave_nothing_behind(
    transport: Transport, bench: Bench, autojump_clock: MockClock
) -> None:
    for number in range(STRANGERS):
        named = [("x-turnlane-key", f"tl_{number}"), ("thread-id", f"t{number}")]
        client = await answered(ask(bench, transport, named))
        assert (client.refused.status, client.refused.reason) == (401, "unauthorized")

    books = bench.runtime.admission.statistics()
    assert (books.lanes.admitted, books.lanes.peak, books.turns.admitted) == (0, 0, 0)
    assert (books.workflows.tracked, books.memory.held_bytes) == (0, 0)
    assert bench.runtime.journal.statistics().refusals == {"unauthorized": STRANGERS}
    assert {record.principal for record in bench.records} == {"-"}
    assert bench.upstream.sent == []


PLACES = ("x-turnlane-key", "x-api-key", "authorization")


@pytest.mark.parametrize("place", PLACES[:2])
@both
async def test_no_key_travels_upstream_and_the_providers_own_does(
    place: str, transport: Transport, bench: Bench, made: IssuedKey
) -> None:
    bench.upstream.will(answer())
    headers = [(place, made.secret), ("authorization", "Bearer sk-provider")]
    if transport is Transport.HTTP:
        await answered(bench.post(headers=headers))
    else:
        socket = bench.socket(headers=headers)
        await socket.say(create())
        await socket.wait_for("response.completed")

    (sent,) = bench.upstream.sent
    assert sent.header("authorization") == ["Bearer sk-provider"]
    assert made.secret not in repr(sent.request)
    assert bench.records[0].principal == made.key.id
    assert made.secret not in repr(bench.records)


@pytest.mark.parametrize("scheme", ["Bearer ", "bearer   ", "Bearer\t", ""])
@both
async def test_a_key_where_the_providers_belongs_is_no_credential(
    scheme: str, transport: Transport, bench: Bench, made: IssuedKey
) -> None:
    client = await answered(ask(bench, transport, [("authorization", scheme + made.secret)]))

    assert (client.refused.status, client.refused.code) == (401, "no_credential")
    assert client.refused.reason == "no_credential"
    assert bench.records[0].principal == made.key.id
    assert bench.upstream.sent == []


@pytest.mark.parametrize(
    ("path", "needs_a_key"),
    [
        ("/status", True),
        ("/v1/models", True),
        ("/nothing", True),
        ("/healthz", False),
        ("/readyz", False),
    ],
)
async def test_only_whoever_watches_the_process_comes_without_a_key(
    path: str, needs_a_key: bool, bench: Bench
) -> None:
    client = await answered(bench.get(path))

    assert (client.status == 401) == needs_a_key


async def test_the_status_is_for_everybody_who_has_a_key(bench: Bench, made: IssuedKey) -> None:
    client = await answered(bench.get("/status", headers=[key(made)]))

    assert client.status == 200
    assert made.secret.encode() not in client.body


@both
async def test_callers_that_say_the_same_do_not_meet(
    transport: Transport, bench: Bench, ring: KeyRing, made: IssuedKey
) -> None:
    other = ring.add("other")
    bench.upstream.will(*(streaming(created(), trio.Event()) for _ in range(2)))
    for each in (made, other):
        if transport is Transport.HTTP:
            bench.post(headers=[key(each)])
        else:
            await bench.socket(headers=[key(each)]).say(create())
        await wait_all_tasks_blocked()

    assert bench.lanes == 2
    assert bench.runtime.admission.statistics().workflows.tracked == 2


async def test_nobody_continues_the_response_of_somebody_else(
    bench: Bench, ring: KeyRing, made: IssuedKey
) -> None:
    other = ring.add("other")
    bench.upstream.will(answer("resp_1"))
    mine = bench.socket(headers=[key(made)])
    await mine.say(create())
    await mine.wait_for("response.completed")
    theirs = bench.socket(headers=[key(other)])
    await theirs.say(create(message("go on"), previous="resp_1"))
    await theirs.wait_for("error")

    assert theirs.refused.code == "previous_response_not_found"
    assert len(bench.upstream.sent) == 1


async def test_a_revoked_key_ends_at_its_next_frame(
    bench: Bench, ring: KeyRing, made: IssuedKey
) -> None:
    ring.add("other")
    bench.upstream.will(streaming(created(), trio.Event()))
    socket = bench.socket(headers=[key(made)])
    await socket.say(create())
    await socket.wait_for("response.created")
    ring.revoke(made.key.id)
    await socket.say(create())
    await socket.wait_returned()
    again = await answered(bench.socket(headers=[key(made)]))

    assert (socket.refused.status, socket.refused.reason) == (401, "unauthorized")
    assert socket.closed_with == 1008
    assert again.refused.status == 401
    assert bench.outcomes == [Outcome.REFUSED, Outcome.CLIENT_GONE, Outcome.REFUSED]
    assert bench.at_rest


async def test_who_came_before_there_were_keys_ends_at_its_next_frame_too(
    nursery: trio.Nursery, autojump_clock: MockClock, ring: KeyRing
) -> None:
    bench = Bench(nursery, answer(), keys=ring)
    socket = bench.socket()
    await socket.say(create())
    await socket.wait_for("response.completed")
    ring.add("one")
    await socket.say(create())
    await socket.wait_returned()

    assert socket.refused.reason == "unauthorized"
    assert socket.closed_with == 1008
    assert len(bench.upstream.sent) == 1


async def test_a_running_turn_of_a_revoked_key_may_end(
    bench: Bench, ring: KeyRing, made: IssuedKey
) -> None:
    gate = trio.Event()
    bench.upstream.will(streaming(created(), gate, completed()))
    client = bench.post(headers=[key(made)])
    await client.wait_for("response.created")
    ring.revoke(made.key.id)
    gate.set()
    await client.wait_for("response.completed")

    assert bench.records[0].principal == PrincipalId(made.key.id)
