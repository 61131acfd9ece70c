"""Server-sent events: any chunking gives the same events, and no byte is changed."""

import re
from itertools import pairwise

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.errors import UpstreamCut
from proxy.responses.rawjson import UNREADABLE
from proxy.responses.sse import (
    EVENT_BYTES,
    NOTED_TYPES,
    Batch,
    Event,
    Noted,
    Splitter,
    batch_of,
    event_from,
    events_of,
    type_of,
)

BOM = b"\xef\xbb\xbf"
CREATED = b'{"type":"response.created","response":{"id":"resp_1"}}'
DELTA = b'{"type":"response.output_text.delta","delta":"\xc3\xa9"}'
COMPLETED = b'{"type":"response.completed","response":{"id":"resp_1"}}'

PIECES = (
    *(b"\n", b"\r", b"\r\n", b"\n\n", b"\r\r", b"\r\n\r\n", b": a comment", b"event: x", b"id: 1"),
    *(b"data:", b"data: ", b"data:  ", b"[DONE]", b" ", b"\xc3", b"\xa9", b'{"type":', b'"x"}'),
    *(CREATED, DELTA, COMPLETED, b"data: " + CREATED, b"data:" + COMPLETED),
)
STREAMS = st.builds(
    lambda bom, pieces: bom + b"".join(pieces),
    st.sampled_from([b"", BOM]),
    st.lists(st.sampled_from(PIECES), max_size=24),
)


def parse(*chunks: bytes) -> list[Event]:
    splitter = Splitter()
    fed = [event for chunk in chunks for event in events_of(splitter.feed(chunk))]
    return fed + events_of(splitter.close())


def fed(*chunks: bytes) -> list[Event]:
    splitter = Splitter()
    return [event for chunk in chunks for event in events_of(splitter.feed(chunk))]


def chunked(stream: bytes, cuts: list[int]) -> list[bytes]:
    places = [0, *sorted(cut % (len(stream) + 1) for cut in cuts), len(stream)]
    return [stream[a:b] for a, b in pairwise(places)]


def data_by_the_standard(stream: bytes) -> list[bytes]:
    """The data of each event, line by line, by the algorithm of the WHATWG standard."""
    found = []
    lines: list[bytes] = []
    for line in re.split(rb"\r\n|\n|\r", stream.removeprefix(BOM)):
        if line.startswith(b"data:"):
            lines.append(line[5:].removeprefix(b" "))
        elif line == b"" and lines:
            found.append(b"\n".join(lines))
            lines = []
    return found


@given(STREAMS, st.lists(st.integers(0, 1000), max_size=12))
def test_every_chunking_of_a_stream_gives_the_same_events(stream: bytes, cuts: list[int]) -> None:
    assert parse(*chunked(stream, cuts)) == parse(stream)
    assert parse(*(bytes([byte]) for byte in stream)) == parse(stream)


@given(STREAMS, st.lists(st.integers(0, 1000), max_size=12))
def test_no_byte_is_changed_and_only_an_unfinished_end_is_kept_back(
    stream: bytes, cuts: list[int]
) -> None:
    stream += b"\n\n"
    raw = b"".join(event.raw for event in fed(*chunked(stream, cuts)))

    assert stream.startswith(raw)
    assert stream[len(raw) :].strip(b"\r\n") == b""


@given(STREAMS)
def test_the_data_is_what_the_standard_says(stream: bytes) -> None:
    stream += b"x\n\n"  # a last line with text, so that the stream ends in one blank line
    found = [event.data for event in fed(stream) if event.data is not None]

    assert found == data_by_the_standard(stream)


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"], ids=["LF", "CRLF", "CR"])
@pytest.mark.parametrize("bom", [b"", BOM], ids=["plain", "BOM"])
def test_every_line_end_gives_the_same_events(end: bytes, bom: bytes) -> None:
    lines = [
        b"event: response.created",
        b"data: " + CREATED,
        b"",
        b": still here",
        b"",
        b"data:" + DELTA,  # no space
        b"id: 7",
        b"",
        b"data: [DONE]",
        b"",
        b": bye",
    ]
    events = parse(bom + b"".join(line + end for line in lines))

    assert [event.data for event in events] == [CREATED, None, DELTA, b"[DONE]"]
    kinds = ["response.created", "", "response.output_text.delta", ""]
    assert [event.type for event in events] == kinds


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"], ids=["LF", "CRLF", "CR"])
@pytest.mark.parametrize("bom", [b"", BOM], ids=["plain", "BOM"])
def test_data_of_many_lines_is_one_event(end: bytes, bom: bytes) -> None:
    lines = [b'data: {"type":', b'data: "response.completed"', b"event: x", b"data:}", b"", b""]
    (event,) = parse(bom + end.join(lines))

    assert event.data == b'{"type":\n"response.completed"\n}'
    assert event.terminal


