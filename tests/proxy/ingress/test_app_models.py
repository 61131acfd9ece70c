"""The list of models: the upstream's own, without a lease, bounded in time and size."""

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from proxy.accounts.credentials.refresh import CredentialFailure
from proxy.accounts.verdict import UNREACHABLE, Kind, Verdict
from proxy.accounts.view import ANY
from proxy.errors import UpstreamCut
from tests.testkit.accounts import FakeCredential, account, served_by, used_headers
from tests.testkit.runtime import WALL, Bench
from tests.testkit.upstream import JSON, Script, failing, rejecting


@pytest.mark.parametrize("path", ["/v1/models", "/backend-api/codex/models"])
async def test_models_are_the_upstreams_and_need_no_lease(
    path: str, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    headers = (*JSON, (b"x-models-etag", b"e"), (b"set-cookie", b"c"), (b"content-length", b"99"))
    bench = Bench(nursery, Script([b'{"models":', b"[]}"], headers=headers))
    bench.runtime.admission.close_door(10)

    client = bench.get(path, query=b"client_version=1", headers=[("authorization", "Bearer x")])
    await client.wait_returned()

    request = bench.upstream.sent[0].request
    assert (client.status, client.body) == (200, b'{"models":[]}')
    assert client.headers == {
        "content-type": "application/json",
        "x-models-etag": "e",
        "content-length": "13",
    }
    assert (request.method, request.path, request.query) == ("GET", "/models", b"client_version=1")
    assert bench.upstream.sent[0].header("authorization") == ["Bearer x"]
    assert request.body is None
    assert bench.log == []
    assert bench.at_rest


async def test_models_keep_the_upstreams_no(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    no = Script([b'{"error":{}}'], status=401, headers=(*JSON, (b"retry-after", b"1.5")))
    bench = Bench(nursery, no)

    client = bench.get("/v1/models")
    await client.wait_returned()

    assert (client.status, client.body) == (401, b'{"error":{}}')
    assert client.headers["retry-after"] == "2"


@pytest.mark.parametrize(
    ("script", "status", "code"),
    [
        (failing(), 502, "upstream_unreachable"),
        (Script([b"{", UpstreamCut("reset")], headers=JSON), 502, "upstream_cut"),
        (Script(before=[trio.Event()]), 504, "upstream_timeout"),
        (Script([b"{", trio.Event()], headers=JSON), 504, "upstream_timeout"),
        (Script([b"x" * 2**20] * 5, headers=JSON), 502, "upstream_unusable"),
    ],
    ids=["unreachable", "cut", "no head", "no end", "too large"],
)
async def test_models_that_cannot_be_had_are_said_to_be_so(
    script: Script, status: int, code: str, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    bench = Bench(nursery, script)

    client = bench.get("/v1/models")
    await client.wait_returned()

    assert (client.refused.status, client.refused.code) == (status, code)
    assert client.refused.retry_after == "2"
    assert trio.current_time() in (0, 30)
    assert bench.at_rest


async def test_a_client_that_leaves_while_it_waits_for_models_cuts_the_upstream(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    bench = Bench(nursery, Script(before=[trio.Event()]))

    client = bench.get("/v1/models")
    await wait_all_tasks_blocked()
    await client.hang_up()
    await client.wait_returned()

    assert trio.current_time() == 0
    assert bench.upstream.running == 0


async def test_models_that_no_account_can_ask_for_are_refused_by_the_table(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    paused, spent = account("a"), account("b", 100)
    paused.state.pause(paused=True)
    bench = Bench(nursery, accounts=[paused])
    other = Bench(nursery, accounts=[paused, spent])
    withheld, exhausted = bench.get("/v1/models"), other.get("/v1/models")
    await withheld.wait_returned()
    await exhausted.wait_returned()

    assert (withheld.refused.status, withheld.refused.reason) == (503, "accounts_withheld")
    assert b"turnlane accounts resume" in withheld.body
    assert (exhausted.refused.status, exhausted.refused.reason) == (429, "accounts_spent")
    assert b"1 is spent and 1 is paused" in exhausted.body
    assert bench.records[-1].refusal == "accounts_withheld"
    assert bench.upstream.sent == []


async def test_models_for_a_login_that_is_gone_are_refused_with_what_is_wrong(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    credential = FakeCredential("a")
    credential.will.append(CredentialFailure(final=True, message="its auth.json is gone"))
    bench = Bench(nursery, accounts=[account("a", credential=credential)])
    client = bench.get("/v1/models")
    await client.wait_returned()

    assert client.refused.reason == "accounts_withheld"
    assert b"its auth.json is gone" in client.body


async def test_models_are_asked_for_with_a_renewed_credential_where_the_first_is_refused(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    asked = account("a", credential=FakeCredential("a", renewed="again"))
    listed = Script([b"{}"], headers=(*JSON, *used_headers(40)))
    bench = Bench(nursery, rejecting(401, b"{}"), listed, accounts=[asked])
    client = bench.get("/v1/models")
    await client.wait_returned()

    assert (client.status, served_by(bench)) == (200, ["a", "again"])
    assert not asked.state.invalid
    assert [window.used_percent for window in asked.view().windows] == [40]


async def test_a_credential_that_models_are_refused_with_twice_is_learnt_to_be_no_good(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    asked = account("a", credential=FakeCredential("a", renewed="again"))
    bench = Bench(nursery, rejecting(401, b"1"), rejecting(401, b"2"), accounts=[asked])
    client = bench.get("/v1/models")
    await client.wait_returned()

    assert (client.status, client.body, served_by(bench)) == (401, b"2", ["a", "again"])
    assert asked.state.invalid


async def test_a_probe_made_for_models_teaches_what_it_shows_and_no_more(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """An account that lists its models can be reached; whether it has quota, nobody knows."""
    asked = account("a")
    bench = Bench(nursery, failing(), Script([b"{}"], headers=JSON), accounts=[asked])
    asked.state.note(UNREACHABLE, ANY, WALL, WALL)
    asked.state.note(Verdict(kind=Kind.QUOTA, retry_at=WALL + 9000), ANY, WALL, WALL)
    asked.state.invalidate(WALL, WALL)
    await trio.sleep(600)
    down = bench.get("/v1/models")
    await down.wait_returned()
    waits = not asked.view().may_probe(ANY, bench.runtime.wall())
    await trio.sleep(600)
    client = bench.get("/v1/models")
    await client.wait_returned()

    assert (down.status, waits, client.status) == (502, True, 200)
    view = asked.view()
    assert (view.invalid, dict(view.trouble), list(view.spent)) == (None, {}, [ANY])
