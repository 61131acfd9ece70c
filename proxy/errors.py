"""Errors of the proxy, by blame.

ProxyError
  + ConfigError    the operator's: a key of the configuration, or the home directory
    + HomeTaken    another process holds the home
    + PortTaken    another process listens on the port
  + RoutingError   the operator's: Codex's configuration, or the note about it, cannot be used
  + CommandFailed  the operator's: a command to a turnlane cannot be carried out
  + ClientStalled  the client's: it did not drain its outbox in time
  + UpstreamCut    the upstream's: its stream broke before it ended

What a client is told is a value (`proxy.ingress.replies`), never one of these.
"""


class ProxyError(Exception):
    """Base of what turnlane raises itself."""


class ConfigError(ProxyError):
    """A setting cannot be used; `key` names it as the operator wrote it."""

    def __init__(self, key: str, problem: str) -> None:
        super().__init__(f"{key}: {problem}")
        self.key = key
        self.problem = problem


class HomeTaken(ConfigError):  # noqa: N818  named by what happened
    """Another process holds the lock of the home."""


class PortTaken(ConfigError):  # noqa: N818
    """Another process listens where this one was to."""


class RoutingError(ProxyError):
    """Codex cannot be connected, or not be put back; the text says why and what to do."""


class CommandFailed(ProxyError):  # noqa: N818
    """An operator's command cannot be carried out; the text says why, and holds no secret."""


class ClientStalled(ProxyError):  # noqa: N818  named like trio's errors: by what happened
    """The client took nothing from its outbox for `client.stall_seconds`."""


class UpstreamCut(ProxyError):  # noqa: N818
    """The upstream's body ended before its end; the text says how."""
