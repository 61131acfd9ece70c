"""auth.json: what is read from it, and that a rewrite changes the tokens and nothing else."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.accounts.credentials.auth_json import (
    Login,
    NoLogin,
    Renewal,
    jwt_expiry,
    plan_of,
    read_login,
    read_renewal,
    refusal_code,
    rewritten,
)
from tests.testkit.accounts import access, document, identity, jwt
from tests.testkit.runtime import WALL

ANY_JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False)
    # no infinity: JSON has none
    .filter(lambda x: abs(x) < 1e300)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
OBJECTS = st.dictionaries(st.text(max_size=8), ANY_JSON, max_size=5)
TOKEN_NAMES = ("id_token", "access_token", "refresh_token")


def encoded(content: object) -> bytes:
    return json.dumps(content).encode()


def login_in(content: object) -> Login:
    login = read_login(encoded(content))
    assert isinstance(login, Login)
    return login


def test_a_login_has_its_tokens_its_plan_and_its_expiry() -> None:
    login = login_in(document(access(1)))

    assert (login.access_token, login.refresh_token) == (access(1), "r0")
    assert (login.account_id, login.plan, login.expires) == ("account-1", "pro", WALL + 3600)


def test_identity_is_kept_by_other_tokens_and_changed_by_another_account_or_user() -> None:
    login = login_in(document(access(1)))
    renewed = login_in(document(access(2), "r9"))
    account = login_in(document(access(1), account_id="account-2"))
    user = login_in(document(access(1), id_token=identity(user="user-2")))

    assert renewed.identity == login.identity
    assert len({login.identity, account.identity, user.identity}) == 3
    assert "account-1" not in login.identity


def test_an_account_that_is_only_in_the_id_token_is_found_there() -> None:
    assert login_in(document(access(1), account_id=None)).account_id == "account-1"


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", NoLogin.BROKEN),
        (b'{"tokens": {"access_tok', NoLogin.BROKEN),
        (b"[]", NoLogin.BROKEN),
        (b'{"tokens": 5}', NoLogin.BROKEN),
        (b"{}", NoLogin.NO_TOKENS),
        (b'{"OPENAI_API_KEY": "sk-x", "tokens": null}', NoLogin.API_KEY),
        (b'{"OPENAI_API_KEY": null, "tokens": null}', NoLogin.NO_TOKENS),
        (encoded(document("")), NoLogin.NO_TOKENS),
        (encoded(document(access(1), account_id=None, id_token="opaque")), NoLogin.BROKEN),
        (encoded(document("a\r\nx-injected: 1")), NoLogin.BROKEN),
        (encoded(document(access(1), account_id="a b")), NoLogin.BROKEN),
    ],
)
def test_a_file_without_a_login_says_why(content: bytes, problem: NoLogin) -> None:
    assert read_login(content) is problem


@given(others=OBJECTS, other_tokens=OBJECTS, front=st.booleans())
def test_a_rewrite_keeps_all_else_and_the_order(
    others: dict[str, Any], other_tokens: dict[str, Any], front: bool
) -> None:
    held = document(access(1))
    held["tokens"] = {**other_tokens, **held["tokens"]} if front else held["tokens"] | other_tokens
    content = {**others, **held} if front else {**held, **others, "tokens": held["tokens"]}
    content["last_refresh"] = "2026-01-01T00:00:00Z"
    renewal = Renewal(access_token=access(2), refresh_token="r1", id_token=identity(plan="plus"))

    after = json.loads(rewritten(encoded(content), renewal, WALL))

    assert list(after) == list(content)
    assert list(after["tokens"]) == list(content["tokens"])
    assert {k: v for k, v in after.items() if k not in {"tokens", "last_refresh"}} == {
        k: v for k, v in content.items() if k not in {"tokens", "last_refresh"}
    }
    assert {k: v for k, v in after["tokens"].items() if k not in TOKEN_NAMES} == {
        k: v for k, v in content["tokens"].items() if k not in TOKEN_NAMES
    }
    assert after["tokens"]["access_token"] == access(2)
    assert after["tokens"]["refresh_token"] == "r1"
    assert after["tokens"]["id_token"] == identity(plan="plus")
    assert after["last_refresh"] == "2027-01-15T08:00:00.000000Z"


def test_a_number_keeps_its_digits() -> None:
    content = encoded(document(access(1)))[:-1] + b', "n": 1.50e2, "m": 12345678901234567890123}'

    assert b'"n": 1.50e2' in rewritten(content, Renewal(access_token="x"), WALL)
    assert b'"m": 12345678901234567890123' in rewritten(content, Renewal(access_token="x"), WALL)


def test_tokens_that_did_not_come_stay() -> None:
    after = json.loads(
        rewritten(encoded(document(access(1))), Renewal(access_token=access(2)), WALL)
    )

    assert after["tokens"] == {**document(access(2))["tokens"]}


def test_a_file_without_the_members_gets_them_at_its_end() -> None:
    after = json.loads(rewritten(b'{"a": 1}', Renewal(access_token="x"), WALL))

    assert list(after) == ["a", "tokens", "last_refresh"]


def test_of_two_renewals_the_later_counts_where_it_has_something() -> None:
    older = Renewal(access_token="a1", refresh_token="r1", id_token="i1")

    assert Renewal(access_token="a2").over(older) == Renewal(
        access_token="a2", refresh_token="r1", id_token="i1"
    )


@pytest.mark.parametrize("answer", [b"", b"[]", b"{}", b'{"access_token": 5}', b'{"id_token":""}'])
def test_an_answer_without_tokens_renews_nothing(answer: bytes) -> None:
    assert read_renewal(answer) is None


def test_a_token_that_no_header_can_hold_did_not_come() -> None:
    assert read_renewal(b'{"access_token": "a b", "refresh_token": "r"}') == Renewal(
        refresh_token="r"
    )


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        (b'{"error": {"code": "refresh_token_expired"}}', "refresh_token_expired"),
        (b'{"error": {"code": "Refresh_Token_Reused"}}', "refresh_token_reused"),
        (b'{"error": "invalid_grant", "error_description": "x"}', "invalid_grant"),
        (b'{"code": "refresh_token_invalidated"}', "refresh_token_invalidated"),
        (b'{"error": {"code": "something"}}', None),
        (b'{"error": {}}', None),
        (b'{"error": 5}', None),
        (b"{}", None),
        (b"<html>", None),
    ],
)
def test_only_a_known_code_is_a_code(answer: bytes, code: str | None) -> None:
    assert refusal_code(answer) == code


@pytest.mark.parametrize(
    "token",
    [
        "",
        "opaque",
        "a.b",
        "a.b.c",
        "a.!!!.c",
        "a.W10.c",
        jwt(),
        jwt(exp="soon"),
        jwt(exp=True),
        jwt(exp=1e300),
    ],
)
def test_a_token_that_does_not_say_has_no_expiry(token: str) -> None:
    assert jwt_expiry(token) is None


def test_an_expiry_is_the_claim() -> None:
    assert jwt_expiry(jwt(exp=1800000000)) == 1800000000.0


@given(st.text())
def test_no_text_is_too_odd_for_a_token(text: str) -> None:
    assert jwt_expiry(text) is None
    assert jwt_expiry(f"a.{text}.c") is None
    assert plan_of(f"a.{text}.c") is None


@pytest.mark.parametrize("plan", ["", "a\nb", "x" * 65, 5, None])
def test_a_plan_that_cannot_be_shown_is_none(plan: object) -> None:
    assert plan_of(jwt(**{"https://api.openai.com/auth": {"chatgpt_plan_type": plan}})) is None


def test_no_secret_and_no_address_is_shown() -> None:
    login = login_in(document("access-secret", "refresh-secret", account_id="account-secret"))
    renewal = Renewal(access_token="a-secret", refresh_token="r-secret", id_token="i-secret")

    assert "secret" not in f"{login!r} {login} {renewal!r}"
    assert "somebody" not in repr(login)
