"""Checkup: what the provider says of one account when it is asked, at no cost in tokens."""

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from proxy.accounts.account import Account
from proxy.accounts.credentials.refresh import CredentialFailure
from proxy.accounts.spec import AccountSpec
from proxy.accounts.verdict import UNREACHABLE, Kind, Verdict
from proxy.accounts.view import ANY, AccountId, Standing
from proxy.config.settings import UpstreamSettings
from proxy.control.checkup import (
    PAGE_SECONDS,
    WATCH_SECONDS,
    Checkup,
    Checkups,
)
from proxy.control.commands import CHECKUP_SECONDS, Health
from proxy.control.handler import Handler
from proxy.errors import UpstreamCut
from tests.testkit.accounts import FakeCredential, account, report
from tests.testkit.home import remembered
from tests.testkit.runtime import WALL, Bench
from tests.testkit.upstream import JSON, Script, failing, rejecting

DAY = 86_400.0
BACKEND = "https://chatgpt.example/backend-api/codex"
MODELS = Script((b'{"models":[]}',), headers=JSON)
NO = rejecting(401, b'{"error":{"message":"sk-secret-1"}}')


def usage(used: float, resets_in: float = 3600.0) -> Script:
    """The usage page, as the ChatGPT backend has it."""
    window = {
        "used_percent": used,
        "limit_window_seconds": 18_000,
        "reset_after_seconds": resets_in,
        "reset_at": WALL + resets_in,
    }
    limits = {"allowed": used < 100, "limit_reached": used >= 100, "primary_window": window}
    return Script((json.dumps({"plan_type": "pro", "rate_limit": limits}).encode(),), headers=JSON)


def login(name: str = "work", url: str | None = BACKEND, **more: Any) -> Account:
    spec = AccountSpec(auth_json="unused", url=url)
    return Account(AccountId(name), spec, more.get("credential") or FakeCredential(name))


@asynccontextmanager
async def bench(
    *scripts: Script, accounts: tuple[Account, ...], upstream: UpstreamSettings | None = None
) -> AsyncIterator[Bench]:
    async with trio.open_nursery() as nursery:
        yield Bench(nursery, *scripts, accounts=accounts, upstream=upstream)
        nursery.cancel_scope.cancel()


def checkups(made: Bench) -> Checkups:
    return Handler(made.runtime, "").checkups


async def check(known: Account, *scripts: Script) -> tuple[Checkup, Bench]:
    async with bench(*scripts, accounts=(known,)) as made:
        return await checkups(made).check(known), made


def standing(known: Account, now: float) -> Standing:
    return known.view().standing(ANY, now)


# The credential.


async def test_a_good_key_ends_trouble_and_doubt_and_costs_no_turn(
    autojump_clock: MockClock,
) -> None:
    known = account("key")
    known.health.note(Verdict(kind=Kind.UNAUTHORIZED), ANY, WALL, WALL)
    known.health.note(UNREACHABLE, ANY, WALL, WALL)
    found, made = await check(known, MODELS)

    assert found == Checkup(credential=Health.GOOD, detail="models: 200")
    assert standing(known, WALL) is Standing.READY
    (sent,) = made.upstream.sent
    assert (sent.request.method, sent.request.path, sent.request.body) == ("GET", "/models", None)
    assert sent.header("authorization") == ["Bearer sk-secret-key"]
    assert sent.closed
    assert made.records == []


async def test_a_good_key_says_nothing_of_quota(autojump_clock: MockClock) -> None:
    known = account("key", 100)
    await check(known, MODELS)

    assert standing(known, WALL) is Standing.SPENT


async def test_a_refused_key_is_out_of_use(autojump_clock: MockClock) -> None:
    known = account("key")
    found, made = await check(known, NO)

    assert (found.credential, found.detail) == (Health.REFUSED, "models: refused")
    assert standing(known, WALL) is Standing.INVALID
    assert len(made.upstream.sent) == 1


async def test_a_refused_login_is_renewed_once(autojump_clock: MockClock) -> None:
    credential = FakeCredential("work", renewed="fresh")
    known = login(credential=credential)
    found, made = await check(known, NO, MODELS, usage(43))

    assert (found.credential, found.usage) == (Health.GOOD, True)
    assert credential.renewals == 1
    assert made.upstream.sent[1].header("authorization") == ["Bearer sk-secret-fresh"]


