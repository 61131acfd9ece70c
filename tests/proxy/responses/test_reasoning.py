"""Encrypted reasoning is left out of a request, and everything else stays as it was."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.responses.reasoning import without_reasoning

SAID = {"type": "message", "role": "user", "content": 'says "encrypted_content"'}
COMPACTION = {"type": "compaction", "encrypted_content": "all that was"}
PLAIN: dict[str, Any] = {"type": "reasoning", "summary": [], "encrypted_content": None}


def reasoning(number: int) -> dict[str, Any]:
    return {"type": "reasoning", "summary": [], "encrypted_content": f"of {number}"}


def body(items: list[dict[str, Any]]) -> bytes:
    return json.dumps({"model": "gpt-5.5", "input": items, "future": {"a": [1]}}).encode()


def test_encrypted_reasoning_is_left_out_and_the_rest_stays() -> None:
    items = [SAID, reasoning(1), COMPACTION, PLAIN, reasoning(2), SAID]

    sane, last = without_reasoning(body(items))

    assert last is not None
    assert json.loads(sane) == json.loads(body([SAID, COMPACTION, PLAIN, SAID]))


@given(st.lists(st.booleans()), st.lists(st.booleans()))
def test_reasoning_up_to_the_mark_is_left_out_and_later_reasoning_stays(
    early: list[bool], late: list[bool]
) -> None:
    before = [reasoning(number) if kind else SAID for number, kind in enumerate(early)]
    after = [reasoning(-1 - number) if kind else SAID for number, kind in enumerate(late)]
    sane, last = without_reasoning(body(before))
    grown = body(before + after)

    said = [item for item in before if item == SAID]
    assert (last is None) is (said == before)
    assert json.loads(sane)["input"] == said
    if last is not None:
        assert json.loads(without_reasoning(grown, last)[0])["input"] == said + after


def test_an_item_is_recognised_however_its_json_is_written() -> None:
    item = reasoning(1)
    _, last = without_reasoning(body([item]))
    again = {"encrypted_content": item["encrypted_content"], "id": "rs_1", "type": "reasoning"}

    assert json.loads(without_reasoning(body([again, SAID]), last)[0])["input"] == [SAID]


def test_without_the_marked_item_everything_stays() -> None:
    _, last = without_reasoning(body([reasoning(1), reasoning(2)]))
    rolled_back = body([reasoning(1), SAID, reasoning(3)])

    assert without_reasoning(rolled_back, last) == (rolled_back, None)


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
def test_a_body_without_encrypted_reasoning_keeps_its_bytes(strange: bytes) -> None:
    assert without_reasoning(strange) == (strange, None)
