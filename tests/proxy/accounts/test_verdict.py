"""Learning: what replies, events and reports say of an account."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.accounts.usage import usage_in_event, usage_in_headers, usage_in_report
from proxy.accounts.verdict import Kind, judge_event, judge_reply
from proxy.accounts.view import ANY, Family, Window, family_of
from tests.testkit.accounts import used_headers

NOW = 1_800_000_000.0
MODEL = "gpt-5.5-2026-04-01"
GPT = family_of(MODEL)


def body(**error: Any) -> bytes:
    return json.dumps({"error": error}).encode()


def reply(status: int, content: bytes = b"{}", *headers: tuple[bytes, bytes]) -> Kind:
    return judge_reply(status, headers, content, MODEL, GPT, NOW).kind


@pytest.mark.parametrize(
    ("status", "content", "headers", "kind"),
    [
        (400, b"{}", (), Kind.NEUTRAL),
        (401, b"{}", (), Kind.UNAUTHORIZED),
        (402, b"", (), Kind.QUOTA),
        (400, body(code="model_not_found"), (), Kind.NEUTRAL),
        (403, b"{}", (), Kind.DENIED),
        (403, body(code="model_not_found"), (), Kind.DENIED),
        (403, body(code="account_deactivated"), (), Kind.UNAUTHORIZED),
        (403, body(type="billing_not_active"), (), Kind.UNAUTHORIZED),
        (403, body(code="unsupported_country_region_territory"), (), Kind.UNAUTHORIZED),
        (404, b"{}", (), Kind.NEUTRAL),
        (404, body(code="account_deactivated"), (), Kind.NEUTRAL),
        (404, body(code="model_not_found"), (), Kind.DENIED),
        (408, b"{}", (), Kind.HICCUP),
        (429, b"{}", (), Kind.THROTTLED),
        (429, b"not JSON", (), Kind.THROTTLED),
        (429, b"[]", (), Kind.THROTTLED),
        (429, b'{"error":"words"}', (), Kind.THROTTLED),
        (429, b'{"error":{"code":["a list"],"type":{}}}', (), Kind.THROTTLED),
        (429, body(code="rate_limit_exceeded"), (), Kind.THROTTLED),
        (429, body(code="insufficient_quota"), (), Kind.QUOTA),
        (429, body(type="insufficient_quota", code=None), (), Kind.QUOTA),
        (429, body(type="usage_limit_reached"), (), Kind.QUOTA),
        (429, body(code="usage_not_included"), (), Kind.QUOTA),
        (429, b"{}", ((b"retry-after", b"60"),), Kind.THROTTLED),
        (429, b"{}", ((b"retry-after", b"61"),), Kind.QUOTA),
        (429, b"{}", ((b"retry-after-ms", b"61000"),), Kind.QUOTA),
        (429, b"{}", used_headers(99), Kind.THROTTLED),
        (429, b"{}", used_headers(100), Kind.QUOTA),
        (429, b"{}", used_headers(100, window="secondary"), Kind.QUOTA),
        (500, b"{}", (), Kind.HICCUP),
        (503, body(code="insufficient_quota"), (), Kind.HICCUP),
        (529, b"{}", (), Kind.HICCUP),
    ],
)
def test_what_a_reply_shows(
    status: int, content: bytes, headers: tuple[tuple[bytes, bytes], ...], kind: Kind
) -> None:
    assert reply(status, content, *headers) is kind


@pytest.mark.parametrize(
    ("content", "headers", "seconds"),
    [
        (body(type="usage_limit_reached", resets_at=NOW + 500), (), 500),
        (body(type="usage_limit_reached", resets_at=NOW - 5, resets_in_seconds=7), (), 7),
        (body(type="usage_limit_reached"), ((b"retry-after", b"90"),), 90),
        (body(type="usage_limit_reached"), used_headers(100), 7200),
        (body(type="usage_limit_reached"), (), 3600),
        (body(code="usage_not_included"), (), 86_400),
    ],
    ids=["resets_at", "resets_in", "retry-after", "window", "unsaid", "plan"],
)
def test_when_quota_comes_back(
    content: bytes, headers: tuple[tuple[bytes, bytes], ...], seconds: float
) -> None:
    verdict = judge_reply(429, headers, content, MODEL, GPT, NOW)

    assert verdict.retry_at == NOW + seconds


@pytest.mark.parametrize(
    ("error", "family"),
    [
        ({"message": "no quota for gpt-5.5-2026-04-01."}, GPT),
        ({"message": "no quota for `GPT-5.5`, sorry"}, GPT),
        ({"message": "no quota for gpt-5.5-mini"}, ANY),
        ({"message": "no quota"}, ANY),
        ({"message": None}, ANY),
        ({"param": "gpt-5.5"}, GPT),
        ({"model": "gpt-5.5"}, GPT),
    ],
)
def test_a_refusal_may_be_of_one_model(error: dict[str, Any], family: Family) -> None:
    content = body(code="insufficient_quota", **error)

    assert judge_reply(429, (), content, MODEL, GPT, NOW).family == family


def test_without_a_model_nothing_is_of_one() -> None:
    content = body(code="insufficient_quota", message="no quota for  ")

    assert judge_reply(429, (), content, None, family_of(None), NOW).family == ANY


def test_a_refusal_names_the_plan() -> None:
    verdict = judge_reply(429, (), body(type="usage_limit_reached", plan_type="plus"), "", ANY, NOW)

    assert verdict.plan == "plus"


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("usage_limit_reached", Kind.QUOTA),
        ("insufficient_quota", Kind.QUOTA),
        ("rate_limit_exceeded", Kind.THROTTLED),
        ("server_error", Kind.HICCUP),
        ("invalid_prompt", Kind.NEUTRAL),
    ],
)
@pytest.mark.parametrize("form", ["failed", "error", "flat error"])
def test_what_a_stream_that_fails_shows(form: str, code: str, kind: Kind) -> None:
    events: dict[str, dict[str, Any]] = {
        "failed": {"type": "response.failed", "response": {"error": {"code": code}}},
        "error": {"type": "error", "error": {"code": code}},
        "flat error": {"type": "error", "code": code},
    }

    assert judge_event(json.dumps(events[form]).encode(), MODEL, GPT, NOW).kind is kind


def window(used: float, seconds: float, minutes: int | None = None) -> Window:
    return Window(name="primary", used_percent=used, resets_at=NOW + seconds, minutes=minutes)


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({"used-percent": "12.5", "window-minutes": "300", "reset-at": "1800000060"}, (60, 300)),
        ({"used-percent": "12.5", "window-minutes": "300"}, (18_000, 300)),
        (
            {"used-percent": "12.5", "window-minutes": "300", "reset-at": "1900000000"},
            (18_000, 300),
        ),
        ({"used-percent": "12.5", "reset-after-seconds": "7"}, (7, None)),
        ({"used-percent": "12.5"}, (3600, None)),
    ],
)
def test_a_window_in_headers(headers: dict[str, str], expected: tuple[float, int | None]) -> None:
    pairs = [(f"x-codex-primary-{key}".encode(), text.encode()) for key, text in headers.items()]

    assert usage_in_headers(pairs, NOW).windows == (window(12.5, *expected),)


@pytest.mark.parametrize("text", ["", "much", "nan", "-1", "inf"])
def test_a_window_without_a_percentage_is_ignored(text: str) -> None:
    assert usage_in_headers([(b"x-codex-primary-used-percent", text.encode())], NOW).windows == ()


def test_usage_in_an_event_and_in_a_report_is_the_same() -> None:
    event = {
        "type": "codex.rate_limits",
        "plan_type": "pro",
        "rate_limits": {
            "primary": {"used_percent": 3, "window_minutes": 300, "reset_at": NOW + 60},
            "secondary": None,
        },
        "credits": {"has_credits": False, "unlimited": True},
    }
    report = {
        "plan_type": "pro",
        "rate_limit": {
            "primary_window": {
                "used_percent": 3,
                "limit_window_seconds": 18_000,
                "reset_after_seconds": 60,
                "reset_at": NOW + 60,
            },
            "secondary_window": None,
        },
        "credits": {"has_credits": False, "unlimited": True},
    }

    usage = usage_in_event(json.dumps(event).encode(), NOW)

    assert usage == usage_in_report(json.dumps(report).encode(), NOW)
    assert usage.windows == (window(3, 60, 300),)
    assert (usage.plan, usage.credits) == ("pro", True)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(
        st.sampled_from(
            ["error", "code", "type", "message", "response", "rate_limits", "primary", "credits",
             "used_percent", "reset_at", "rate_limit", "primary_window", "resets_at"]
        ),
        inner,
        max_size=4,
    ),
)  # fmt: skip


@given(JSON.map(lambda value: json.dumps(value).encode()) | st.binary(max_size=40))
def test_nothing_that_an_upstream_says_is_an_accident(data: bytes) -> None:
    verdict = judge_reply(429, (), data, MODEL, GPT, NOW)

    assert verdict.kind in (Kind.QUOTA, Kind.THROTTLED)
    assert verdict.retry_at is None or verdict.retry_at > NOW - 1
    judge_event(data, MODEL, GPT, NOW)
    for read in (usage_in_event, usage_in_report):
        assert all(each.used_percent >= 0 for each in read(data, NOW).windows)
