"""Header fields: finding one, an upstream's advice to retry, and what counts as loopback."""

import math
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from email.utils import format_datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.headers import HeaderList, find, is_loopback, retry_after

WALL = 1_800_000_000.0
LATER = format_datetime(datetime.fromtimestamp(WALL + 30, UTC), usegmt=True)
EARLIER = format_datetime(datetime.fromtimestamp(WALL - 30, UTC), usegmt=True)
WITHOUT_A_ZONE = datetime.fromtimestamp(WALL + 30, UTC).ctime()
"""The asctime form of RFC 9110 section 5.6.7."""


def test_a_header_is_found_in_any_case_and_trimmed_and_the_first_counts() -> None:
    headers = [(b"Other", b"0"), (b"X-Name", b" 1\t"), (b"x-name", b"2")]

    assert find(headers, b"x-name") == "1"
    assert find(headers, b"x-nam") is None


@pytest.mark.parametrize(
    ("host", "loopback"),
    [
        *((host, True) for host in ("localhost", "LocalHost", "127.0.0.1", "127.8.9.10", "::1")),
        *((host, False) for host in ("", "0.0.0.0", "::", "10.0.0.1", "localhost.evil.example")),
    ],
)
def test_loopback_is_what_can_only_mean_this_machine(host: str, loopback: bool) -> None:
    assert is_loopback(host) is loopback


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        *(("3", 3), (" 75 ", 75), ("1.5", 2), ("0.001", 1), ("0", 1), ("0.0", 1), ("7200", 7200)),
        *((LATER, 30), (EARLIER, 1), ("Fri, 31 Dec 1999 23:59:59 GMT", 1)),
        *(("Mon, 1 Jan 99999999999 00:00:00 GMT", None), ("1 Jan 2030 00:00:00 +9999", None)),
        *(("Mon, 99 Jan 2030 00:00:00 GMT", None), ("-1", None), ("nan", None), ("inf", None)),
        *(("1e999", None), ("soon", None), ("", None), ("\xff", None)),
    ],
)
def test_retry_after_becomes_whole_seconds_or_nothing(value: str, seconds: int | None) -> None:
    assert retry_after([(b"Retry-After", value.encode("latin-1"))], 503, WALL) == seconds


@contextmanager
def time_zone(name: str) -> Iterator[None]:
    before = os.environ.get("TZ")
    os.environ["TZ"] = name
    time.tzset()
    try:
        yield
    finally:
        del os.environ["TZ"]
        os.environ.update({} if before is None else {"TZ": before})
        time.tzset()


@pytest.mark.parametrize("zone", ["UTC", "JST-9", "PST+8"])
def test_a_date_means_the_same_moment_wherever_turnlane_runs(zone: str) -> None:
    with time_zone(zone):
        advised = [
            retry_after([(b"retry-after", date.encode())], 503, WALL)
            for date in (LATER, WITHOUT_A_ZONE)
        ]

    assert advised == [30, 30]


@pytest.mark.parametrize(
    ("headers", "status", "seconds"),
    [
        ({}, 429, None),
        ({"retry-after-ms": "1500"}, 429, 2),
        ({"retry-after-ms": "1500"}, 503, 2),
        ({"retry-after-ms": "0"}, 429, 1),
        ({"retry-after-ms": "-1"}, 429, None),
        ({"retry-after-ms": "soon"}, 429, None),
        ({"retry-after": "5", "retry-after-ms": "1500"}, 429, 5),
        ({"retry-after": "soon", "retry-after-ms": "1500"}, 429, 2),
        ({"x-ratelimit-reset-requests": "20ms"}, 429, 1),
        ({"x-ratelimit-reset-requests": "6m0s"}, 429, 360),
        ({"x-ratelimit-reset-requests": "1h2m3.5s"}, 429, 3724),
        ({"x-ratelimit-reset-requests": "1d"}, 429, 86400),
        ({"x-ratelimit-reset-requests": "17.2"}, 429, 18),
        ({"x-ratelimit-reset-requests": "6m0s", "x-ratelimit-reset-tokens": "2s"}, 429, 2),
        ({"X-RateLimit-Reset-Tokens": "4s"}, 429, 4),
        ({"x-ratelimit-reset-requests": "6m0s"}, 503, None),
        ({"retry-after-ms": "900", "x-ratelimit-reset-requests": "6m0s"}, 429, 1),
        ({"x-ratelimit-reset-requests": "soon", "x-ratelimit-reset-tokens": "2s"}, 429, 2),
        ({"x-ratelimit-reset-requests": "5x"}, 429, None),
        ({"x-ratelimit-reset-requests": "-5s"}, 429, None),
        ({"x-ratelimit-reset-requests": ""}, 429, None),
        ({"x-ratelimit-remaining-requests": "7"}, 429, None),
    ],
)
def test_other_advice_counts_where_there_is_no_retry_after(
    headers: Mapping[str, str], status: int, seconds: int | None
) -> None:
    pairs = [(name.encode(), value.encode()) for name, value in headers.items()]

    assert retry_after(pairs, status, WALL) == seconds


@given(st.floats(0, 1e9))
def test_advice_is_rounded_up_and_at_least_one(seconds: float) -> None:
    advised = retry_after([(b"retry-after", repr(seconds).encode())], 503, WALL)

    assert advised == max(1, math.ceil(seconds))


WORDS = [
    "Mon,",
    "Sun",
    "1",
    "31",
    "Jan",
    "Nov",
    "0",
    "1994",
    "2030",
    "99999999999",
    "-1",
    "1e9",
    "00:00:00",
    "08:49:37",
    "25:61:61",
    ":",
    "GMT",
    "+9999",
    "-0000",
    "EST",
    ",",
    "s",
    "ms",
    "5m",
]


@given(
    st.lists(
        st.tuples(
            st.sampled_from([b"retry-after", b"retry-after-ms", b"x-ratelimit-reset-tokens"]),
            st.binary(max_size=12)
            | st.lists(st.sampled_from(WORDS), max_size=7).map(" ".join).map(str.encode),
        ),
        max_size=3,
    ),
    st.sampled_from([429, 503]),
)
def test_any_advice_of_an_upstream_can_be_read(headers: HeaderList, status: int) -> None:
    advised = retry_after(headers, status, WALL)

    assert advised is None or (isinstance(advised, int) and advised >= 1)
