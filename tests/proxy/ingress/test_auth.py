"""Authentication: where a key is looked for, what it stands for, and what its holder may do."""

from pathlib import Path

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from lifecycle import PrincipalId
from proxy.config.load import Config
from proxy.config.settings import ServerSettings
from proxy.errors import ConfigError
from proxy.ingress.auth import caller, may_call
from proxy.ingress.identity import LOCAL
from proxy.journal.record import Outcome, Transport
from proxy.keys import IssuedKey, KeyRing
from proxy.refusal import Refused
from proxy.runtime import open_runtime
from tests.testkit.events import completed, create, created, message
from tests.testkit.runtime import Bench, OpenBench
from tests.testkit.upstream import answer, streaming

STRANGERS = 100


@pytest.fixture
def made(ring: KeyRing) -> IssuedKey:
    return ring.add("one")


@pytest.fixture
def bench(open_bench: OpenBench, ring: KeyRing, made: IssuedKey) -> Bench:
    return open_bench(keys=ring)


def key(made: IssuedKey) -> tuple[str, str]:
    return ("x-turnlane-key", made.secret)


def principal(ring: KeyRing, *headers: tuple[str, str], host: str = "127.0.0.1") -> str | None:
    """The principal of a request, None if it is refused."""
    pairs = [(name.encode(), value.encode("latin-1")) for name, value in headers]
    found = caller(ring, host, pairs)
    return None if isinstance(found, Refused) else found


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "localhost", "LOCALHOST"])
def test_without_keys_every_caller_on_this_machine_is_local(host: str, ring: KeyRing) -> None:
    assert principal(ring, host=host) == LOCAL
    assert principal(ring, ("x-turnlane-key", "tl_whatever"), host=host) == LOCAL


def test_a_key_stands_for_its_principal_wherever_it_is(ring: KeyRing, made: IssuedKey) -> None:
    for name, value in (
        ("x-turnlane-key", made.secret),
        ("x-api-key", made.secret),
        ("authorization", f"Bearer {made.secret}"),
        ("authorization", f"bearer   {made.secret} "),
        ("Authorization", f"Bearer\t{made.secret}"),
        ("X-Turnlane-Key", f" {made.secret} "),
    ):
        assert principal(ring, (name, value)) == made.key.id, name


def test_with_keys_a_request_without_a_valid_one_is_refused(ring: KeyRing, made: IssuedKey) -> None:
    for headers in (
        (),
        (("x-turnlane-key", ""),),
        (("x-turnlane-key", made.secret[3:]),),
        (("x-turnlane-key", made.key.id),),
        (("x-turnlane-key", "tl_\xff"),),
        (("x-api-key", "sk-provider"),),
        (("authorization", "Bearer sk-provider"),),
        (("authorization", f"Bearer sk-{made.secret}"),),
        (("authorization", "Bearer"),),
    ):
        assert principal(ring, *headers) is None, headers


def test_the_first_header_with_a_key_decides(ring: KeyRing, made: IssuedKey) -> None:
    own, api_key, bearer = "x-turnlane-key", "x-api-key", "authorization"
    good, bad = made.secret, "tl_bad"

    assert principal(ring, (bearer, f"Bearer {good}"), (own, bad)) is None
    assert principal(ring, (api_key, bad), (bearer, f"Bearer {good}")) is None
    assert principal(ring, (bearer, f"Bearer {bad}"), (api_key, good)) == made.key.id
    assert principal(ring, (api_key, bad), (own, good)) == made.key.id


def test_a_providers_key_beside_ours_is_ignored(ring: KeyRing, made: IssuedKey) -> None:
    provider = [("authorization", "Bearer sk-provider"), ("x-api-key", "sk-other")]

    assert principal(ring, *provider, key(made)) == made.key.id
    assert principal(ring, provider[1], ("authorization", f"Bearer {made.secret}")) == made.key.id


def test_keys_take_effect_live_in_both_directions(ring: KeyRing) -> None:
    def allowed(who: PrincipalId) -> bool:
        return may_call(ring, "127.0.0.1", who)

    before = allowed(LOCAL)
    made = ring.add("one")
    holder = PrincipalId(made.key.id)
    during = allowed(LOCAL), allowed(holder)
    ring.revoke(made.key.id)

    assert (before, during) == (True, (False, True))
    assert (allowed(LOCAL), allowed(holder)) == (True, False)


def test_revoking_the_last_key_does_not_open_an_address_that_others_can_reach(
    ring: KeyRing, made: IssuedKey
) -> None:
    ring.revoke(made.key.id)

    assert principal(ring, host="0.0.0.0") is None
    assert principal(ring, key(made), host="0.0.0.0") is None
    assert not may_call(ring, "0.0.0.0", LOCAL)


@pytest.mark.parametrize(
    "host", ["0.0.0.0", "", "192.168.1.7", "::", "fe80::1", "desk.example", "127.0.0.1.evil"]
)
async def test_an_address_that_others_can_reach_needs_keys_to_start(
    host: str, tmp_path: Path
) -> None:
    config = Config(server=ServerSettings(host=host), home=tmp_path)
    with pytest.raises(ConfigError, match="turnlane keys add") as raised:
        async with open_runtime(config):
            pass

    assert raised.value.key == "server.host"
    KeyRing(tmp_path).add("one")
    async with open_runtime(config) as started:
        assert len(started.keys) == 1


# Over the wire.


