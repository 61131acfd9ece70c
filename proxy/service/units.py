"""Units, pure: the files that have systemd or launchd run turnlane as a user's service."""

import plistlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

MARK: Final = "Written by `turnlane service install`"
"""The mark of turnlane's own files; one without it is left alone."""
LABEL: Final = "turnlane"
"""The name in launchd and in systemd's journal."""
SERVICE: Final = "turnlane.service"
SOCKET: Final = "turnlane.socket"
PLIST: Final = "turnlane.plist"
FILES: Final = 65536
AFTER_DRAIN_SECONDS: Final = 10
"""How long stopping may take on top of the drain."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """How to start turnlane, and where it listens.

    `variables` are set in the unit and hold no secret; the owner may put others into
    `environment_file`.
    """

    command: Sequence[str]
    variables: Mapping[str, str]
    environment_file: str
    host: str
    port: int
    drain_seconds: float


def systemd_units(service: Service) -> dict[str, str]:
    """Return the units by name. The socket outlives each process, so that no client is refused."""
    return {SERVICE: _service(service), SOCKET: _socket(service)}


def launchd_plist(service: Service, log: str) -> str:
    """Return the plist. launchd restarts turnlane; the listener is turnlane's own."""
    document = {
        "Label": LABEL,
        "ProgramArguments": list(service.command),
        "EnvironmentVariables": dict(service.variables),
        "RunAtLoad": True,
        "KeepAlive": {"SuccessfulExit": False},
        "ThrottleInterval": 1,
        "ExitTimeOut": _stop_seconds(service),
        "SoftResourceLimits": {"NumberOfFiles": FILES},
        "StandardErrorPath": log,
    }
    text = plistlib.dumps(document).decode()
    declaration, _, rest = text.partition("\n")
    return f"{declaration}\n<!-- {MARK}; `turnlane service uninstall` removes it. -->\n{rest}"


def _service(service: Service) -> str:
    environment = [
        f"Environment={_quoted(f'{name}={text}')}" for name, text in service.variables.items()
    ]
    command = " ".join(_quoted(word).replace("$", "$$") for word in service.command)
    return _lines(
        f"# {MARK}; `turnlane service uninstall` removes it.",
        "[Unit]",
        "Description=turnlane, a proxy between coding agents and model services",
        f"Requires={SOCKET}",
        f"After={SOCKET}",
        "StartLimitIntervalSec=60",
        "StartLimitBurst=10",
        "",
        "[Service]",
        "Type=notify",
        f"ExecStart={command}",
        f"SyslogIdentifier={LABEL}",
        *environment,
        f"EnvironmentFile=-{_escaped(service.environment_file)}",
        "Restart=on-failure",
        "RestartSec=1",
        "RestartPreventExitStatus=2",
        f"TimeoutStopSec={_stop_seconds(service)}",
        f"LimitNOFILE={FILES}",
        "NoNewPrivileges=yes",
        "UMask=0077",
        "",
        "[Install]",
        f"Also={SOCKET}",
        "WantedBy=default.target",
    )


def _socket(service: Service) -> str:
    host = f"[{service.host}]" if ":" in service.host else service.host
    return _lines(
        f"# {MARK}; `turnlane service uninstall` removes it.",
        "[Unit]",
        "Description=Where turnlane listens",
        "",
        "[Socket]",
        f"ListenStream={host}:{service.port}",
        "Backlog=1024",
        "",
        "[Install]",
        "WantedBy=sockets.target",
    )


def _stop_seconds(service: Service) -> int:
    return int(service.drain_seconds) + AFTER_DRAIN_SECONDS


def _quoted(text: str) -> str:
    """Return `text` as one word of a unit file (systemd.syntax(7))."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{_escaped(escaped)}"'


def _escaped(text: str) -> str:
    return text.replace("%", "%%")


def _lines(*lines: str) -> str:
    return "\n".join(lines) + "\n"
