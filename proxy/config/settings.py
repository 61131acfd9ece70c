"""The settings that other packages read, with their defaults and the reasons for them."""

from dataclasses import dataclass

from proxy.accounts.spec import REFRESH_URL

MIB = 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings:
    """`[server]`: where turnlane listens, and for whom."""

    host: str = "127.0.0.1"
    """Loopback: a proxy that holds credentials serves its own machine only, by default."""
    port: int = 10110
    """0 picks a free port; the ready line names it."""
    hosts: tuple[str, ...] = ()
    """`Host` names accepted besides loopback's; anything else may be a rebinding page."""
    origins: tuple[str, ...] = ()
    """Browser origins that may speak to turnlane."""
    drain_seconds: float = 10.0
    """How long running turns may continue after SIGTERM."""
    connections: int = 1024
    """Open TCP connections: every turn and WebSocket, and as many again for probes and waits."""
    keep_alive_seconds: float = 300.0
    """An idle HTTP connection is kept for as long as Codex waits for an event."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSettings:
    """`[client]`: what one client may send, and how patient turnlane is with it."""

    body_bytes: int = 64 * MIB
    """One HTTP body or WebSocket frame, before and after decompression; a larger one gets 413."""
    message_bytes: int = 80 * MIB
    """Above `body_bytes` a frame is refused in band; above this hypercorn closes with 1009."""
    header_bytes: int = 64 * 1024
    """Request line and headers; Codex's turn metadata alone can take several kB."""
    body_silent_seconds: float = 10.0
    body_seconds: float = 120.0
    """A body must keep coming, and must end."""
    stall_seconds: float = 30.0
    """A client that takes nothing for this long counts as gone (also TCP_USER_TIMEOUT, tcp(7))."""
    outbox_bytes: int = 256 * 1024
    """How far one turn may be ahead of its client before the upstream is slowed down."""
    filler_seconds: float = 20.0
    """Codex gives up a silent stream after 300 s, other clients after 30 s."""
    ping_seconds: float = 20.0
    """WebSocket pings find dead peers of idle sockets."""
    discard_seconds: float = 5.0
    """How long an unread body is still read after a refusal, so that its client sees it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UpstreamSettings:
    """`[upstream]`: where turns go, and the deadlines of one attempt."""

    url: str | None = None
    """Base URL. Without one: the provider that the client's own login belongs to."""
    connect_seconds: float = 10.0
    first_event_seconds: float = 120.0
    whole_body_seconds: float = 600.0
    """First byte of an answer that is not streamed: the model has finished by then."""
    silence_seconds: float = 300.0
    """Between two events; Codex itself gives up after 300 s."""
    sends: int = 2
    """Physical sends for one client attempt: one retry of what failed before its first event."""
    refresh_url: str = REFRESH_URL
    """Where the tokens of ChatGPT logins are refreshed."""