async def test_a_renewed_login_that_is_refused_again_is_not_asked_about_usage(
    autojump_clock: MockClock,
) -> None:
    credential = FakeCredential("work", renewed="fresh")
    known = login(credential=credential)
    found, made = await check(known, NO, NO)

    assert (found.credential, found.usage) == (Health.REFUSED, False)
    assert standing(known, WALL) is Standing.INVALID
    assert (credential.renewals, len(made.upstream.sent)) == (1, 2)


async def test_a_credential_that_cannot_be_had_now_is_unknown_and_is_held_back(
    autojump_clock: MockClock,
) -> None:
    failure = CredentialFailure(final=False, message="the auth server rests", retry_seconds=30.0)
    credential = FakeCredential("work")
    credential.will.append(failure)
    known = login(url="https://elsewhere.example/v1", credential=credential)
    found, made = await check(known)

    assert (found.credential, found.detail) == (Health.UNKNOWN, "models: the auth server rests")
    assert standing(known, WALL) is Standing.TROUBLED
    assert made.upstream.sent == []


async def test_a_credential_that_is_gone_is_refused(autojump_clock: MockClock) -> None:
    credential = FakeCredential("key")
    credential.will.append(CredentialFailure(final=True, message="signed out"))
    known = account("key", credential=credential)
    found, _ = await check(known)

    assert (found.credential, found.detail) == (Health.REFUSED, "models: signed out")
    assert standing(known, WALL) is Standing.INVALID


