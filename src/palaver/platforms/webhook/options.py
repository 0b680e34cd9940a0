"""What can be configured for a webhook account."""

import base64
import secrets
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any, Self
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, SecretStr, field_validator, model_validator

from palaver.model.errors import InvalidInput
from palaver.model.target import Place, parse_targets
from palaver.platforms.plugins import known_platforms
from palaver.platforms.webhook.signature import PREFIX, Scheme, key_of
from palaver.platforms.webhook.template import WHOLE, Template, path_of
from palaver.protocols.adapter import SetupGuide, SetupQuestion
from palaver.protocols.hooks import EventKind

__all__ = [
    "CALLER",
    "GUIDE",
    "NOWHERE",
    "PER_DELIVERY",
    "Missing",
    "WebhookOptions",
    "event_name",
]

CALLER = "caller"
NOWHERE = "nowhere"
PER_DELIVERY = "per-delivery"
_LONGEST_WAIT = 300.0


class Missing(StrEnum):
    """What becomes of a field that a payload does not have."""

    EMPTY = "empty"
    ERROR = "error"


def event_name(kind: EventKind) -> str:
    """What happens, as programs call it: `turn.finished`."""
    return kind.value.replace(" ", ".")


_OF_CALLS = ("text", "missing", "fences", "longest", "session", "id", "name", "deliver", "wait")
_EVENTS = {event_name(kind): kind for kind in EventKind}


class WebhookOptions(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    # In
    secret: SecretStr | None = Field(default=None, description="What calls are signed with, in and out.")
    called: bool | None = Field(default=None, description="Whether programs call it; usual where there is no url.")
    scheme: Scheme = Field(default=Scheme.STANDARD, description="How callers sign.")
    text: str = Field(default=f"{{{{ {WHOLE} }}}}", min_length=1, description="What is said because of a call.")
    missing: Missing = Field(default=Missing.EMPTY, description="What becomes of a field that is not there.")
    fences: bool = Field(default=True, description="Whether values are marked as data that nobody obeys.")
    longest: int = Field(default=4000, ge=1, le=100_000, description="How many characters of a value are said.")
    session: str = Field(default=PER_DELIVERY, description="Which calls share a conversation: a field, or none do.")
    id: str | None = Field(default=None, description="The field by which a call is known again.")
    name: str | None = Field(default=None, description="The field with the name of whoever speaks; a label only.")
    deliver: str = Field(default=CALLER, description="Where answers go: caller, nowhere, or targets.")
    wait: float = Field(default=25.0, ge=0, le=_LONGEST_WAIT, description="For how many seconds a caller waits.")

    # Out
    url: SecretStr | None = Field(default=None, description="Where we post to.")
    events: tuple[EventKind, ...] = Field(default=(), description="What is posted when it happens.")
    content: bool = Field(default=False, description="Whether what was said goes with it.")

    @field_validator("text")
    @classmethod
    def _is_template(cls, text: str) -> str:
        Template.parse(text)
        return text

    @field_validator("session", "id", "name")
    @classmethod
    def _is_path(cls, text: str | None) -> str | None:
        if text is not None and text != PER_DELIVERY:
            path_of(text)
        return text

    @field_validator("deliver")
    @classmethod
    def _is_target(cls, text: str) -> str:
        _places(text)
        return text

    @field_validator("events", mode="before")
    @classmethod
    def _are_events(cls, names: Any) -> tuple[EventKind, ...]:  # noqa: ANN401 - whatever was written
        told = [name.strip() for name in names.split(",")] if isinstance(names, str) else names
        try:
            return tuple(_EVENTS[name] for name in told)
        except (KeyError, TypeError):
            raise ValueError(f"events are a list, or with commas, of {', '.join(_EVENTS)}") from None

    @field_validator("url")
    @classmethod
    def _is_address(cls, url: SecretStr | None) -> SecretStr | None:
        if url is not None:
            parts = urlsplit(url.get_secret_value())
            if parts.scheme not in {"http", "https"} or not parts.hostname:
                raise ValueError("an address begins with https:// and names a host: https://example.org/hook")
        return url

    @model_validator(mode="after")
    def _goes_together(self) -> Self:
        if self.secret is not None:
            key_of(self.scheme, self.secret.get_secret_value())
        if (self.secret if self.is_called else self.url) is None:
            raise ValueError("an account has a secret, by which callers are known, or a url, to post to, or both")
        if self.events and self.url is None:
            raise ValueError("events are posted to a url: give one, for example url: https://example.org/hook")
        if not self.is_called and (idle := [name for name in _OF_CALLS if name in self.model_fields_set]):
            raise ValueError(
                f"{', '.join(idle)} would count for nothing: where a program calls us, too, say called: yes"
            )
        return self

    @property
    def is_called(self) -> bool:
        """Who wants to be told of something has not asked for a door."""
        return self.url is None if self.called is None else self.called

    @property
    def takes_messages(self) -> bool:
        return self.url is not None

    @property
    def answers_go_to(self) -> Mapping[str, Sequence[Place]]:
        """Besides the caller."""
        return {"deliver": _places(self.deliver)}


def _places(text: str) -> tuple[Place, ...]:
    if text in {CALLER, NOWHERE}:
        return ()
    try:
        targets = parse_targets(text, known_platforms())
    except InvalidInput as error:
        raise ValueError(str(error)) from error
    if not all(isinstance(target, Place) for target in targets):
        raise ValueError(f"answers go to {CALLER}, to {NOWHERE}, or to chats: telegram:12345")
    return tuple(target for target in targets if isinstance(target, Place))


_BYTES = 32


def _secret() -> str:
    return PREFIX + base64.b64encode(secrets.token_bytes(_BYTES)).decode()


GUIDE = SetupGuide(
    before="A program calls, or is told what happens. A secret shows that calls are from it, or posts from us.",
    questions=[
        SetupQuestion(
            option="url",
            prompt="URL to post events to (hidden while you type; leave empty if the program calls you):",
            required=False,
        ),
        SetupQuestion(
            option="events",
            prompt=f"Events to post, separated by commas ({', '.join(map(event_name, EventKind))}; empty for none):",
            required=False,
            only_if="url",
        ),
        SetupQuestion(
            option="scheme",
            prompt=f"How does it sign? {', '.join(Scheme)}:",
            default=Scheme.STANDARD.value,
            unless="url",
        ),
        SetupQuestion(
            option="secret", prompt="The secret, not shown while you type; nothing, for a new one:", generate=_secret
        ),
        SetupQuestion(
            option="text",
            prompt="What is said because of a call, like: Build {{ build.status }}; nothing, for all that it brings:",
            required=False,
            unless="url",
        ),
    ],
    after=(
        "Give the program the secret. Where it calls, it does so at /in/webhook/{account} of the public name of your "
        "window, and is let in by: palaver grants add webhook:{account}"
    ),
)
