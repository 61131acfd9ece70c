"""API keys as credentials, and the credential that takes the place of one that cannot be read."""

from dataclasses import dataclass, field

from proxy.accounts.credentials.auth_json import can_travel, digest
from proxy.accounts.credentials.refresh import CredentialFailure
from proxy.headers import HeaderList


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiKey:
    """An API key, which cannot be renewed. Raises ValueError for one that does not fit into a
    header."""

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

    @property
    def version(self) -> str:
        return self.fingerprint

    async def headers(self, wall: float) -> HeaderList | CredentialFailure:
        made = [bearer(self.secret)]
        if self.organization is not None:
            made.append((b"openai-organization", self.organization.encode()))
        if self.project is not None:
            made.append((b"openai-project", self.project.encode()))
        return made

    async def renew(self, used: bytes, wall: float) -> HeaderList | CredentialFailure:
        return CredentialFailure(final=True, message="the provider refused its key")


@dataclass(frozen=True, slots=True, kw_only=True)
class NoCredential:
    """Stands in for a credential that cannot be read, so that the other accounts can serve."""

    failure: CredentialFailure
    fingerprint: str = ""
    version: str = ""

    async def headers(self, wall: float) -> HeaderList | CredentialFailure:
        return self.failure

    async def renew(self, used: bytes, wall: float) -> HeaderList | CredentialFailure:
        return self.failure


def bearer(secret: str) -> tuple[bytes, bytes]:
    return b"authorization", b"Bearer " + secret.encode()
