"""Sessions, and the principals on whose behalf they are read."""

from datetime import datetime
from urllib.parse import urlsplit

from palaver.model.errors import BadArgument
from palaver.model.key import SessionKey
from palaver.model.source import Source, identity_of
from palaver.model.turn import EndReason, SessionState
from palaver.model.value import value


def owner_of(key: SessionKey, source: Source) -> str:
    """Return the owner, whose titles are unique: the person of a private conversation, the key of a shared one."""
    return key.text if key.shared else identity_of(source) or key.text


@value
class Principal:
    """On whose behalf something is read: it sees the conversations that one of its identities took part in."""

    identities: frozenset[str] = frozenset()
    profile: str | None = None
    """Limits it to the conversations of one profile."""
    speaks_as: str | None = None
    """The identity of the person who speaks."""
    within: SessionKey | None = None
    """Limits it to the sessions of one conversation."""
    among: str | None = None
    """A session whose people all read the result: limits it to what each of them took part in as well."""
    sees_all: bool = False

    @property
    def name(self) -> str:
        """The name in the record of operations."""
        return "operator" if self.sees_all else self.speaks_as or min(self.identities, default="nobody")

    @classmethod
    def operator(cls) -> "Principal":
        return cls(sees_all=True)

    @classmethod
    def speaking(cls, source: Source) -> "Principal":
        """Return the speaker as one identity; the store adds the identities linked with it."""
        identity = identity_of(source)
        return cls(identities=frozenset({identity} if identity else ()), profile=source.profile, speaks_as=identity)


@value
class ModelOverride:
    """The model chosen for a conversation. It cannot hold a credential."""

    model: str
    provider: str | None = None
    base_url: str | None = None

    def __post_init__(self) -> None:
        parts = urlsplit(self.base_url or "")
        if "@" in parts.netloc or parts.query or parts.fragment:
            raise BadArgument(
                "Leave credentials and query out of the base URL:",
                found=f"{parts.scheme}://…{parts.hostname or ''}{parts.path}",
                allowed="scheme, host, port and path",
                example="https://models.example.org/v1",
            )


@value
class Counters:
    entries: int = 0
    turns: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost_micros: int = 0
    """Millionths of the price table's currency."""


@value
class Session:
    number: int
    """The store's short id."""
    id: str
    key: SessionKey
    owner: str
    origin: Source
    started: datetime
    last_active: datetime
    last_human: datetime
    title: str | None = None
    parent: str | None = None
    ended: datetime | None = None
    end_reason: EndReason | None = None
    counters: Counters = Counters()
    override: ModelOverride | None = None

    @property
    def state(self) -> SessionState:
        return SessionState.OPEN if self.ended is None else SessionState.ENDED
