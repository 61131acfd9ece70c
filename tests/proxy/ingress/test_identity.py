"""Identity: lanes, roots and workers, by example, by property, and as the real Codex names them."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lifecycle import Ask, PrincipalId
from proxy.ingress.identity import LOCAL, Identity, from_frame, from_headers

FIXTURES = Path(__file__).parents[2] / "fixtures"
STRANGER = PrincipalId("stranger")


def headers(**named: str) -> Identity:
    """The identity of headers, `_` in their names meaning `-`."""
    return from_headers(
        [(name.replace("_", "-").encode(), text.encode()) for name, text in named.items()]
    )


def identity(thread: str = "", session: str = "", parent: str = "", subagent: str = "") -> Identity:
    return headers(
        thread_id=thread,
        session_id=session,
        x_codex_parent_thread_id=parent,
        x_openai_subagent=subagent,
    )


# Both ways in.


@pytest.mark.parametrize("spelling", [b"session-id", b"session_id", b"Session-Id", b"Session_ID"])
def test_a_session_is_read_in_either_spelling(spelling: bytes) -> None:
    assert from_headers([(b"Thread-Id", b"t"), (spelling, b"s")]) == identity("t", "s")


def test_of_both_spellings_the_one_that_codex_sends_counts() -> None:
    pairs = [(b"session_id", b"other"), (b"session-id", b"codex")]

    assert from_headers(pairs).session == from_headers(pairs[::-1]).session == "codex"


def test_of_several_headers_the_first_usable_one_counts() -> None:
    values = (b" ", b"a\x01", b"b", b"c")

    assert from_headers([(b"thread-id", value) for value in values]).thread == "b"


def test_headers_and_frames_name_the_same_identity() -> None:
    assert from_frame(METADATA, Identity()) == identity("new-t", "new-s", "new-p", "new-kind")


@pytest.mark.parametrize(
    ("text", "name"),
    [
        *(("t", "t"), (" \tt ", "t"), ("a b", "a b"), ("x" * 512, "x" * 512), ("x" * 513, None)),
        *(("", None), ("   ", None), ("a\0b", None), ("a\tb", None), ("a\nb", None)),
        *(("a\x7fb", None), ("a\x1bb", None)),
    ],
    ids=lambda text: repr(text)[:12],
)
def test_a_name_that_is_empty_or_long_or_has_control_characters_is_absent(
    text: str, name: str | None
) -> None:
    assert headers(thread_id=text).thread == name
    assert from_frame({"thread_id": text}, Identity()).thread == name


@pytest.mark.parametrize(("text", "found"), [("é" * 256, True), ("é" * 257, False)])
def test_the_length_of_a_name_is_counted_in_bytes(text: str, found: bool) -> None:
    assert (from_frame({"thread_id": text}, Identity()).thread is not None) == found


@pytest.mark.parametrize(
    ("named", "codex"),
    [
        ({"x_codex_window_id": "t:0"}, True),
        ({"x_codex_turn_metadata": "{}"}, True),
        ({"x_codex_beta_features": "a"}, False),
        ({"originator": "codex_exec", "thread_id": "t"}, False),
        ({}, False),
    ],
)
def test_a_codex_client_is_recognised_by_its_own_headers(
    named: dict[str, str], codex: bool
) -> None:
    metadata = {name.replace("_", "-"): text for name, text in named.items()}

    assert headers(**named).codex == codex
    for said in (metadata, metadata | {"thread_id": "t"}):
        assert from_frame(said, Identity()).codex == codex
        assert from_frame(said, headers(x_codex_window_id="t:0")).codex


# A frame's identity is whole, or its handshake's is.

HANDSHAKE = replace(identity("old-t", "old-s", "old-p", "old-kind"), principal=STRANGER)
METADATA = {
    "thread_id": "new-t",
    "session_id": "new-s",
    "x-codex-parent-thread-id": "new-p",
    "x-openai-subagent": "new-kind",
}


def test_what_a_frame_with_a_thread_leaves_out_is_absent() -> None:
    found = from_frame({"thread_id": "new-t"}, HANDSHAKE)

    assert found == Identity(principal=STRANGER, thread="new-t")


def test_a_frame_without_a_usable_thread_has_the_identity_of_its_handshake() -> None:
    assert from_frame(METADATA | {"thread_id": "\x01"}, HANDSHAKE) == HANDSHAKE


@given(st.lists(st.sampled_from(sorted(METADATA)), unique=True))
def test_an_identity_is_never_mixed(keys: list[str]) -> None:
    found = from_frame({key: METADATA[key] for key in keys}, HANDSHAKE)
    age = "new-" if "thread_id" in keys else "old-"

    for name in (found.thread, found.session, found.parent, found.subagent):
        assert name is None or name.startswith(age)
    assert found.principal == STRANGER


# Lanes, roots and workers.


@pytest.mark.parametrize(
    ("named", "lane", "root", "worker"),
    [
        (("t", "s", "p"), True, "s", True),
        (("t", "t", "p"), True, "t", True),
        (("t", "s", "t"), True, "s", False),
        (("t", "s", ""), True, "t", False),
        (("t", "t", ""), True, "t", False),
        (("t", "", "p"), True, "p", True),
        (("t", "", "t"), True, "t", False),
        (("t", "", ""), False, "t", False),
        (("", "s", "p"), False, "p", False),
        (("", "", "p"), False, "p", False),
        (("", "s", ""), False, None, False),
        (("", "", ""), False, None, False),
    ],
    ids=lambda value: "/".join(part or "-" for part in value) if isinstance(value, tuple) else "",
)
def test_thread_session_and_parent_decide_lane_root_and_worker(
    named: tuple[str, str, str], lane: bool, root: str | None, worker: bool
) -> None:
    found = identity(*named)

    assert (found.lane is not None) == lane
    assert found.root == (None if root is None else identity(root).root)
    assert found.worker == worker


@pytest.mark.parametrize(
    ("subagent", "parent", "worker", "counted"),
    [
        ("guardian", "root", False, False),
        ("guardian", "child", True, False),
        ("review", "root", True, False),
        ("collab_spawn", "root", True, True),
        ("", "root", True, True),
    ],
)
def test_only_a_guardian_of_the_root_thread_is_interactive(
    subagent: str, parent: str, worker: bool, counted: bool
) -> None:
    found = identity("t", "root", parent, subagent)

    assert (found.worker, found.ask(0).counted) == (worker, counted)


def test_siblings_of_one_fan_out_have_a_lane_each_and_one_root() -> None:
    children = [identity(f"child-{n}", "root", "root") for n in range(3)]

    assert len({child.lane for child in children}) == 3
    assert {child.root for child in children} == {identity("root", "root").root}


def test_equal_threads_of_two_sessions_have_two_lanes() -> None:
    assert identity("t", "s1").lane != identity("t", "s2").lane


def test_an_anonymous_turn_asks_for_no_lane() -> None:
    assert Identity().ask(7) == Ask(principal=LOCAL, body_bytes=7)


def test_an_ask_says_what_admission_needs() -> None:
    child = identity("t", "s", "p")

    assert child.ask(7) == Ask(
        principal=LOCAL,
        lane=child.lane,
        root=child.root,
        thread=identity("t").ask(0).thread,
        parent=identity("p").ask(0).thread,
        worker=True,
        counted=True,
        body_bytes=7,
    )


def test_a_root_thread_is_no_child_and_joins_no_root_whatever_parent_it_names() -> None:
    ask = Identity(thread="t", session="t", parent="p").ask(0)

    assert (ask.parent, ask.counted) == (None, False)


NAMES = st.text("ab\x00:/", min_size=1, max_size=4)
IDENTITIES = st.builds(
    Identity,
    principal=st.sampled_from([LOCAL, STRANGER, PrincipalId("local\x00")]),
    thread=NAMES | st.none(),
    session=NAMES | st.none(),
    parent=NAMES | st.none(),
)
FEW = st.sampled_from(["a", "b", "ab"])
NAMED = st.builds(
    Identity,
    principal=st.sampled_from([LOCAL, STRANGER]),
    thread=FEW,
    session=FEW,
    parent=FEW | st.none(),
)


def lane_parts(who: Identity) -> tuple[str | None, ...]:
    through = ("session", who.session) if who.parent is None else ("parent", who.parent)
    return (who.principal, *through, who.thread)


@given(NAMED, NAMED)
def test_two_identities_share_a_lane_only_if_they_name_the_same(
    one: Identity, other: Identity
) -> None:
    assert one.lane is not None
    assert (one.lane == other.lane) == (lane_parts(one) == lane_parts(other))


@given(NAMES, NAMES, NAMES)
def test_moving_the_boundary_between_two_names_makes_another_lane(
    left: str, middle: str, right: str
) -> None:
    one = Identity(parent=left + middle, thread=right)

    assert one.lane != Identity(parent=left, thread=middle + right).lane


@given(IDENTITIES)
def test_two_callers_that_send_the_same_never_meet(who: Identity) -> None:
    stranger = replace(who, principal=PrincipalId("another caller"))

    assert who.lane is None or who.lane != stranger.lane
    assert who.root is None or who.root != stranger.root


@given(IDENTITIES)
def test_an_id_has_32_characters_whatever_was_sent(who: Identity) -> None:
    ids = [name for name in (who.lane, who.root) if name is not None]

    assert all(re.fullmatch(r"[0-9a-f]{32}", name) for name in ids)


@given(st.lists(st.tuples(st.sampled_from([b"thread-id", b"session_id", b"X"]), st.binary())))
def test_any_headers_have_an_identity(pairs: list[tuple[bytes, bytes]]) -> None:
    found = from_headers(pairs)

    assert found.ask(0).lane == found.lane
    assert all(name is None or name == name.strip() for name in (found.thread, found.session))


# As the real Codex names them.


def seen(name: str) -> Iterator[tuple[int, Identity]]:
    """Every handshake, POST and frame of a capture, with its connection."""
    handshakes: dict[int, Identity] = {}
    for line in (FIXTURES / f"{name}.jsonl").read_bytes().splitlines():
        record = msgspec.json.decode(line)
        on = record["on"]
        if "headers" in record:
            pairs = [(key.encode(), text.encode()) for key, text in record["headers"].items()]
            handshakes[on] = from_headers(pairs)
            yield on, handshakes[on]
        else:
            yield on, from_frame(record["client_metadata"], handshakes[on])


def by_connection(name: str) -> Mapping[int, Identity]:
    """One identity for each connection: its frames say what its handshake said."""
    found: dict[int, Identity] = {}
    for on, who in seen(name):
        assert found.setdefault(on, who) == who
        assert who.codex
    return found


@pytest.mark.parametrize(
    ("capture", "lanes", "workers"),
    [
        ("three_children", 4, "-www"),
        ("three_children_http", 4, "-www-"),  # the last POST is the root thread's second
        ("grandchild", 10, "-wwwwwwwww"),
        ("auto_review", 3, "---"),  # guardians are interactive
        ("compaction", 1, "--"),  # a second socket of one thread
    ],
)
def test_a_captured_fan_out_has_a_lane_a_thread_under_one_root(
    capture: str, lanes: int, workers: str
) -> None:
    found = list(by_connection(capture).values())

    assert len({who.lane for who in found if who.lane is not None}) == lanes
    assert len({who.root for who in found}) == 1
    assert "".join("w" if who.worker else "-" for who in found) == workers


def test_the_captures_have_a_grandchild_and_guardians() -> None:
    *_, grandchild = by_connection("grandchild").values()
    _, *guardians = by_connection("auto_review").values()

    assert grandchild.parent != grandchild.session
    assert {who.subagent for who in guardians} == {"guardian"}


def test_a_captured_title_thread_has_nothing_in_common_with_its_conversation() -> None:
    conversation, title, again = by_connection("title_thread").values()

    assert again == conversation
    assert title.lane != conversation.lane
    assert title.root != conversation.root
    assert not title.worker
