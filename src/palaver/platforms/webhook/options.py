"""The options of a webhook account."""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any, Self
from urllib.parse import urlsplit

from pydantic import Field, SecretStr, field_validator, model_validator

from palaver.model.target import parse_targets
from palaver.platforms.plugins import known_platforms
from palaver.platforms.webhook.signature import Scheme, decode_secret
from palaver.platforms.webhook.template import WHOLE_PAYLOAD, Template, parse_path
from palaver.protocols import EventKind, InvalidInput, Place, event_name
from palaver.protocols.options import AccountOptions

CALLER = "caller"
NOWHERE = "nowhere"
PER_DELIVERY = "per-delivery"
_MAX_WAIT_SECONDS = 300.0
_WAIT_SECONDS = {Scheme.STANDARD: 12.0, Scheme.GITHUB: 8.0, Scheme.STRIPE: 8.0, Scheme.TOKEN: 25.0}
"""GitHub gives up after 10 seconds and Svix after 15, and count that as a failure. Stripe names no limit."""


class Missing(StrEnum):
    """What to do about a field that a payload does not have."""

    EMPTY = "empty"
    ERROR = "error"


_INCOMING_OPTIONS = ("text", "missing", "fences", "longest", "session", "id", "name", "deliver", "wait")
_EVENTS = {event_name(kind): kind for kind in EventKind}


class WebhookOptions(AccountOptions):
    # In
    secret: SecretStr | None = Field(default=None, description="Signs requests, in and out.")
    called: bool | None = Field(
        default=None, description="Whether programs call this account; default: yes without a url."
    )
    scheme: Scheme = Field(default=Scheme.STANDARD, description="How callers sign their requests.")
    text: str = Field(
        default=f"{{{{ {WHOLE_PAYLOAD} }}}}", min_length=1, description="Template of the message for the agent."
    )
    missing: Missing = Field(default=Missing.EMPTY, description="What to do about a missing field.")
    fences: bool = Field(default=True, description="Whether to mark values as data, not instructions.")
    longest: int = Field(default=4000, ge=1, le=100_000, description="Cut values to this many characters.")
    session: str = Field(
        default=PER_DELIVERY, description="Field that names the conversation; default: a new one per request."
    )
    id: str | None = Field(default=None, description="Field that identifies a delivery.")
    name: str | None = Field(default=None, description="Field with the sender's display name.")
    deliver: str = Field(default=CALLER, description="Where answers go: caller, nowhere, or targets.")
    wait: float | None = Field(
        default=None,
        ge=0,
        le=_MAX_WAIT_SECONDS,
        examples=[25],
        description="Seconds that a caller waits for the answer; default: less than callers of this scheme wait.",
    )

    # Out
    url: SecretStr | None = Field(default=None, description="URL to post to.")
    events: tuple[EventKind, ...] = Field(default=(), description="Events to post.")
    content: bool = Field(default=False, description="Whether to include the text of messages.")

    @field_validator("text")
    @classmethod
    def _check_template(cls, text: str) -> str:
        Template.parse(text)
        return text

    @field_validator("session", "id", "name")
    @classmethod
    def _check_path(cls, text: str | None) -> str | None:
        if text is not None and text != PER_DELIVERY:
            parse_path(text)
        return text

    @field_validator("deliver")
    @classmethod
    def _check_targets(cls, text: str) -> str:
        _places(text)
        return text

    @field_validator("events", mode="before")
    @classmethod
    def _parse_events(cls, names: Any) -> tuple[EventKind, ...]:  # noqa: ANN401 - any YAML value
        items = [name.strip() for name in names.split(",")] if isinstance(names, str) else names
        try:
            return tuple(_EVENTS[name] for name in items)
        except (KeyError, TypeError):
            raise ValueError(f"a list of events from: {', '.join(_EVENTS)}") from None

    @field_validator("url")
    @classmethod
    def _check_url(cls, url: SecretStr | None) -> SecretStr | None:
        if url is not None:
            parts = urlsplit(url.get_secret_value())
            if parts.scheme not in {"http", "https"} or not parts.hostname:
                raise ValueError("a URL with https:// and a host: https://example.org/hook")
        return url

    @model_validator(mode="after")
    def _check_combination(self) -> Self:
        if self.secret is not None:
            decode_secret(self.scheme, self.secret.get_secret_value())
        if (self.secret if self.is_called else self.url) is None:
            raise ValueError("a secret for callers, a url to post to, or both")
        if self.events and self.url is None:
            raise ValueError("a url to post events to: https://example.org/hook")
        if not self.is_called and (unused := [name for name in _INCOMING_OPTIONS if name in self.model_fields_set]):
            raise ValueError(f"{', '.join(unused)} only with called: yes, if a program also calls this account")
        return self

    @property
    def is_called(self) -> bool:
        """Whether programs call this account: by default if there is no url."""
        return self.url is None if self.called is None else self.called

    @property
    def wait_seconds(self) -> float:
        return _WAIT_SECONDS[self.scheme] if self.wait is None else self.wait

    @property
    def takes_messages(self) -> bool:
        return self.url is not None

    @property
    def answers_go_to(self) -> Mapping[str, Sequence[Place]]:
        """The targets besides the caller, by option."""
        return {"deliver": _places(self.deliver)}


def _places(text: str) -> tuple[Place, ...]:
    if text in {CALLER, NOWHERE}:
        return ()
    try:
        targets = parse_targets(text, known_platforms())
    except InvalidInput as error:
        raise ValueError(str(error)) from error
    if not all(isinstance(target, Place) for target in targets):
        raise ValueError(f"{CALLER}, {NOWHERE}, or chats such as telegram:12345")
    return tuple(target for target in targets if isinstance(target, Place))
