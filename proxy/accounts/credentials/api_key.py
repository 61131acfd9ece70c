"""An API key as a credential."""

from dataclasses import dataclass, field

from proxy.accounts.credentials.auth_json import can_travel, digest
from proxy.headers import HeaderList


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiKey:
    """An API key. Raises ValueError for one that does not fit into a header."""

    secret: str = field(repr=False)
    organization: str | None = None
    project: str | None = None

    def __post_init__(self) -> None:
        for text in (self.secret, self.organization, self.project):
            if text is not None and not can_travel(text):
                raise ValueError("an API key, an organization and a project must be visible ASCII")

    @property
    def fingerprint(self) -> str:
        return digest(self.secret)

    def headers(self) -> HeaderList:
        made = [bearer(self.secret)]
        if self.organization is not None:
            made.append((b"openai-organization", self.organization.encode()))
        if self.project is not None:
            made.append((b"openai-project", self.project.encode()))
        return made


def bearer(secret: str) -> tuple[bytes, bytes]:
    return b"authorization", b"Bearer " + secret.encode()