@pytest.mark.parametrize(
    ("script", "detail"),
    [
        (rejecting(500, b"sk-secret-1"), "models: 500"),
        (rejecting(404, b""), "models: 404"),
        (failing(), "models: no answer (upstream_unreachable)"),
        (Script((UpstreamCut("half"),)), "models: the answer was cut off"),
        (Script(before=(3600.0,)), "models: no answer within 15 s"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
async def test_an_answer_that_says_nothing_of_the_credential_changes_nothing(
    script: Script, detail: str, autojump_clock: MockClock
) -> None:
    known = account("key")
    known.health.note(Verdict(kind=Kind.UNAUTHORIZED), ANY, WALL, WALL)
    found, _ = await check(known, script)

    assert found == Checkup(credential=Health.UNKNOWN, detail=detail)
    assert standing(known, WALL) is Standing.INVALID


async def test_a_checkup_ends_whatever_hangs(autojump_clock: MockClock) -> None:
    class Hanging(FakeCredential):
        async def headers(self, wall: float) -> Any:
            await trio.sleep_forever()

    began = trio.current_time()
    found, _ = await check(account("key", credential=Hanging("key")))

    assert (found.credential, trio.current_time() - began) == (Health.UNKNOWN, CHECKUP_SECONDS)


# Usage.


async def test_what_the_provider_says_of_usage_ends_a_hint_of_days(
    autojump_clock: MockClock,
) -> None:
    known = login()
    hint = Verdict(kind=Kind.QUOTA, retry_at=WALL + 6 * DAY)
    report(known, 20)
    known.health.note(hint, ANY, WALL, WALL)
    before = standing(known, WALL)
    found, made = await check(known, MODELS, usage(43))

    assert (before, standing(known, WALL)) == (Standing.SPENT, Standing.READY)
    assert found.usage
    assert (known.view().score(WALL), known.health.plan) == (43, "pro")
    sent = made.upstream.sent[1].request
    assert (sent.base_url, sent.path) == ("https://chatgpt.example/backend-api", "/wham/usage")


async def test_a_login_that_the_provider_calls_spent_stays_spent_for_as_long_as_it_says(
    autojump_clock: MockClock,
) -> None:
    known = login()
    await check(known, MODELS, usage(100, resets_in=7200.0))

    assert known.view().spent_until(ANY, WALL) == WALL + 7200


async def test_a_page_without_a_window_changes_nothing(autojump_clock: MockClock) -> None:
    known = login()
    report(known, 100)
    found, _ = await check(known, MODELS, Script((b'{"rate_limit":null}',), headers=JSON))

    assert (found.credential, found.usage) == (Health.GOOD, False)
    assert standing(known, WALL) is Standing.SPENT


async def test_the_usage_page_alone_can_show_that_a_login_is_good(
    autojump_clock: MockClock,
) -> None:
    found, _ = await check(login(), rejecting(400, b""), usage(43))

    assert found == Checkup(credential=Health.GOOD, detail="models: 400; usage: 200", usage=True)


async def test_a_usage_page_that_is_forbidden_does_not_condemn_a_login_that_lists_models(
    autojump_clock: MockClock,
) -> None:
    known = login(credential=FakeCredential("work", renewed="fresh"))
    found, _ = await check(known, MODELS, NO, NO)

    assert found.credential is Health.GOOD
    assert standing(known, WALL) is Standing.READY


@pytest.mark.parametrize(
    ("url", "configured", "base"),
    [
        (None, None, "https://chatgpt.com/backend-api"),
        (None, BACKEND + "/", "https://chatgpt.example/backend-api"),
        (BACKEND, "https://api.example/v1", "https://chatgpt.example/backend-api"),
        ("https://api.example/v1", BACKEND, None),
        (None, "https://api.example/v1", None),
    ],
)
async def test_the_usage_page_stands_beside_the_backend_that_serves(
    url: str | None, configured: str | None, base: str | None, autojump_clock: MockClock
) -> None:
    known = login(url=url)
    settings = UpstreamSettings(url=configured)
    async with bench(MODELS, usage(1), accounts=(known,), upstream=settings) as made:
        await checkups(made).check(known)

    asked = [x.request.base_url for x in made.upstream.sent if x.request.path == "/wham/usage"]
    assert asked == ([] if base is None else [base])


# The watch.


@asynccontextmanager
async def watching(*scripts: Script, accounts: tuple[Account, ...]) -> AsyncIterator[Bench]:
    async with bench(*scripts, accounts=accounts) as made:
        made.nursery.start_soon(checkups(made).watch)
        yield made


def spent_for_days(name: str) -> Account:
    known = login(name)
    known.health.note(Verdict(kind=Kind.QUOTA, retry_at=WALL + 6 * DAY), ANY, WALL, WALL)
    return known


async def test_spent_logins_are_looked_up_now_and_then_and_nobody_else(
    autojump_clock: MockClock,
) -> None:
    accounts = (spent_for_days("spent"), login("ready"), account("key", 100))
    async with watching(usage(100), usage(43), accounts=accounts) as made:
        await trio.sleep(WATCH_SECONDS - 1)
        early = len(made.upstream.sent)
        await trio.sleep(3 * WATCH_SECONDS)

        assert early == 0
        assert [sent.request.path for sent in made.upstream.sent] == ["/wham/usage"] * 2
        assert [sent.header("authorization") for sent in made.upstream.sent] == [
            ["Bearer sk-secret-spent"]
        ] * 2
        assert standing(accounts[0], made.runtime.wall()) is Standing.READY


@pytest.mark.parametrize("make", [account, login], ids=["key", "login"])
async def test_a_refused_credential_is_tried_now_and_then_and_comes_back(
    make: Callable[[str], Account], autojump_clock: MockClock
) -> None:
    known = make("work")
    known.health.note(Verdict(kind=Kind.UNAUTHORIZED), ANY, WALL, WALL)
    async with watching(NO, MODELS, usage(43), accounts=(known, account("other"))) as made:
        await trio.sleep(WATCH_SECONDS + 1)
        refused = standing(known, made.runtime.wall())
        await trio.sleep(WATCH_SECONDS)
        good = standing(known, made.runtime.wall())
        asked = len(made.upstream.sent)
        await trio.sleep(WATCH_SECONDS)

        assert (refused, good) == (Standing.INVALID, Standing.READY)
        assert len(made.upstream.sent) == asked


async def test_a_page_that_hangs_or_breaks_keeps_nobody_from_the_next(
    autojump_clock: MockClock,
) -> None:
    accounts = tuple(spent_for_days(name) for name in ("first", "second", "third"))
    scripts = (Script(before=(3600.0,)), Script((RuntimeError("a bug"),)), usage(43))
    async with watching(*scripts, accounts=accounts) as made:
        await trio.sleep(WATCH_SECONDS + PAGE_SECONDS + 1)

        found = [standing(each, made.runtime.wall()) for each in accounts]
        assert found == [Standing.SPENT, Standing.SPENT, Standing.READY]
        assert made.upstream.running == 0


async def test_what_was_looked_up_is_written_down(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    known = spent_for_days("work")
    async with watching(usage(43), accounts=(known,)) as made:
        await trio.sleep(WATCH_SECONDS + 1)
        kept = remembered(tmp_path, made.runtime.accounts.store).accounts[known.id]

    assert [window.used_percent for window in kept.windows] == [43]
    assert kept.spent == {}
