"""Who asks: lanes, roots and workers, by example, by property, and as the real Codex names them."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import permutations
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
    pairs = [(name.replace("_", "-").encode(), text.encode()) for name, text in named.items()]
    return from_headers(pairs)


def identity(thread: str = "", session: str = "", parent: str = "", subagent: str = "") -> Identity:
    return headers(
        thread_id=thread,
        session_id=session,
        x_codex_parent_thread_id=parent,
        x_openai_subagent=subagent,
    )


# Both ways in.


@pytest.mark.parametrize("spelling", [b"session-id", b"session_id", b"Session-Id", b"Session_ID"])
def test_a_session_is_known_by_either_spelling(spelling: bytes) -> None:
    found = from_headers([(b"Thread-Id", b"t"), (spelling, b"s")])

    assert found == Identity(thread="t", session="s")
    assert found.lane == identity("t", "s").lane


@pytest.mark.parametrize(
    "pairs", list(permutations([(b"session-id", b"codex"), (b"session_id", b"other")]))
)
def test_of_both_spellings_the_one_that_codex_sends_counts(
    pairs: tuple[tuple[bytes, bytes], ...],
) -> None:
    assert from_headers(pairs).session == "codex"


def test_of_several_headers_the_first_that_says_something_counts() -> None:
    pairs = [
        (b"thread-id", b" "),
        (b"thread-id", b"a\x01"),
        (b"thread-id", b"b"),
        (b"thread-id", b"c"),
    ]

    assert from_headers(pairs).thread == "b"


def test_headers_and_frame_name_the_same() -> None:
    metadata = {
        "thread_id": "t",
        "session_id": "s",
        "x-codex-parent-thread-id": "p",
        "x-openai-subagent": "review",
    }

    assert from_frame(metadata, Identity()) == identity("t", "s", "p", "review")


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("t", "t"),
        (" \tt ", "t"),
        ("a b", "a b"),
        ("x" * 512, "x" * 512),
        ("x" * 513, None),
        ("", None),
        ("   ", None),
        ("a\0b", None),
        ("a\tb", None),
        ("a\nb", None),
        ("a\x7fb", None),
        ("a\x1bb", None),
    ],
    ids=lambda text: repr(text)[:12],
)
def test_what_is_empty_or_long_or_has_control_characters_is_absent(
    text: str, name: str | None
) -> None:
    assert headers(thread_id=text).thread == name
    assert from_frame({"thread_id": text}, Identity()).thread == name


@pytest.mark.parametrize(("text", "found"), [("é" * 256, True), ("é" * 257, False)])
def test_long_is_a_matter_of_bytes(text: str, found: bool) -> None:
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
def test_a_codex_client_is_known_by_its_marks(named: dict[str, str], codex: bool) -> None:
    metadata = {name.replace("_", "-"): text for name, text in named.items()}

    assert headers(**named).codex == codex
    assert from_frame(metadata, Identity()).codex == codex
    assert from_frame(metadata | {"thread_id": "t"}, Identity()).codex == codex


def test_a_handshake_of_codex_makes_every_frame_one_of_codex() -> None:
    handshake = headers(x_codex_window_id="t:0")

    assert from_frame({}, handshake).codex
    assert from_frame({"thread_id": "t"}, handshake).codex


# A frame wins whole, or its handshake does.

HANDSHAKE = replace(identity("old-t", "old-s", "old-p", "old-kind"), principal=STRANGER)
METADATA = {
    "thread_id": "new-t",
    "session_id": "new-s",
    "x-codex-parent-thread-id": "new-p",
    "x-openai-subagent": "new-kind",
}


def test_what_a_frame_with_a_thread_leaves_out_is_absent() -> None:
    assert from_frame({"thread_id": "new-t"}, HANDSHAKE) == Identity(
        principal=STRANGER, thread="new-t"
    )


def test_a_frame_without_a_thread_is_its_handshakes() -> None:
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
def test_what_follows_from_thread_session_and_parent(
    named: tuple[str, str, str], lane: bool, root: str | None, worker: bool
) -> None:
    found = identity(*named)

    assert (found.lane is not None) == lane
    assert found.root == (None if root is None else identity(root).root)
    assert found.worker == worker


@pytest.mark.parametrize(
    ("subagent", "parent", "worker"),
    [
        ("guardian", "root", False),
        ("guardian", "child", True),
        ("review", "root", True),
        ("collab_spawn", "root", True),
        ("", "root", True),
    ],
)
def test_only_a_guardian_of_the_root_thread_is_waited_for(
    subagent: str, parent: str, worker: bool
) -> None:
    assert identity("t", "root", parent, subagent).worker == worker


def test_siblings_of_one_fan_out_have_a_lane_each_and_one_root() -> None:
    children = [identity(f"child-{n}", "root", "root") for n in range(3)]

    assert len({child.lane for child in children}) == 3
    assert {child.root for child in children} == {identity("root", "root").root}


def test_equal_threads_of_different_sessions_do_not_meet() -> None:
    assert identity("t", "s1").lane != identity("t", "s2").lane


def test_a_grandchild_pays_into_the_root_of_its_session() -> None:
    grandchild = identity("grandchild", "root", "child")

    assert grandchild.worker
    assert grandchild.root == identity("root", "root").root
    assert grandchild.root != identity("child", "child").root


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
def test_two_share_a_lane_only_if_they_name_the_same(one: Identity, other: Identity) -> None:
    assert one.lane is not None
    assert (one.lane == other.lane) == (lane_parts(one) == lane_parts(other))


@given(NAMES, NAMES, NAMES)
def test_moving_a_boundary_makes_another_lane(left: str, middle: str, right: str) -> None:
    one = Identity(parent=left + middle, thread=right)
    other = Identity(parent=left, thread=middle + right)

    assert one.lane != other.lane


@given(IDENTITIES)
def test_two_callers_that_say_the_same_never_meet(who: Identity) -> None:
    stranger = replace(who, principal=PrincipalId("somebody else"))

    assert who.lane is None or who.lane != stranger.lane
    assert who.root is None or who.root != stranger.root


@given(IDENTITIES)
def test_an_id_is_as_long_as_it_is_whatever_was_sent(who: Identity) -> None:
    ids = [name for name in (who.lane, who.root) if name is not None]

    assert all(re.fullmatch(r"[0-9a-f]{32}", name) for name in ids)
    assert who.ask(0).lane == who.lane


@given(st.lists(st.tuples(st.sampled_from([b"thread-id", b"session_id", b"X"]), st.binary())))
def test_whatever_headers_come_somebody_asks(pairs: list[tuple[bytes, bytes]]) -> None:
    found = from_headers(pairs)

    assert found.ask(0).lane == found.lane
    assert all(name is None or name == name.strip() for name in (found.thread, found.session))


# As the real Codex names them.


def seen(name: str) -> Iterator[tuple[int, Identity]]:
    """Every handshake, POST and frame, with its connection."""
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
    """One identity for each connection: what its frames say is what its handshake said."""
    found: dict[int, Identity] = {}
    for on, who in seen(name):
        assert found.setdefault(on, who) == who
        assert who.codex
    return found


def test_a_real_fan_out_has_four_lanes_under_one_root() -> None:
    root, *children = by_connection("three_children").values()

    assert len({who.lane for who in (root, *children)}) == 4
    assert {who.root for who in children} == {root.root}
    assert [who.worker for who in (root, *children)] == [False, True, True, True]


def test_the_same_fan_out_over_http_is_no_different() -> None:
    everybody = list(by_connection("three_children_http").values())
    root, *children, again = everybody

    assert again == root
    assert len({who.lane for who in everybody}) == 4
    assert {who.root for who in children} == {root.root}
    assert [who.worker for who in everybody] == [False, True, True, True, False]


def test_a_real_grandchild_pays_into_the_same_root() -> None:
    everybody = list(by_connection("grandchild").values())
    grandchild = everybody[-1]

    assert len({who.lane for who in everybody}) == 10
    assert len({who.root for who in everybody}) == 1
    assert [who.worker for who in everybody] == [False] + [True] * 9
    assert grandchild.parent != grandchild.session


def test_a_real_guardian_is_admitted_like_the_conversation_that_waits_for_it() -> None:
    root, *guardians = by_connection("auto_review").values()

    assert len({who.lane for who in (root, *guardians)}) == 3
    assert {who.root for who in guardians} == {root.root}
    assert {who.subagent for who in guardians} == {"guardian"}
    assert not any(who.worker for who in guardians)


def test_a_thread_for_the_title_has_nothing_to_do_with_its_conversation() -> None:
    conversation, title, again = by_connection("title_thread").values()

    assert again == conversation
    assert title.lane != conversation.lane
    assert title.root != conversation.root
    assert not title.worker


def test_a_second_socket_of_one_thread_asks_for_the_same_lane() -> None:
    first, second = by_connection("compaction").values()

    assert first.lane == second.lane
    assert first.lane is not None


def test_a_root_thread_joins_nobody_and_is_no_child_whatever_parent_it_names() -> None:
    ask = Identity(thread="t", session="t", parent="p").ask(0)

    assert (ask.parent, ask.counted) == (None, False)
