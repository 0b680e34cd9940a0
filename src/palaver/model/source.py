"""Sources: who sent a message from where, what the adapter saw about them, and their untrusted display names."""

import hashlib
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import fields, replace
from enum import StrEnum
from functools import lru_cache
from operator import attrgetter
from typing import NamedTuple
from urllib.parse import quote, unquote

from palaver.model.errors import MalformedSource, UnknownPlatform
from palaver.model.label import Label
from palaver.model.text import inert, join_halves
from palaver.model.value import value

MAX_IDS_BYTES = 2048
"""The most bytes that percent-encoded ids can have together, so that every database can index them."""
_MAX_ENCODED_CHARACTER_BYTES = 12
_PLAIN = re.compile(r"[\w.+-]*", re.ASCII)


@lru_cache(1 << 12)
def encode_id(value: str) -> str:
    """Percent-encode an id: the result is ASCII without colon, comma, slash or space. Lone surrogates survive."""
    return value if _PLAIN.fullmatch(value) else quote(value, safe="@+!=$#", errors="surrogatepass")


def decode_id(text: str) -> str:
    """Reverse `encode_id`. Text that is not a valid encoding is returned unchanged."""
    if "%" not in text:
        return text
    try:
        return unquote(text, errors="surrogatepass")
    except UnicodeDecodeError:
        return text


def check_ids(owner: str, *ids: str | None) -> None:
    """Raise MalformedSource if ids that are stored together are too long. The message does not quote them."""
    given = [identity for identity in ids if identity]
    if sum(map(len, given)) * _MAX_ENCODED_CHARACTER_BYTES <= MAX_IDS_BYTES:
        return
    length = sum(len(encode_id(identity)) for identity in given)
    if length > MAX_IDS_BYTES:
        raise MalformedSource(
            f"The ids of a {owner} are too long: {length} bytes.",
            found=f"{length} bytes",
            allowed=f"at most {MAX_IDS_BYTES} bytes together, percent-encoded.",
            example="!room:example.org",
        )


_LONG_ID_BYTES = 256
_KEPT_CHARACTERS = 16


def shorten_id(value: str) -> str:
    """Return the id, or if it is long its beginning and a hash: six such ids can always be stored together."""
    return value if len(encode_id(value)) <= _LONG_ID_BYTES else _hashed(value, value)


def _hashed(value: str, unique: str) -> str:
    return f"{value[:_KEPT_CHARACTERS]}…{hashlib.sha256(unique.encode('utf-8', 'surrogatepass')).hexdigest()}"


_ALTERNATE, _PLAIN_ID = "alt:", "id:"


def participant_text(user_id: str | None, alternate: str | None = None) -> str | None:
    """Return who somebody is: `7` for a user id, `alt:7` for an alternate id, which wins.

    Both are strangers' text, so the two name spaces are distinguished by a prefix that no user id can have: one that
    begins with such a prefix gets `id:` in front.
    """
    if alternate:
        return f"{_ALTERNATE}{alternate}"
    return f"{_PLAIN_ID}{user_id}" if user_id and user_id.startswith((_ALTERNATE, _PLAIN_ID)) else user_id or None


def parse_participant(text: str) -> tuple[str | None, str | None]:
    """Return the user id and the alternate id of a participant's text: one of them."""
    if text.startswith(_ALTERNATE) and text != _ALTERNATE:
        return None, text.removeprefix(_ALTERNATE)
    return text.removeprefix(_PLAIN_ID) or text, None


DM = "dm"
GROUP = "group"
CHANNEL = "channel"
THREAD = "thread"
STANDARD_KINDS = (DM, GROUP, CHANNEL, THREAD)
MAIN = "main"

_MAX_ID_BITS = 128


class AddresseeKind(StrEnum):
    """Which id of a source an answer is addressed to."""

    CHAT = "chat"
    ALT_CHAT = "alt-chat"
    USER = "user"
    ALT_USER = "alt-user"


class Addressee(NamedTuple):
    kind: AddresseeKind
    id: str


