"""Sanitise: only encrypted reasoning is left out, and everything else stays as it was."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.sanitise import without_reasoning

SAID = {"type": "message", "role": "user", "content": 'says "encrypted_content"'}
COMPACTION = {"type": "compaction", "encrypted_content": "all that was"}
PLAIN: dict[str, Any] = {"type": "reasoning", "summary": [], "encrypted_content": None}


def reasoning(number: int) -> dict[str, Any]:
    return {"type": "reasoning", "summary": [], "encrypted_content": f"of {number}"}


def body(items: list[dict[str, Any]]) -> bytes:
    return json.dumps({"model": "gpt-5.5", "input": items, "future": {"a": [1]}}).encode()


def test_reasoning_goes_and_the_rest_stays() -> None:
    items = [SAID, reasoning(1), COMPACTION, PLAIN, reasoning(2), SAID]

    sane, dropped = without_reasoning(body(items))

    assert dropped == 2
    assert json.loads(sane) == json.loads(body([SAID, COMPACTION, PLAIN, SAID]))


@given(st.lists(st.booleans()), st.integers(0, 6))
def test_the_first_ones_go_and_the_later_ones_stay(kinds: list[bool], most: int) -> None:
    items = [reasoning(number) if kind else SAID for number, kind in enumerate(kinds)]

    sane, dropped = without_reasoning(body(items), most)

    assert dropped == min(most, sum(kinds))
    kept = [item for item in json.loads(sane)["input"] if item != SAID]
    assert kept == [item for item in items if item != SAID][dropped:]


@pytest.mark.parametrize(
    "strange",
    [
        b"",
        b"[]",
        b'not JSON with "encrypted_content"',
        b'{"encrypted_content":1}',
        b'{"input":"encrypted_content"}',
        b'{"input":{"encrypted_content":"x"}}',
        b'{"input":["encrypted_content",["encrypted_content"]]}',
        b'{"input":[{"type":"reasoning","encrypted_content":7}]}',
        body([SAID, PLAIN, COMPACTION]),
    ],
)
def test_what_has_none_is_the_same_bytes(strange: bytes) -> None:
    assert without_reasoning(strange) == (strange, 0)
