"""Frames: what a client asks for, and the POST that it becomes."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.refusal import Reason, Refused
from proxy.responses.frames import Create, Ignored, Interrupt, post_body, read_frame

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=6),
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2)
    ),
    max_leaves=5,
)


def frame(**keys: Any) -> bytes:
    return msgspec.json.encode({"type": "response.create"} | keys)


def created(data: bytes) -> Create:
    create = read_frame(data)
    assert isinstance(create, Create)
    return create


def test_a_create_is_read_once_at_its_top_level() -> None:
    data = (
        b'{ "type":"response.create", "model":"gpt-5.5", "input":[ {"a":  1.0}, 2 ],\n'
        b'"previous_response_id":"resp_1","store":false,'
        b'"client_metadata":{"thread_id":"t","n":5,"x-codex-window-id":"t:0","gone":null}}'
    )
    create = created(data)

    assert create.model == "gpt-5.5"
    assert create.input == b'{"a":  1.0}, 2'
    assert create.previous_response_id == "resp_1"
    assert create.metadata == {"thread_id": "t", "x-codex-window-id": "t:0"}
    assert create.size == len(data)
    assert not create.prewarm


def test_a_bare_create_has_no_input() -> None:
    create = created(frame(previous_response_id=None))

    assert (create.model, create.input, create.previous_response_id) == (None, b"", None)
    assert create.metadata == {}
    assert not create.prewarm


@pytest.mark.parametrize(
    ("value", "inside"),
    [
        (b"[]", b""),
        (b"[ ]", b""),
        (b"[1]", b"1"),
        (b"[ 1 , 2 ]", b"1 , 2"),
        (b'"hi"', b'{"type":"message","role":"user","content":"hi"}'),
        (b'"\\u0068\\"i"', b'{"type":"message","role":"user","content":"\\u0068\\"i"}'),
    ],
)
def test_input_is_what_the_array_holds(value: bytes, inside: bytes) -> None:
    assert created(b'{"type":"response.create","input": ' + value + b"}").input == inside


@pytest.mark.parametrize("value", [None, 5, {"a": 1}, True])
def test_input_that_is_neither_array_nor_string_is_refused(value: object) -> None:
    assert read_frame(frame(input=value)) == Refused(
        reason=Reason.BAD_REQUEST, detail="input must be an array or a string"
    )


@pytest.mark.parametrize(
    ("generate", "prewarm"),
    [(False, True), (True, False), (None, False), (0, False), ("false", False)],
)
def test_only_generate_false_is_a_prewarm(generate: object, prewarm: bool) -> None:
    assert created(frame(generate=generate)).prewarm == prewarm


@pytest.mark.parametrize("value", [5, ["resp_1"], {}, False])
def test_a_previous_response_that_is_not_a_string_is_refused(value: object) -> None:
    assert read_frame(frame(previous_response_id=value)) == Refused(
        reason=Reason.BAD_REQUEST, detail="previous_response_id must be a string"
    )


@pytest.mark.parametrize("metadata", [None, [], "thread_id", 5])
def test_metadata_that_is_not_an_object_names_nothing(metadata: object) -> None:
    assert created(frame(client_metadata=metadata)).metadata == {}


@pytest.mark.parametrize("stream_id", ["a", None])
def test_a_stream_id_is_refused_with_a_reason_of_its_own(stream_id: object) -> None:
    refused = read_frame(frame(stream_id=stream_id))

    assert isinstance(refused, Refused)
    assert refused.reason is Reason.UNSUPPORTED_STREAM_ID


@pytest.mark.parametrize(
    ("data", "asks"),
    [
        (b'{"type":"response.interrupt","response_id":"resp_1"}', Interrupt("resp_1")),
        (b'{"type":"response.interrupt"}', Interrupt(None)),
        (b'{"type":"response.interrupt","response_id":7}', Interrupt(None)),
        (b'{"response_id":"resp_1","type":"response.processed"}', Ignored()),
    ],
)
def test_the_other_frames_of_the_protocol_are_read(data: bytes, asks: object) -> None:
    assert read_frame(data) == asks


@pytest.mark.parametrize(
    ("data", "named"),
    [
        (b'{"type":"session.update"}', "'session.update'"),
        (b'{"type":"response.create "}', "'response.create '"),
        (b'{"type":5}', "None"),
        (b"{}", "None"),
    ],
)
def test_an_unknown_type_is_named_in_its_refusal(data: bytes, named: str) -> None:
    refused = read_frame(data)

    assert isinstance(refused, Refused)
    assert refused.reason is Reason.UNSUPPORTED_FRAME
    assert named in refused.detail


@pytest.mark.parametrize(
    "data",
    [
        *(b"", b"[]", b"null", b"{", b'"response.create"', b'{"type":"response.create",}'),
        b'{"a":' * 9999,
    ],
    ids=lambda data: repr(data)[:30],
)
def test_a_frame_that_is_not_an_object_is_refused(data: bytes) -> None:
    refused = read_frame(data)

    assert isinstance(refused, Refused)
    assert refused.reason is Reason.BAD_REQUEST


@given(st.binary(max_size=40))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    assert isinstance(read_frame(data), Create | Interrupt | Ignored | Refused)


# The POST.


def test_the_post_leaves_out_the_keys_that_belong_to_frames() -> None:
    create = created(
        frame(
            model="m",
            stream=False,
            generate=True,
            previous_response_id="resp_1",
            input=[3],
            store=False,
            client_metadata={"thread_id": "t"},
        )
    )

    body = post_body(create.fields, [b"1, 2", b"", b"3"])

    assert body.count(b'"stream"') == body.count(b'"input"') == 1
    assert msgspec.json.decode(body) == {
        "model": "m",
        "store": False,
        "client_metadata": {"thread_id": "t"},
        "stream": True,
        "input": [1, 2, 3],
    }


@pytest.mark.parametrize("items", [[], [b""]])
def test_without_items_the_input_is_empty(items: list[bytes]) -> None:
    assert post_body({}, items) == b'{"stream":true,"input":[]}'


def test_values_keep_their_bytes() -> None:
    create = created(b'{"type":"response.create","a\\n": { "b":[1.50,  1e3] },"input":[{"x" : 1}]}')

    assert post_body(create.fields, [create.input]) == (
        b'{"a\\n":{ "b":[1.50,  1e3] },"stream":true,"input":[{"x" : 1}]}'
    )


@given(
    st.dictionaries(st.text(max_size=8), JSON, max_size=4),
    st.lists(JSON, max_size=3),
)
def test_unknown_keys_survive(keys: dict[str, object], items: list[object]) -> None:
    own = {"type", "generate", "previous_response_id", "input", "stream", "stream_id"}
    keys = {key: value for key, value in keys.items() if key not in own}
    create = created(msgspec.json.encode({**keys, "type": "response.create", "input": items}))
    body = msgspec.json.decode(post_body(create.fields, [create.input]))

    assert body == {**keys, "stream": True, "input": items}
