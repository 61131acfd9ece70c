"""A login file, an auth server that says what it is told to, and the service they meet in."""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import trio

from proxy.accounts.credentials.auth_json import CLAIMS
from proxy.accounts.credentials.chatgpt import MARGIN_SECONDS
from proxy.accounts.credentials.refresh import CredentialFailure, Refresher
from proxy.headers import HeaderList

WALL = 1_800_000_000.0
HOUR = 3600.0


def jwt(**claims: Any) -> str:
    parts = ({"alg": "none"}, claims, "signature")
    texts = (part if isinstance(part, str) else json.dumps(part) for part in parts)
    return ".".join(base64.urlsafe_b64encode(x.encode()).rstrip(b"=").decode() for x in texts)


def access(number: int, expires: float = WALL + HOUR) -> str:
    """The access token with this number."""
    return jwt(exp=expires, number=number)


EXPIRED = access(1, WALL - 1)
DUE = access(1, WALL + MARGIN_SECONDS)
"""Good, but to be renewed."""


def identity(user: str = "user-1", plan: str = "pro", account: str = "account-1") -> str:
    claims = {"chatgpt_user_id": user, "chatgpt_plan_type": plan, "chatgpt_account_id": account}
    return jwt(email="somebody@example.com", **{CLAIMS: claims})


def document(access_token: str, refresh_token: str = "r0", **tokens: Any) -> dict[str, Any]:
    return {
        "auth_mode": "chatgpt",
        "OPENAI_API_KEY": None,
        "tokens": {
            "id_token": identity(),
            "access_token": access_token,
            "refresh_token": refresh_token,
            "account_id": "account-1",
            **tokens,
        },
        "last_refresh": "2026-01-01T00:00:00Z",
    }


def write(path: Path, content: Mapping[str, Any] | bytes) -> None:
    path.write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())


def load(path: Path) -> Any:
    return json.loads(path.read_bytes())


def remove(path: Path) -> None:
    path.unlink()


def exists(path: Path) -> bool:
    return path.exists()


def bearer(token: str) -> bytes:
    return f"Bearer {token}".encode()


def tokens(access_token: str, refresh_token: str = "r1", **others: str) -> tuple[int, bytes]:
    """The answer to a refresh that succeeded."""
    answer = {"access_token": access_token, "refresh_token": refresh_token, **others}
    return 200, json.dumps(answer).encode()


def token_of(outcome: HeaderList | CredentialFailure) -> bytes:
    assert not isinstance(outcome, CredentialFailure), outcome
    return dict(outcome)[b"authorization"]


def failure_of(outcome: HeaderList | CredentialFailure) -> CredentialFailure:
    assert isinstance(outcome, CredentialFailure)
    for secret in ("r0", "r1", "eyJ", "somebody", "account-1"):
        assert secret not in outcome.message
    return outcome


REUSED = (401, b'{"error": {"code": "refresh_token_reused", "message": "r0 was seen"}}')


@dataclass
class AuthServer:
    """Answers in turn, the last answer for good; `before` runs while a request is under way."""

    answers: list[tuple[int, bytes] | OSError]
    before: Callable[[], None] = lambda: None
    seconds: float = 0.0
    asked: list[str] = field(default_factory=list)
    urls: list[str] = field(default_factory=list)

    async def __call__(self, url: str, body: Mapping[str, str]) -> tuple[int, bytes]:
        assert {**body, "refresh_token": ""} == {
            "client_id": "app_EMoamEEZ73f0CkXaXp7hrann",
            "grant_type": "refresh_token",
            "refresh_token": "",
        }
        self.asked.append(body["refresh_token"])
        self.urls.append(url)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        await trio.sleep(self.seconds)
        self.before()
        if isinstance(answer, OSError):
            raise answer
        return answer


@asynccontextmanager
async def service(server: AuthServer) -> AsyncIterator[Refresher]:
    refresher = Refresher(server, "https://auth.example/token")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(refresher.serve, nursery)
        yield refresher
        nursery.cancel_scope.cancel()
