"""Preview: where the next turn of a thread would go, and nothing changes."""

from pathlib import Path
from typing import Any

import pytest
from trio.testing import MockClock

from proxy.accounts.account import Account
from proxy.accounts.bindings import ThreadName
from proxy.accounts.claim import AccountRequest, Claim
from proxy.accounts.opening import ManagedAccounts
from proxy.accounts.pool import AccountPool
from proxy.accounts.route import RoutingSettings
from proxy.accounts.view import AccountId
from proxy.control.preview import preview
from proxy.ingress.identity import Identity
from proxy.keys import KeyRing
from tests.testkit.accounts import account
from tests.testkit.runtime import NO_KEYS, NO_REGISTRY, WALL, opener


def managed(*accounts: Account) -> ManagedAccounts:
    pool = AccountPool(accounts, RoutingSettings(), lambda: WALL)
    return ManagedAccounts(pool=pool, registry=NO_REGISTRY, opener=opener(), configured=())


def serve(those: ManagedAccounts, model: str, *, who: Identity) -> AccountId:
    thread = who.ask(0).thread
    assert thread is not None
    with those.pool.claim(AccountRequest(thread=ThreadName(thread), model=model)) as claim:
        assert isinstance(claim, Claim)
        return claim.account.id


def ask(those: ManagedAccounts, keys: KeyRing = NO_KEYS, **asked: Any) -> dict[str, Any]:
    return preview(those, keys, {"command": "accounts.preview", "thread": "t", **asked})


def test_a_new_thread_would_begin_where_there_is_headroom(autojump_clock: MockClock) -> None:
    those = managed(account("hot", 70), account("cool", 20))
    (route,) = ask(those, model="gpt-5")["routes"]

    assert route == {
        "model": "gpt-5",
        "account": "cool",
        "move": "new",
        "reason": "strategy",
        "why": "by `routing.strategy`",
        "probe": False,
        "score": 20,
    }


def test_a_preview_changes_nothing(autojump_clock: MockClock) -> None:
    those = managed(account("one"), account("other"))
    before = those.pool.statistics()
    first = ask(those, model="gpt-5")

    assert [ask(those, model="gpt-5") for _ in range(3)] == [first] * 3
    assert those.pool.statistics() == before


def test_without_a_model_each_family_that_the_thread_is_bound_for_is_shown(
    autojump_clock: MockClock,
) -> None:
    those = managed(account("one", 10), account("other", 10))
    homes = {model: serve(those, model, who=Identity(thread="t")) for model in ("gpt-5", "o4")}
    routes = ask(those)["routes"]

    assert {route["model"]: route["account"] for route in routes} == homes
    assert {(route["move"], route["reason"]) for route in routes} == {("reused", "bound")}
    assert [route["model"] for route in ask(those, thread="other")["routes"]] == [None]


def test_a_thread_is_looked_for_among_those_of_its_key(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    keys = KeyRing(tmp_path)
    desk, lab = keys.add("desk").key.id, keys.add("lab").key.id
    those = managed(account("one"), account("other"))
    principal = keys.holder(keys.add("third").secret)
    assert principal is not None
    serve(those, "gpt-5", who=Identity(principal=principal, thread="t"))

    assert ask(those, keys, key=principal)["routes"][0]["move"] == "reused"
    assert ask(those, keys, key=desk)["routes"][0]["move"] == "new"
    assert ask(those, keys, key=desk)["thread"] != ask(those, keys, key=lab)["thread"]
    assert "--key" in ask(those, keys)["error"]
    assert "no key" in ask(those, keys, key="key-0")["error"]


def test_when_nobody_can_serve_it_says_until_when(autojump_clock: MockClock) -> None:
    (route,) = ask(managed(account("one", 100)), model="gpt-5")["routes"]

    assert (route["account"], route["spent"]) == (None, True)
    assert route["retry_at"] == WALL + 5 * 3600
    assert route["why"] == "its account is spent"


@pytest.mark.parametrize("thread", ["", " ", "a\nb", "x" * 513])
def test_what_no_client_could_send_is_no_thread(thread: str, autojump_clock: MockClock) -> None:
    assert "no id" in ask(managed(account("one")), thread=thread)["error"]


def test_without_accounts_there_is_nothing_to_choose(autojump_clock: MockClock) -> None:
    assert "no accounts" in ask(managed())["error"]