def test_events_with_different_line_ends_keep_theirs() -> None:
    ends = [b"\n\n", b"\r\n\r\n", b"\r\r", b"\r\n\n", b"\n\r\n"]
    blocks = [b"data: 1" + end for end in ends]

    assert [event.raw for event in parse(b"".join(blocks))] == blocks


def test_a_carriage_return_at_the_end_of_a_chunk_may_be_half_of_a_line_end() -> None:
    splitter = Splitter()

    assert splitter.feed(b"data: 1\r\n\r") == b""
    assert splitter.feed(b"\n") == b"data: 1\r\n\r\n"


def test_a_first_chunk_that_only_looks_like_a_bom_is_data() -> None:
    splitter = Splitter()

    assert splitter.feed(b"\xef\xbb") == b""
    assert splitter.feed(b"x\ndata: 1\n\n") == b"\xef\xbbx\ndata: 1\n\n"


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"], ids=["LF", "CRLF", "CR"])
def test_a_long_event_in_many_pieces_is_one_event(end: bytes) -> None:
    raw = b"data: " + b"x" * 300_000 + end + end
    pieces = [raw[at : at + 1000] for at in range(0, len(raw), 1000)]

    assert [event.raw for event in fed(*pieces, b"data: 1\n\n")] == [raw, b"data: 1\n\n"]


def test_an_event_longer_than_the_limit_is_a_cut() -> None:
    splitter = Splitter(limit_bytes=1000)
    for _ in range(10):
        assert splitter.feed(bytes(100)) == b""

    with pytest.raises(UpstreamCut, match="more than 1000 bytes"):
        splitter.feed(b"x")


def test_only_the_unfinished_event_counts_towards_the_limit() -> None:
    splitter = Splitter(limit_bytes=1000)
    splitter.feed(bytes(990))

    assert splitter.feed(b"\n\nmore").endswith(b"\n\n")
    assert splitter.feed(bytes(996)) == b""


def test_the_limit_is_beyond_what_codex_takes() -> None:
    assert EVENT_BYTES > 16 * 2**20


# The end of a stream.


@pytest.mark.parametrize("end", [b"", b"\n", b"\r\n", b"\r", b"\n\r"])
def test_a_last_event_without_a_blank_line_gets_one_if_its_data_is_whole(end: bytes) -> None:
    events = parse(b"data: " + CREATED + b"\n\n", b"data: " + COMPLETED + end)

    assert [event.type for event in events] == ["response.created", "response.completed"]
    assert [event.data for event in fed(events[1].raw)] == [COMPLETED]


def test_an_event_that_was_cut_short_is_discarded() -> None:
    begun = b"data: " + CREATED + b"\n\n"

    for length in range(len(COMPLETED)):
        assert parse(begun + b"data: " + COMPLETED[:length]) == parse(begun)


@pytest.mark.parametrize(
    "rest", [b"", b"\n", b"\r\n", b": comment", b"data: [DONE]", b"data:", BOM]
)
def test_a_rest_without_an_event_is_discarded(rest: bytes) -> None:
    assert parse(rest) == []


# Batches.

ORDINARY = st.builds(
    lambda kind, data, space: (
        b"event: x\ndata:" + space + b'{"type":"' + kind + b'"' + data + b"}\n\n"
    ),
    st.sampled_from([b"response.output_text.delta", *(x.encode() for x in sorted(NOTED_TYPES))]),
    st.sampled_from([b"", b',"delta":"data: x"', b',"delta":"\\n\\ndata: y"', b',"x":"\xc3\xa9"']),
    st.sampled_from([b"", b" "]),
)
ODD = st.sampled_from(
    [
        *(b": note\n\n", b"\n", b"\n\n", b"id: 1\n", b"data: [DONE]\n\n", b"data\n\n"),
        b"data: a\ndata: b\n\n",
        b'data: a\ndata: {"type":"error"}\n\n',
        b'xdata: {"type":"error"}\n\n',
        b'data: {"type":"error"}\nid: 7\n\n',
        b'data: {"a":1,"type":"response.created"}\n\n',
        b'data: {"type":"respons\\u0065.created"}\n\n',
        b'data:  {"type":"error"}\n\n',
        b'data: {"type":"response.created"}\r\n\r\n',
        BOM,
    ]
)