@value
class Source:
    """Identity only. Ids are always text, and an empty id means none."""

    platform: str
    chat_kind: str = DM
    account: str | None = None
    chat_id: str | None = None
    chat_id_alt: str | None = None
    thread_id: str | None = None
    parent_chat_id: str | None = None
    scope_id: str | None = None
    user_id: str | None = None
    user_id_alt: str | None = None
    profile: str = MAIN
    message_id: str | None = None

    def __post_init__(self) -> None:
        given = _VALUES(self)
        if "" in given:
            for name in _FIELDS:
                if getattr(self, name) == "":
                    if name in _REQUIRED:
                        empty = f"A source has an empty {name}."
                        raise MalformedSource(empty, found="", allowed="any text", example=MAIN)
                    object.__setattr__(self, name, None)
        if not "".join(filter(None, given)).isascii():
            # JSON reads the two halves of a character as that character: the stored source must be the same.
            for name, text in zip(_FIELDS, given, strict=True):
                if text:
                    object.__setattr__(self, name, join_halves(text))

    @property
    def participant(self) -> str | None:
        """Who sent it, as `participant_text` writes it: the alternate id if there is one, else the user id."""
        return participant_text(self.user_id, self.user_id_alt)

    @property
    def names(self) -> tuple[str, ...]:
        """Return what a grant can call the sender: the user id, and the alternate id in its own name space."""
        found = participant_text(self.user_id), participant_text(None, self.user_id_alt)
        return tuple(filter(None, found))

    @property
    def chat(self) -> str | None:
        """Which chat: its id, else a group's alternative id. A direct chat without an id has none."""
        return self.chat_id or (self.chat_id_alt if self.chat_kind != DM else None)

    @property
    def addressee(self) -> Addressee:
        """The chat an answer goes to. A direct chat without an id is reached through its person."""
        if chat := self.chat:
            return Addressee(AddresseeKind.CHAT if self.chat_id else AddresseeKind.ALT_CHAT, chat)
        if self.user_id_alt:
            return Addressee(AddresseeKind.ALT_USER, self.user_id_alt)
        return Addressee(AddresseeKind.USER if self.user_id else AddresseeKind.CHAT, self.user_id or "")

    @property
    def address(self) -> tuple[str | Addressee | None, ...]:
        """Where an answer goes."""
        return self.platform, self.account, self.scope_id, self.addressee, self.thread_id

    def shortened(self) -> "Source":
        """Return it under shortened ids. It is never taken for a message whose ids can be stored."""
        ids = self.to_json()
        short = {name: shorten_id(text) for name, text in ids.items()}
        if self.message_id and short["message_id"] == self.message_id and short != ids:
            short["message_id"] = _hashed(self.message_id, repr(ids))
        return replace(self, **short)

    def to_json(self) -> dict[str, str]:
        return {name: value for name in _FIELDS if (value := getattr(self, name)) is not None}

    @classmethod
    def from_json(cls, data: Mapping[str, object], known: Collection[str]) -> "Source":
        """Read what we or a peer wrote with `to_json`. Unknown fields, including trust, are ignored."""
        found = {name: _id_text(data, name) for name in _FIELDS}
        found["scope_id"] = found["scope_id"] or _id_text(data, "guild_id")  # its old name
        ids = {name: text for name, text in found.items() if text is not None}
        platform = ids.get("platform", "")
        if platform not in known:
            raise UnknownPlatform(platform, known)
        return cls(**ids)


_FIELDS = tuple(field.name for field in fields(Source))
_VALUES = attrgetter(*_FIELDS)
_REQUIRED = ("platform", "chat_kind", "profile")


def _id_text(data: Mapping[str, object], name: str) -> str | None:
    value = data.get(name)
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, int) and not isinstance(value, bool) and value.bit_length() <= _MAX_ID_BITS:
        return str(value)
    raise MalformedSource(
        f"A source's {name} cannot be of type {{found}}",
        found=type(value).__name__,  # The value itself can be too large to print.
        allowed=f"text, null, or a whole number of at most {_MAX_ID_BITS} bits",
        example=f'"{name}": "42"',
    )


class MessageAddress(NamedTuple):
    """What identifies a message, percent-encoded. One of `chat`, `alt_chat` and `chat_user` names its chat."""

    message_id: str | None
    """None for a message that no redelivery can be recognised of."""
    chat: str = ""
    alt_chat: str = ""
    chat_user: str = ""
    """The participant of a chat that has no id of its own."""
    server: str = ""
    platform: str = ""
    account: str = ""


def message_address(source: Source) -> MessageAddress:
    return MessageAddress(
        message_id=None if source.message_id is None else encode_id(source.message_id),
        chat=encode_id(source.chat_id or ""),
        alt_chat="" if source.chat_id else encode_id(source.chat or ""),
        chat_user="" if source.chat else encode_id(source.participant or ""),
        server=encode_id(source.scope_id or ""),
        platform=encode_id(source.platform),
        account=encode_id(source.account or ""),
    )


@value
class Trust:
    """What the adapter itself saw about a sender. It is never serialised, so no peer can forge it."""

    is_bot: bool = False
    has_role_grant: bool = False
    via_trusted_relay: bool = False
    talk_only: bool = False
    """The message came with a credential that only permits talking, so the sender's role is at most member."""


