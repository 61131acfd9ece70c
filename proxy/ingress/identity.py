"""Identity, pure: from headers or frame metadata to an Ask. Only here are lane and root derived.

Theory of operation ------------------- A client names its thread, the session (the root thread)
and, for a sub-agent, its direct parent. A lane needs two of them: siblings share their parent, and
unrelated conversations may share either of the others, so one alone would collapse turns that have
nothing to do with each other. A request that names less is anonymous. Ids are digests over
length-prefixed parts, scoped by the principal, so two callers that send the same words never meet
and no id grows with what a client sent.
"""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from lifecycle import LANE_ID_BYTES, Ask, LaneId, PrincipalId, RootId, ThreadId

LOCAL: Final = PrincipalId("local")
"""The principal of every request while no keys are configured."""

_LONGEST: Final = 512  # bytes; Codex's ids are UUIDs of 36

# Field of Identity, its HTTP headers in order of preference, its key in `client_metadata`.
_NAMES: Final = (
    ("thread", (b"thread-id",), "thread_id"),
    ("session", (b"session-id", b"session_id"), "session_id"),
    ("parent", (b"x-codex-parent-thread-id",), "x-codex-parent-thread-id"),
    ("subagent", (b"x-openai-subagent",), "x-openai-subagent"),
)
_CODEX_MARKS: Final = ("x-codex-window-id", "x-codex-turn-metadata")


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """What a request says about itself. Within one principal these are claims, not proof."""

    principal: PrincipalId = LOCAL
    thread: str | None = None
    session: str | None = None
    parent: str | None = None
    subagent: str | None = None
    codex: bool = False
    """Sent by a Codex client, which reads refusals in its own way."""

    @property
    def lane(self) -> LaneId | None:
        """The lane, in which turns do not overlap; None when too little is known to have one."""
        if self.thread is None:
            return None
        if self.parent is not None:
            parts = (self.principal, "parent", self.parent, self.thread)
        elif self.session is not None:
            parts = (self.principal, "session", self.session, self.thread)
        else:
            return None
        return LaneId(_digest(parts))

    @property
    def root(self) -> RootId | None:
        """The root thread whose budget pays; None when neither thread nor parent is known."""
        if self.thread is not None and (self.parent is None or self.thread == self.session):
            root: str | None = self.thread
        else:
            root = self.session if self.parent is not None and self.thread else self.parent
            root = root or self.parent
        return None if root is None else RootId(_digest((self.principal, "root", root)))

    @property
    def worker(self) -> bool:
        """Whether this is a sub-agent's turn. A guardian of the root thread counts as interactive,
        since the conversation waits for it."""
        if self.parent is None or self.thread is None or self.parent == self.thread:
            return False
        return not (self.subagent == "guardian" and self.parent == self.session)

    @property
    def counted(self) -> bool:
        """Whether the thread counts as a child. Guardians and reviews come with the work; they are
        not part of a fan-out."""
        own_root = self.thread == self.session
        return self.worker and not own_root and self.subagent not in ("guardian", "review")

    def ask(self, body_bytes: int) -> Ask:
        return Ask(
            principal=self.principal,
            lane=self.lane,
            root=self.root,
            thread=self._thread_id(self.thread),
            parent=None if self.thread == self.session else self._thread_id(self.parent),
            worker=self.worker,
            counted=self.counted,
            body_bytes=body_bytes,
        )

    def _thread_id(self, name: str | None) -> ThreadId | None:
        return None if name is None else ThreadId(_digest((self.principal, "thread", name)))


def from_headers(
    headers: Iterable[tuple[bytes, bytes]], principal: PrincipalId = LOCAL
) -> Identity:
    """Return the identity of an HTTP request, or of a WebSocket's handshake."""
    first: dict[bytes, str] = {}
    for name, value in headers:
        if (text := _clean(value.decode("latin-1"))) is not None:
            first.setdefault(name.lower(), text)
    found = {
        field: next((first[name] for name in names if name in first), None)
        for field, names, _ in _NAMES
    }
    return _identity(found, principal, codex=any(mark.encode() in first for mark in _CODEX_MARKS))


def from_frame(metadata: Mapping[str, str], handshake: Identity) -> Identity:
    """Return the identity of one frame: all of it from the frame if that names its thread, else all
    of it from the handshake. The handshake describes the first thing done on its socket and goes
    stale, so the two are never mixed."""
    found = {field: _clean(metadata.get(key, "")) for field, _, key in _NAMES}
    codex = handshake.codex or any(mark in metadata for mark in _CODEX_MARKS)
    if found["thread"] is None:
        return replace(handshake, codex=codex)
    return _identity(found, handshake.principal, codex=codex)


def _identity(found: Mapping[str, str | None], principal: PrincipalId, *, codex: bool) -> Identity:
    return Identity(
        principal=principal,
        thread=found["thread"],
        session=found["session"],
        parent=found["parent"],
        subagent=found["subagent"],
        codex=codex,
    )


def _clean(text: str) -> str | None:
    """Return the text trimmed, or None if it is not a usable name."""
    text = text.strip()
    if not text or len(text.encode("utf-8", "surrogatepass")) > _LONGEST:
        return None
    return text if text.isprintable() else None


def _digest(parts: Iterable[str]) -> str:
    digest = hashlib.sha256()
    for part in parts:
        encoded = part.encode("utf-8", "surrogatepass")
        digest.update(len(encoded).to_bytes(4, "big") + encoded)
    return digest.hexdigest()[:LANE_ID_BYTES]
