"""Transcript: increments add up to what a full resend would have contained."""

from dataclasses import dataclass, replace
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.responses.frames import post_body
from proxy.responses.transcript import OutputItem, Transcript, continued, output_item_of

Item = dict[str, Any]

PAIRS = {
    "function_call": "function_call_output",
    "custom_tool_call": "custom_tool_call_output",
    "tool_search_call": "tool_search_output",
    "local_shell_call": "local_shell_call_output",
}


def joined(*items: object) -> bytes:
    """The inside of an array."""
    return b", ".join(msgspec.json.encode(item) for item in items)


def call(call_id: object, kind: str = "function_call", **more: object) -> Item:
    return {"type": kind, "call_id": call_id, **more}


def output(call_id: object, kind: str = "function_call_output") -> Item:
    return {"type": kind, "call_id": call_id, "output": "done"}


def message(text: str) -> Item:
    return {"type": "message", "content": text}


def transcript(*output: Item, items: tuple[bytes, ...] = ()) -> Transcript:
    return Transcript(
        response_id="resp_1",
        items=items,
        output=tuple(output_item_of(msgspec.json.encode(item)) for item in output),
    )


def whole(parts: tuple[bytes, ...]) -> list[Item]:
    """The input of the POST that these parts become."""
    items: list[Item] = msgspec.json.decode(post_body({}, parts))["input"]
    return items


def test_the_input_of_a_first_turn_is_that_of_its_frame() -> None:
    assert continued(None, b'{"a":  1}, 2') == (b'{"a":  1}, 2',)
    assert continued(None, b"") == ()


def test_an_increment_follows_the_input_and_the_output_before_it() -> None:
    before = Transcript(
        response_id="resp_1",
        items=(b'{"in":  1}', b'{"in" : 2}'),
        output=(
            output_item_of(b'{ "type":"reasoning" }'),
            output_item_of(b'{"type":"message", "x":1.0}'),
        ),
    )

    assert continued(before, b'{"new":  3}') == (
        b'{"in":  1}',
        b'{"in" : 2}',
        b'{ "type":"reasoning" }',
        b'{"type":"message", "x":1.0}',
        b'{"new":  3}',
    )


def test_an_increment_without_items_adds_nothing() -> None:
    before = transcript(message("said"), call("unanswered"), items=(b"1",))

    assert whole(continued(before, b"")) == [1, message("said")]


@pytest.mark.parametrize(("kind", "answer"), PAIRS.items())
def test_a_call_is_replayed_with_its_output_and_never_alone(kind: str, answer: str) -> None:
    before = transcript(message("a"), call("1", kind), call("2", kind), message("b"))
    new = joined(message("c"), output("2", answer))

    assert whole(continued(before, new)) == [
        message("a"),
        call("2", kind),
        message("b"),
        message("c"),
        output("2", answer),
    ]


def test_parallel_calls_keep_their_order_whatever_the_order_of_their_outputs() -> None:
    before = transcript(call("1"), call("2", "custom_tool_call"), call("3"))
    new = joined(output("3"), output("1"), output("2", "custom_tool_call_output"))

    calls = [call("1"), call("2", "custom_tool_call"), call("3")]
    assert whole(continued(before, new))[:3] == calls


def test_a_tool_search_of_the_server_is_replayed_without_an_output() -> None:
    search = call("1", "tool_search_call", execution="server")

    assert whole(continued(transcript(search), joined(message("next")))) == [
        search,
        message("next"),
    ]


def test_a_tool_search_of_the_client_is_replayed_only_with_its_output() -> None:
    search = call("1", "tool_search_call", execution="client")

    assert whole(continued(transcript(search), joined(message("next")))) == [message("next")]


@pytest.mark.parametrize(
    "item",
    [
        *(b'{"type":"web_search_call","call_id":"1"}', b'{"type":"function_call"}'),
        *(b'{"type":"function_call_output","call_id":"1"}', b'{"call_id":"1"}'),
        *(b'{"type":"function_call","call_id":null}', b'{"type":"function_call","call_id":5}'),
        *(b'{"type":7,"call_id":"1"}', b"{}", b'"text"', b"[]"),
    ],
)
def test_what_is_not_a_call_of_the_client_is_kept(item: bytes) -> None:
    assert output_item_of(item) == OutputItem(item, None)
    assert continued(replace(transcript(), output=(output_item_of(item),)), b"1") == (item, b"1")


@pytest.mark.parametrize(
    "new",
    [
        joined({"type": "message", "call_id": "1"}),
        joined({"type": "function_call", "call_id": "1"}),
        joined(output("2")),
        joined(output(None)),
        joined(output(1)),
        joined({"type": ["function_call_output"], "call_id": "1"}),
        b'{"call_id":"1"}, 5, null, "1", [{"type":"function_call_output","call_id":"1"}]',
    ],
)
def test_what_is_not_an_output_of_the_call_does_not_answer_it(new: bytes) -> None:
    assert continued(transcript(call("1")), new) == (new,)


def test_an_id_matches_however_its_json_is_written() -> None:
    before = transcript(call("é"))
    new = b'{"type":"function_call_output","call_id":"\\u00e9"}'

    assert whole(continued(before, new))[0] == call("é")


def test_the_size_is_that_of_all_bytes_held() -> None:
    before = Transcript(
        response_id="resp_1",
        items=(b"12", b"345"),
        output=(OutputItem(b"6789", None), OutputItem(b"0", "1")),
    )

    assert before.size == 10
    assert transcript().size == 0


# Whole conversations.


@dataclass(frozen=True)
class Round:
    """What a client says, what it is answered, and which calls of the answer it then answers."""

    new: list[Item]
    output: list[Item]
    answered: frozenset[int]
    spaces: str


OTHERS = st.builds(
    lambda kind, text: {"type": kind, "content": text},
    st.sampled_from(["message", "reasoning", "web_search_call", "new kind"]),
    st.text(max_size=5),
)
CALLS = st.sampled_from(sorted(PAIRS)).map(lambda kind: {"type": kind})
ROUNDS = st.lists(
    st.builds(
        Round,
        new=st.lists(OTHERS, max_size=2),
        output=st.lists(OTHERS | CALLS, max_size=4),
        answered=st.frozensets(st.integers(0, 3)),
        spaces=st.text(" \n\t\r", max_size=2),
    ),
    max_size=5,
)


def numbered(number: int, round_: Round) -> tuple[list[Item], list[Item]]:
    """A round's output with call ids, and the outputs of those calls that are answered."""
    made = [
        item | {"call_id": f"{number}.{index}"} if item["type"] in PAIRS else item
        for index, item in enumerate(round_.output)
    ]
    answers = [
        output(item["call_id"], PAIRS[item["type"]])
        for index, item in enumerate(made)
        if item["type"] in PAIRS and index in round_.answered
    ]
    return made, answers


@given(ROUNDS)
def test_increments_add_up_to_what_a_full_resend_would_contain(rounds: list[Round]) -> None:
    before: Transcript | None = None
    resent: list[Item] = []
    answers: list[Item] = []
    for number, round_ in enumerate(rounds):
        said_now = [*answers, *round_.new]
        comma = f"{round_.spaces},{round_.spaces}".encode()
        parts = continued(before, comma.join(msgspec.json.encode(item) for item in said_now))
        resent += said_now

        assert whole(parts) == resent
        made, answers = numbered(number, round_)
        resent += [
            item
            for item in made
            if "call_id" not in item or item["call_id"] in {answer["call_id"] for answer in answers}
        ]
        before = transcript(*made, items=parts)