@value
class Labels:
    """Display names, kept apart from identity: they change, lie and repeat."""

    chat: Label | None = None
    user: Label | None = None
    topic: Label | None = None

    def to_json(self) -> dict[str, str]:
        return {name: label.stored() for name in _LABELS if (label := getattr(self, name)) is not None}

    @classmethod
    def from_json(cls, data: Mapping[str, object]) -> "Labels":
        return cls(**{name: Label(text) for name in _LABELS if isinstance(text := data.get(name), str)})


_LABELS = tuple(field.name for field in fields(Labels))
NO_LABELS = Labels()


def describe_source(source: Source, labels: Labels = NO_LABELS, *, place: str | None = None) -> str:
    """Return a place for people: `CLI terminal`, `DM with alice`, `group: Dev, thread: 42`.

    `place` is that of the platform, if it has one. Names that could be markup are written as code.
    """
    if place:
        return place
    if source.chat_kind == DM:
        described = f"DM with {_shown(labels.user or labels.chat, source.participant or source.chat_id)}"
    else:
        described = f"{inert(Label(source.chat_kind).plain())}: {_shown(labels.chat, source.chat)}"
    thread = _shown(labels.topic, source.thread_id) if source.thread_id else ""
    return f"{described}, thread: {thread}" if thread else described


def _shown(name: Label | None, identity: str | None) -> str:
    return inert((name and name.plain()) or Label(identity or "").plain() or "somebody unknown")


def identity_of(source: Source) -> str | None:
    """Return the account that a message came from, as text: `telegram:7`."""
    participant = source.participant
    return None if participant is None else identity_text(source.platform, participant)


def identity_text(platform: str, participant: str) -> str:
    return f"{platform}:{encode_id(participant)}"


_READABLE = re.compile(r"[\w.+@!#$=:-]+", re.ASCII)


def readable_identity(identity: str) -> str:
    """Return an identity for people: `matrix:@ann:example.org`. Ids that could mislead a reader stay encoded."""
    platform, _, participant = identity.partition(":")
    plain = decode_id(participant)
    return f"{platform}:{plain}" if _READABLE.fullmatch(plain) else identity


def stored_identity(text: str) -> str:
    """Return what somebody typed for an identity in its stored form: the reverse of `readable_identity`."""
    platform, colon, participant = text.strip().partition(":")
    return identity_text(platform.lower(), decode_id(participant)) if colon else platform


def named_identity(identity: str, name: Label | None) -> str:
    """`telegram:7 ("Ann")`. The name is in quotes because people choose it themselves."""
    return f"{readable_identity(identity)} ({inert(name.quoted())})" if name else readable_identity(identity)


def source_of_identity(identity: str) -> Source:
    """Return a source for an account of which only the identity is known."""
    platform, _, participant = identity.partition(":")
    return with_participant(Source(platform=platform), decode_id(participant))


def with_participant(source: Source, participant: str | None) -> Source:
    """Return the source with another sender."""
    user_id, alternate = parse_participant(participant) if participant else (None, None)
    return replace(source, user_id=user_id, user_id_alt=alternate)


def canonical_id(identity: str, aliases: Mapping[str, str]) -> str:
    """Follow aliases to the canonical id. In a cycle of aliases it is the smallest id."""
    *_, last = _alias_path(identity, aliases)
    return min(_alias_path(last, aliases))  # The last id on the path is in the cycle, if only one with itself.


def _alias_path(identity: str, aliases: Mapping[str, str]) -> Iterable[str]:
    """Return the ids on the way, in order and each once. An empty alias does not count."""
    met: dict[str, None] = {}
    while identity not in met:
        met[identity] = None
        identity = aliases.get(identity) or identity
    return met


def canonical_source(source: Source, aliases: Mapping[str, str]) -> Source:
    """Replace people's ids with their canonical ids. A direct chat's id is a person's; a group's is not.

    An alternate id has no other forms: it is stable.
    """
    if not aliases:
        return source
    people = {"user_id": source.user_id}
    if source.chat_kind == DM:
        people["chat_id"] = source.chat_id
    return replace(source, **{name: _canonical_user(value, aliases) for name, value in people.items() if value})


def _canonical_user(user_id: str, aliases: Mapping[str, str]) -> str | None:
    return parse_participant(canonical_id(participant_text(user_id) or "", aliases))[0]


@lru_cache(1024)
def account_text(platform: str, account: str | None) -> str:
    """Return the name of one of our accounts: `telegram:helper_bot`."""
    return f"{platform}:{encode_id(account or '')}"


def account_name(platform: str, account: str | None) -> str:
    """Return it for people: `telegram:helper_bot`; where there can be only one, `terminal`."""
    return account_text(platform, account).removesuffix(":")