def one_by_one(events: list[Event]) -> Batch:
    """What a batch of these events has to be."""
    ends = [index for index, event in enumerate(events) if event.terminal]
    before = events[: ends[0]] if ends else events
    return Batch(
        b"".join(event.raw for event in before),
        [event.data for event in before if event.data is not None],
        [Noted(x.type, x.data or b"") for x in before if x.type in NOTED_TYPES],
        events[ends[0]] if ends else None,
    )


def comparable(batch: Batch) -> tuple[bytes, list[bytes], list[Noted], tuple[object, ...] | None]:
    """An odd line end between two events may belong to either of them."""
    final = batch.final
    end = None if final is None else (final.raw.lstrip(b"\n"), final.data, final.type)
    return batch.raw.rstrip(b"\n"), list(batch.data), list(batch.noted), end


@given(st.lists(ORDINARY | ODD, max_size=6))
def test_a_batch_of_any_events_equals_its_events_one_by_one(blocks: list[bytes]) -> None:
    text = Splitter().feed(b"".join(blocks))
    batch = batch_of(text)

    assert comparable(batch) == comparable(one_by_one(events_of(text)))
    assert text.startswith(batch.raw + (b"" if batch.final is None else batch.final.raw))


# Types.


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (b'{"type":"response.created"}', "response.created"),
        (b' {\n\t"type" : "response.created" , "a":1}', "response.created"),
        (b'{"sequence_number":3,"type":"response.failed"}', "response.failed"),
        (b'{"response":{"type":"inner"},"type":"outer"}', "outer"),
        (b'{"response":{"type":"inner"}}', ""),
        (b'{"type":"response\\u002ecompleted"}', "response.completed"),
        (b'{"type":"a\\"b"}', 'a"b'),
        (b'{"\\u0074ype":"x"}', "x"),
        *((b'{"type":""}', ""), (b'{"type":5}', ""), (b'{"type":null}', ""), (b"{}", "")),
        *((b"[DONE]", ""), (b'["type"]', ""), (b'"type"', ""), (b"", ""), (b"{", "")),
        (b'{"a":"\xff","type":"x"}', "x"),
        (b'{"type":"\xff"}', "\ufffd"),
        (b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b',"type":"x"}', ""),
        (b'{"type":"x","a":' + b"[" * 100_000 + b"]" * 100_000 + b"}", "x"),
    ],
    ids=lambda value: repr(value)[:40],
)
def test_the_type_of_an_event_is_the_member_of_that_name(data: bytes, kind: str) -> None:
    assert type_of(data) == kind


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=2) | st.fixed_dictionaries({"type": inner}),
    max_leaves=4,
)


@given(st.dictionaries(st.text(max_size=3) | st.just("type"), JSON, max_size=3))
def test_the_type_is_what_a_json_parser_finds(document: dict[str, object]) -> None:
    kind = document.get("type")

    assert type_of(msgspec.json.encode(document)) == (kind if isinstance(kind, str) else "")


@given(st.binary(max_size=60))
def test_any_bytes_have_a_type_or_none(data: bytes) -> None:
    try:
        whole = msgspec.json.decode(data)
    except UNREADABLE:
        whole = None
    if isinstance(whole, dict) and isinstance(whole.get("type"), str):
        assert type_of(data) == whole["type"]
    else:
        assert not type_of(data) or data.lstrip().startswith(b"{")


@pytest.mark.parametrize(
    ("kind", "terminal"),
    [
        *((f"response.{name}", True) for name in ("completed", "failed", "incomplete")),
        *((f"response.{name}", False) for name in ("done", "cancelled", "created")),
        *(("error", True), ("", False)),
    ],
)
def test_four_types_end_a_response(kind: str, terminal: bool) -> None:
    assert event_from(b"{}", kind).terminal is terminal


def test_an_event_made_by_turnlane_parses_as_itself() -> None:
    event = event_from(COMPLETED, "response.completed")

    assert parse(event.raw) == [event]
    assert event.raw == b"event: response.completed\ndata: " + COMPLETED + b"\n\n"
