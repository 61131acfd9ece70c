"""AccountSpec: an account as its owner describes it, in config.toml or with `turnlane accounts`."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Literal

from proxy.accounts.view import AccountId

NAME: Final = re.compile(r"[a-z0-9][a-z0-9._-]{0,39}", re.ASCII)
"""Names appear in tables, logs and file names."""

REFRESH_URL: Final = "https://auth.openai.com/oauth/token"
"""Where the tokens of ChatGPT logins are refreshed unless the configuration says otherwise."""

_REFERENCES: Final = ("env:", "file:")

_PATTERN: Final = re.compile(r"[!-~]+", re.ASCII)

AccountKind = Literal["api_key", "chatgpt"]


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountSpec:
    """`[accounts.NAME]`. Raises ValueError unless it has exactly one credential."""

    key: str | None = None
    """`env:NAME` or `file:PATH`: where the API key is. Never the key itself."""
    auth_json: str | None = None
    """The path of an auth.json with a ChatGPT login, shared with the Codex that keeps it there."""
    url: str | None = None
    """The base URL, if it is not that of `[upstream]` or of the provider."""
    models: tuple[str, ...] | None = None
    """Patterns of the models that its plan includes, such as `gpt-5*`; None includes all."""
    organization: str | None = None
    project: str | None = None
    """Sent as `openai-organization` and `openai-project` with an API key."""

    def __post_init__(self) -> None:
        if (self.key is None) == (self.auth_json is None):
            raise ValueError("an account needs either a key or an auth_json")
        if self.key is not None and not self.key.startswith(_REFERENCES):
            raise ValueError("must be env:NAME or file:PATH, never the key itself")
        if self.key is None and (self.organization or self.project):
            raise ValueError("organization and project are valid only with a key")
        if self.models is not None:
            check_patterns(self.models)

    @property
    def kind(self) -> AccountKind:
        return "chatgpt" if self.key is None else "api_key"


def check_patterns(models: Sequence[str]) -> None:
    """Raise ValueError for patterns that no model can match."""
    if not models:
        raise ValueError("an empty list includes no model; leave it out to include all")
    for pattern in models:
        if not _PATTERN.fullmatch(pattern) or pattern.count("[") != pattern.count("]"):
            raise ValueError(f"{pattern!r} is not a valid model pattern, such as 'gpt-5*'")


def with_paths(spec: AccountSpec, change: Callable[[Path], Path]) -> AccountSpec:
    """Return the same account with the path of its file changed."""
    if spec.auth_json is not None:
        return replace(spec, auth_json=str(change(Path(spec.auth_json))))
    kind, _, where = (spec.key or "").partition(":")
    return replace(spec, key=f"file:{change(Path(where))}") if kind == "file" else spec


def account_id(name: str) -> AccountId:
    """Return the id of an account from its name. Raises ValueError unless the name can be part of a
    table and of a path."""
    if not NAME.fullmatch(name):
        raise ValueError(
            f"{name!r} is not a valid account name; use up to 40 lower-case letters, digits, '.', "
            "'_' and '-', starting with a letter or digit"
        )
    return AccountId(name)
