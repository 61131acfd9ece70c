"""auth.json, pure: read a ChatGPT login in the form that Codex gives it, and rewrite its tokens.

Everything that is not a token keeps its bytes and its place.
"""

import base64
import binascii
import hashlib
import math
import re
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, Final

import msgspec

from proxy.responses.rawjson import UNREADABLE, Fields, members, text

CLAIMS: Final = "https://api.openai.com/auth"
"""The claim of an OpenAI token that holds account, user and plan."""
KNOWN_CODES: Final = frozenset(
    {
        "refresh_token_expired",
        "refresh_token_reused",
        "refresh_token_invalidated",
        "invalid_grant",
    }
)
"""The auth server's codes for a refresh token that will never work again. `invalid_grant`
is the standard one (RFC 6749 section 5.2); the others are OpenAI's own."""
_IN_A_HEADER: Final = re.compile(r"[!-~]+")
_any_claims: Final = msgspec.json.Decoder(dict[str, Any])


class NoLogin(StrEnum):
    """Why a file holds no usable login."""

    BROKEN = "its auth.json cannot be read as one"
    NO_TOKENS = "its auth.json holds no tokens"
    API_KEY = "its auth.json holds an API key, and no tokens"
    GONE = "its auth.json is gone"


@dataclass(frozen=True, slots=True, kw_only=True)
class Login:
    """The tokens of one file. Only `identity` and `plan` may be shown."""

    access_token: str = field(repr=False)
    refresh_token: str | None = field(repr=False)
    account_id: str = field(repr=False)
    plan: str | None = None
    identity: str
    """A digest of the account and the user: a refresh keeps it, another login changes it."""
    expires: float | None = None
    """Seconds since the epoch; None when the access token does not say."""

    def expires_by(self, wall: float) -> bool:
        return self.expires is not None and self.expires <= wall


@dataclass(frozen=True, slots=True, kw_only=True)
class Renewal:
    """The tokens that an auth server sent; any of the three may be absent."""

    access_token: str | None = field(default=None, repr=False)
    refresh_token: str | None = field(default=None, repr=False)
    id_token: str | None = field(default=None, repr=False)

    def over(self, older: "Renewal") -> "Renewal":
        """Return the tokens that are valid after `older` and then this have been received."""
        return Renewal(
            access_token=self.access_token or older.access_token,
            refresh_token=self.refresh_token or older.refresh_token,
            id_token=self.id_token or older.id_token,
        )


def read_login(data: bytes) -> Login | NoLogin:
    """Return the login in an auth.json, or why there is none."""
    try:
        document = members(data)
        raw = document.get("tokens")
        tokens = members(raw) if raw is not None and bytes(raw) != b"null" else None
    except UNREADABLE:
        return NoLogin.BROKEN
    if tokens is None:
        return NoLogin.API_KEY if text(document, "OPENAI_API_KEY") else NoLogin.NO_TOKENS
    return _login(tokens)


def _login(tokens: Fields) -> Login | NoLogin:
    access_token = text(tokens, "access_token") or ""
    if not access_token:
        return NoLogin.NO_TOKENS
    id_claims = _openai_claims(text(tokens, "id_token") or "")
    account_id = text(tokens, "account_id") or id_claims.get("chatgpt_account_id")
    if not (isinstance(account_id, str) and can_travel(account_id) and can_travel(access_token)):
        return NoLogin.BROKEN
    return Login(
        access_token=access_token,
        refresh_token=text(tokens, "refresh_token") or None,
        account_id=account_id,
        plan=plan_of(text(tokens, "id_token") or ""),
        identity=digest(account_id, str(id_claims.get("chatgpt_user_id") or "")),
        expires=jwt_expiry(access_token),
    )


def rewritten(data: bytes, renewal: Renewal, wall: float) -> bytes:
    """Return the file with new tokens in it. Raises one of UNREADABLE."""
    document = members(data)
    tokens = members(document["tokens"]) if "tokens" in document else {}
    for name in ("id_token", "access_token", "refresh_token"):
        if (token := getattr(renewal, name)) is not None:
            tokens[name] = _raw(token)
    document["tokens"] = _raw(tokens)
    document["last_refresh"] = _raw(rfc3339(wall))
    return msgspec.json.format(msgspec.json.encode(document), indent=2)


def read_renewal(body: bytes) -> Renewal | None:
    """Return the tokens in a token endpoint's answer; None if it has none."""
    try:
        answer = members(body)
    except UNREADABLE:
        return None
    renewal = Renewal(
        access_token=_token(answer, "access_token"),
        refresh_token=_token(answer, "refresh_token"),
        id_token=_token(answer, "id_token"),
    )
    return None if renewal == Renewal() else renewal


def refusal_code(body: bytes) -> str | None:
    """Return the code of a token endpoint's refusal, if it is one of KNOWN_CODES."""
    try:
        answer = members(body)
        code = text(answer, "error") or text(answer, "code")
        if code is None and "error" in answer:
            code = text(members(answer["error"]), "code")
    except UNREADABLE:
        return None
    return code.lower() if code is not None and code.lower() in KNOWN_CODES else None


def jwt_expiry(token: str) -> float | None:
    """Return the `exp` claim (RFC 7519 §4.1.4), unverified; None if the token has none."""
    expires = _claims(token).get("exp")
    if isinstance(expires, int | float) and not isinstance(expires, bool):
        return float(expires) if abs(expires) < 1e12 and math.isfinite(expires) else None
    return None


def plan_of(id_token: str) -> str | None:
    """Return the plan that a ChatGPT login names, unverified."""
    plan = _openai_claims(id_token).get("chatgpt_plan_type")
    return plan if isinstance(plan, str) and can_travel(plan) and len(plan) <= 64 else None


def can_travel(text: str) -> bool:
    """Whether a text fits into a header: visible ASCII without spaces."""
    return _IN_A_HEADER.fullmatch(text) is not None


def digest(*parts: str) -> str:
    """Return a digest of 128 bits, in hex, over the parts and their lengths."""
    whole = hashlib.sha256()
    for part in parts:
        encoded = part.encode("utf-8", "surrogatepass")
        whole.update(len(encoded).to_bytes(8, "big") + encoded)
    return whole.hexdigest()[:32]


def rfc3339(wall: float) -> str:
    return datetime.fromtimestamp(wall, UTC).isoformat(timespec="microseconds")[:-6] + "Z"


def _openai_claims(token: str) -> dict[str, Any]:
    claims = _claims(token).get(CLAIMS)
    return claims if isinstance(claims, dict) else {}


def _claims(token: str) -> dict[str, Any]:
    parts = token.split(".")
    if len(parts) != 3:
        return {}
    try:
        padded = parts[1] + "=" * (-len(parts[1]) % 4)
        return _any_claims.decode(base64.b64decode(padded, altchars=b"-_", validate=True))
    except (binascii.Error, ValueError, *UNREADABLE):
        return {}


def _token(answer: Fields, name: str) -> str | None:
    token = text(answer, name)
    return token if token and can_travel(token) else None


def _raw(value: object) -> msgspec.Raw:
    return msgspec.Raw(msgspec.json.encode(value))
