"""A scripted auth server that takes each refresh token once, and the logins that it gives out."""

from __future__ import annotations

import base64
import json
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import trio

from harness.wire.client import HOST
from harness.wire.upstream import Received, start_upstream
from tests.codex.events import Event
from tests.codex.upstream import Reply

TOKEN_SECONDS = 3600.0
ACCOUNT = "00000000-0000-4000-8000-00000000acc1"


def jwt(**claims: Any) -> str:
    parts = ({"alg": "none", "typ": "JWT"}, claims)
    texts = [
        base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in parts
    ]
    return ".".join([*texts, base64.urlsafe_b64encode(b"signature").decode().rstrip("=")])


def identity() -> str:
    auth = {
        "chatgpt_account_id": ACCOUNT,
        "chatgpt_plan_type": "pro",
        "chatgpt_user_id": "user-1",
    }
    return jwt(email="somebody@example.com", **{"https://api.openai.com/auth": auth})


def access(number: int, expires: float) -> str:
    return jwt(
        exp=int(expires),
        number=number,
        **{"https://api.openai.com/auth": {"chatgpt_account_id": ACCOUNT}},
    )


def write_login(path: Path, access_token: str, refresh_token: str) -> None:
    tokens = {
        "id_token": identity(),
        "access_token": access_token,
        "refresh_token": refresh_token,
        "account_id": ACCOUNT,
    }
    document: Event = {
        "auth_mode": "chatgpt",
        "OPENAI_API_KEY": None,
        "tokens": tokens,
        "last_refresh": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }
    path.write_text(json.dumps(document, indent=2))
    path.chmod(0o600)


@dataclass(slots=True, eq=False)
class AuthServer:
    """`answer_seconds` pass between a request and its answer."""

    port: int = 0
    answer_seconds: float = 0.2
    asked: list[dict[str, Any]] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    _good: set[str] = field(default_factory=lambda: {"rt-secret-0"})

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.port}/oauth/token"

    @property
    def brought(self) -> int:
        """How many refreshes succeeded."""
        return len(self.asked) - len(self.refused)

    async def answer(self, received: Received) -> None:
        reply = self._reply(received.json)
        await trio.sleep(self.answer_seconds)
        await received.reply(reply.status, reply.body)

    def _reply(self, asked: dict[str, Any]) -> Reply:
        self.asked.append(asked)
        token = asked["refresh_token"]
        if token not in self._good:
            self.refused.append(token)
            return Reply(status=401, body={"error": {"code": "refresh_token_reused"}})
        self._good.remove(token)
        number = len(self.asked)
        fresh = f"rt-secret-{number}"
        self._good.add(fresh)
        return Reply(
            status=200,
            body={
                "id_token": identity(),
                "access_token": access(number, time.time() + TOKEN_SECONDS),
                "refresh_token": fresh,
            },
        )


async def start_auth_server(nursery: trio.Nursery) -> AuthServer:
    server = AuthServer()
    server.port = (await start_upstream(nursery, server.answer)).port
    return server
