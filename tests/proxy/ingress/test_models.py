"""The list of models: the upstream's own, without a lease, bounded in time and size."""

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from proxy.accounts.credentials.refresh import CredentialFailure
from proxy.accounts.verdict import UNREACHABLE, Kind, Verdict
from proxy.accounts.view import ANY
from proxy.errors import UpstreamCut
from tests.testkit.accounts import FakeCredential, account, served_by, used_headers
from tests.testkit.runtime import WALL, Bench, OpenBench
from tests.testkit.upstream import JSON, Script, failing, rejecting


@pytest.mark.parametrize("path", ["/v1/models", "/backend-api/codex/models"])
async def test_the_list_is_the_upstreams_and_needs_no_turn(path: str, bench: Bench) -> None:
    headers = (*JSON, (b"x-models-etag", b"e"), (b"set-cookie", b"c"), (b"content-length", b"99"))
    bench.upstream.will(Script([b'{"models":', b"[]}"], headers=headers))
    bench.runtime.admission.close_door(10)

    client = await bench.get(
        path, query=b"client_version=1", headers=[("authorization", "Bearer x")]
    ).wait_returned()

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


async def test_a_rejection_by_the_upstream_keeps_its_status_and_body(bench: Bench) -> None:
    no = Script([b'{"error":{}}'], status=401, headers=(*JSON, (b"retry-after", b"1.5")))
    bench.upstream.will(no)

    client = await bench.get("/v1/models").wait_returned()

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
async def test_a_list_that_cannot_be_fetched_is_a_retryable_error(
    script: Script, status: int, code: str, bench: Bench
) -> None:
    bench.upstream.will(script)

    client = await bench.get("/v1/models").wait_returned()

    assert (client.refused.status, client.refused.code) == (status, code)
    assert client.refused.retry_after == "2"
    assert trio.current_time() in (0, 30)
    assert bench.at_rest


async def test_a_client_that_leaves_while_it_waits_cuts_the_upstream(bench: Bench) -> None:
    bench.upstream.will(Script(before=[trio.Event()]))

    client = bench.get("/v1/models")
    await wait_all_tasks_blocked()
    await client.hang_up()
    await client.wait_returned()

    assert trio.current_time() == 0
    assert bench.upstream.running == 0


async def test_without_a_usable_account_the_request_is_refused(
    open_bench: OpenBench,
) -> None:
    paused, spent = account("a"), account("b", 100)
    paused.health.pause(paused=True)
    bench = open_bench(accounts=[paused])
    other = open_bench(accounts=[paused, spent])
    withheld, exhausted = bench.get("/v1/models"), other.get("/v1/models")
    await withheld.wait_returned()
    await exhausted.wait_returned()

    assert (withheld.refused.status, withheld.refused.reason) == (503, "accounts_withheld")
    assert b"turnlane accounts resume" in withheld.body
    assert (exhausted.refused.status, exhausted.refused.reason) == (429, "accounts_spent")
    assert b"1 is spent and 1 is paused" in exhausted.body
    assert bench.records[-1].refusal == "accounts_withheld"
    assert bench.upstream.sent == []


async def test_a_missing_login_is_refused_with_the_reason(
    open_bench: OpenBench,
) -> None:
    credential = FakeCredential("a")
    credential.will.append(CredentialFailure(final=True, message="its auth.json is gone"))
    bench = open_bench(accounts=[account("a", credential=credential)])
    client = await bench.get("/v1/models").wait_returned()

    assert client.refused.reason == "accounts_withheld"
    assert b"its auth.json is gone" in client.body


async def test_a_rejected_credential_is_renewed_once(
    open_bench: OpenBench,
) -> None:
    asked = account("a", credential=FakeCredential("a", renewed="again"))
    listed = Script([b"{}"], headers=(*JSON, *used_headers(40)))
    bench = open_bench(rejecting(401, b"{}"), listed, accounts=[asked])
    client = await bench.get("/v1/models").wait_returned()

    assert (client.status, served_by(bench)) == (200, ["a", "again"])
    assert not asked.health.invalid
    assert [window.used_percent for window in asked.view().windows] == [40]


async def test_a_credential_rejected_twice_makes_its_account_invalid(
    open_bench: OpenBench,
) -> None:
    asked = account("a", credential=FakeCredential("a", renewed="again"))
    bench = open_bench(rejecting(401, b"1"), rejecting(401, b"2"), accounts=[asked])
    client = await bench.get("/v1/models").wait_returned()

    assert (client.status, client.body, served_by(bench)) == (401, b"2", ["a", "again"])
    assert asked.health.invalid


async def test_a_list_shows_that_an_account_can_be_reached_but_not_that_it_has_quota(
    open_bench: OpenBench,
) -> None:
    """Listing models costs no quota, so it says nothing about the quota left."""
    asked = account("a")
    bench = open_bench(failing(), Script([b"{}"], headers=JSON), accounts=[asked])
    asked.health.note(UNREACHABLE, ANY, WALL, WALL)
    asked.health.note(Verdict(kind=Kind.QUOTA, retry_at=WALL + 9000), ANY, WALL, WALL)
    asked.health.invalidate(WALL, WALL)
    await trio.sleep(600)
    down = await bench.get("/v1/models").wait_returned()
    waits = not asked.view().may_probe(ANY, bench.runtime.wall())
    await trio.sleep(600)
    client = await bench.get("/v1/models").wait_returned()

    assert (down.status, waits, client.status) == (502, True, 200)
    view = asked.view()
    assert (view.invalid, dict(view.trouble), list(view.spent)) == (None, {}, [ANY])
