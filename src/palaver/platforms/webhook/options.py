"""The options of a webhook account, and the template of its messages."""

import json
import re
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any, Final, Self
from urllib.parse import urlsplit

from pydantic import Field, SecretStr, field_validator, model_validator

from palaver.model.label import LABEL_LIMIT
from palaver.model.target import parse_targets
from palaver.platforms.plugins import known_platforms
from palaver.platforms.webhook.signature import Scheme, decode_secret
from palaver.protocols import EventKind, InvalidInput, Label, Place, event_name, one_line, value
from palaver.protocols.options import AccountOptions

Path = tuple[str, ...]
WHOLE_PAYLOAD: Final = "."
HEADERS: Final = "@headers"
"""The first step of a path that leads to a header of the request: `@headers.x-github-event`."""
MISSING: Final = object()
_NAME = r"[A-Za-z0-9_@$-]+"
_PATH = re.compile(rf"{_NAME}(?:\.{_NAME})*|\.")
_FIELD = re.compile(r"\{\{\s*(.*?)\s*\}\}", re.DOTALL)
_CUT_MARK = " …[cut]"
_MAX_INDEX_DIGITS = 6


class FieldMissing(Exception):
    """The payload has no value at this path."""


def parse_path(text: str) -> Path:
    """Parse `build.steps.0.name`. Raises ValueError."""
    if not _PATH.fullmatch(text):
        raise ValueError(f"names and numbers with dots, like build.status, instead of {text[:80]!r}")
    return () if text == WHOLE_PAYLOAD else tuple(text.split("."))


def look_up(payload: object, path: Path, headers: Mapping[str, str]) -> object:
    """Return the value at the path; MISSING if there is none or it is null."""
    if path[:1] == (HEADERS,):
        return headers.get(".".join(path[1:]).lower(), MISSING)
    found: Any = payload
    for step in path:
        if isinstance(found, dict):
            found = found.get(step, MISSING)  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
        elif isinstance(found, list) and step.isascii() and step.isdecimal() and len(step) <= _MAX_INDEX_DIGITS:
            found = next(iter(found[int(step) :]), MISSING)  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
        else:
            return MISSING
    return MISSING if found is None else found  # pyright: ignore[reportUnknownVariableType]


@value(kw_only=False)
class Template:
    """The operator's text, with field paths in between."""

    parts: Sequence[str | Path]

    @classmethod
    def parse(cls, text: str) -> "Template":
        """Parse `Build {{ build.status }}`. Raises ValueError for unbalanced braces."""
        pieces = _FIELD.split(text)
        if any("{{" in words or "}}" in words for words in pieces[::2]):
            raise ValueError("fields like {{ build.status }}, with two braces on each side")
        return cls(tuple(parse_path(piece) if index % 2 else piece for index, piece in enumerate(pieces)))

    def fill(
        self,
        payload: object,
        *,
        required: bool,
        fences: bool,
        max_length: int,
        headers: Mapping[str, str] | None = None,
    ) -> str:
        """Put the values in. A missing one is empty, or raises FieldMissing if fields are `required`."""

        def text_of(part: str | Path) -> str:
            if isinstance(part, str):
                return part
            found = look_up(payload, part, headers or {})
            if found is MISSING and required:
                raise FieldMissing(".".join(part) or WHOLE_PAYLOAD)
            text = "" if found is MISSING else to_text(found)
            cut = text if len(text) <= max_length else text[:max_length] + _CUT_MARK
            is_data = fences and found is not MISSING and not isinstance(found, (bool, int, float))
            return _fenced(cut) if is_data else cut

        return "".join(map(text_of, self.parts)).strip()


def to_text(value: object) -> str:
    """Return text as it is, and anything else as JSON."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=1)
    return text.encode("utf-8", "replace").decode()


def _fenced(text: str) -> str:
    """Mark untrusted text as data: in quotes that it cannot end, or between fences that it cannot close."""
    if len(text) <= LABEL_LIMIT and one_line(text, LABEL_LIMIT) == text:
        return Label(text).quoted()
    fence = "`" * max(3, 1 + max(map(len, re.findall("`+", text)), default=0))
    return f"\n{fence}data\n{text}\n{fence}\n"


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