async def test_requests_without_a_valid_key_retain_nothing(
    transport: Transport, bench: Bench
) -> None:
    for number in range(STRANGERS):
        named = [("x-turnlane-key", f"tl_{number}")]
        client = await bench.turn(transport, thread=f"t{number}", headers=named)
        await client.wait_answered()
        assert (client.refused.status, client.refused.reason) == (401, "unauthorized")

    books = bench.runtime.admission.statistics()
    assert (books.lanes.admitted, books.lanes.peak, books.turns.admitted) == (0, 0, 0)
    assert (books.workflows.tracked, books.memory.held_bytes) == (0, 0)
    assert bench.runtime.journal.statistics().refusals == {"unauthorized": STRANGERS}
    assert {record.principal for record in bench.records} == {"-"}
    assert bench.upstream.sent == []


@pytest.mark.parametrize("header", ["x-turnlane-key", "x-api-key"])
async def test_no_key_travels_upstream_and_the_providers_own_does(
    header: str, transport: Transport, bench: Bench, made: IssuedKey
) -> None:
    bench.upstream.will(answer())
    headers = [(header, made.secret), ("authorization", "Bearer sk-provider")]
    await bench.turn(transport, headers=headers, until="response.completed")

    (sent,) = bench.upstream.sent
    assert sent.header("authorization") == ["Bearer sk-provider"]
    assert made.secret not in repr(sent.request)
    assert bench.records[0].principal == made.key.id
    assert made.secret not in repr(bench.records)


@pytest.mark.parametrize("scheme", ["Bearer ", "bearer   ", "Bearer\t", ""])
async def test_a_key_in_place_of_the_providers_is_not_a_credential(
    scheme: str, transport: Transport, bench: Bench, made: IssuedKey
) -> None:
    client = await bench.turn(transport, headers=[("authorization", scheme + made.secret)])
    await client.wait_answered()

    assert (client.refused.status, client.refused.code) == (401, "no_credential")
    assert client.refused.reason == "no_credential"
    assert bench.records[0].principal == made.key.id
    assert bench.upstream.sent == []


@pytest.mark.parametrize(
    ("path", "needs_a_key"),
    [
        *((x, True) for x in ("/status", "/v1/models", "/nothing")),
        ("/healthz", False),
        ("/readyz", False),
    ],
)
async def test_only_health_checks_need_no_key(path: str, needs_a_key: bool, bench: Bench) -> None:
    client = await bench.get(path).wait_answered()

    assert (client.status == 401) == needs_a_key


async def test_the_status_is_shown_to_a_caller_with_a_key(bench: Bench, made: IssuedKey) -> None:
    client = await bench.get("/status", headers=[key(made)]).wait_answered()

    assert client.status == 200
    assert made.secret.encode() not in client.body


async def test_two_callers_that_send_the_same_ids_do_not_meet(
    transport: Transport, bench: Bench, ring: KeyRing, made: IssuedKey
) -> None:
    bench.upstream.will(*(streaming(created(), trio.Event()) for _ in range(2)))
    for each in (made, ring.add("other")):
        await bench.turn(transport, headers=[key(each)])
        await wait_all_tasks_blocked()

    assert bench.lanes == 2
    assert bench.runtime.admission.statistics().workflows.tracked == 2


async def test_a_caller_cannot_continue_the_response_of_another(
    bench: Bench, ring: KeyRing, made: IssuedKey
) -> None:
    bench.upstream.will(answer("resp_1"))
    await bench.turn(Transport.WEBSOCKET, headers=[key(made)], until="response.completed")
    theirs = bench.socket(headers=[key(ring.add("other"))])
    await theirs.say_until("error", create(message("go on"), previous="resp_1"))

    assert theirs.refused.code == "previous_response_not_found"
    assert len(bench.upstream.sent) == 1


async def test_the_socket_of_a_revoked_key_ends_at_its_next_frame(
    bench: Bench, ring: KeyRing, made: IssuedKey
) -> None:
    ring.add("other")
    bench.upstream.will(streaming(created(), trio.Event()))
    socket = bench.socket(headers=[key(made)])
    await socket.say_until("response.created", create())
    ring.revoke(made.key.id)
    await socket.say(create())
    await socket.wait_returned()
    again = await bench.socket(headers=[key(made)]).wait_answered()

    assert (socket.refused.status, socket.refused.reason) == (401, "unauthorized")
    assert socket.closed_with == 1008
    assert again.refused.status == 401
    assert bench.outcomes == [Outcome.REFUSED, Outcome.CLIENT_GONE, Outcome.REFUSED]
    assert bench.at_rest


async def test_a_socket_from_before_there_were_keys_ends_at_its_next_frame(
    open_bench: OpenBench, ring: KeyRing
) -> None:
    bench = open_bench(answer(), keys=ring)
    socket = await bench.turn(Transport.WEBSOCKET, until="response.completed")
    ring.add("one")
    await socket.say(create())
    await socket.wait_returned()

    assert socket.refused.reason == "unauthorized"
    assert socket.closed_with == 1008
    assert len(bench.upstream.sent) == 1


async def test_the_running_turn_of_a_revoked_key_may_finish(
    bench: Bench, ring: KeyRing, made: IssuedKey
) -> None:
    gate = trio.Event()
    bench.upstream.will(streaming(created(), gate, completed()))
    client = await bench.post(headers=[key(made)]).wait_for("response.created")
    ring.revoke(made.key.id)
    gate.set()
    await client.wait_for("response.completed")

    assert bench.records[0].principal == made.key.id
