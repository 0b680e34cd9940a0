"""Session keys: which conversation a message belongs to. `derive_key` is the only place that knows the rules.

The text form is `agent:<profile>:<platform>:<kind>:<chat>` followed by named parts, each id percent-encoded:

    agent:main:telegram:dm:123                          one direct chat
    agent:main:telegram:group:-100:thread:42            a topic, shared by its participants
    agent:main:telegram:group:-100:user:7               one participant of a group
    agent:main:telegram:dm::user:7                      a direct message without a chat id
    agent:main::dm::person:p1                           one person, on every platform
    agent:main::dm                                      the owner, on every platform
"""

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum, StrEnum
from functools import cached_property, lru_cache
from typing import Generic, NamedTuple, TypeVar

from palaver.model.errors import MalformedKey
from palaver.model.source import DM, MAIN, THREAD, Source, decode_id, encode_id
from palaver.model.value import value

T = TypeVar("T")


class ChatSelector(NamedTuple):
    """A chat with its own setting. Without `scope_id` it matches that chat id on every server."""

    platform: str
    chat_id: str
    scope_id: str | None = None

    def __str__(self) -> str:
        return f"{self.platform}:{self.chat_id}" + (f" on {self.scope_id}" if self.scope_id else "")


class ResolvedSetting(NamedTuple, Generic[T]):
    value: T
    layer: str
    """Where it was set: `chat telegram:-100`, `platform telegram`, `default`."""


@dataclass(frozen=True, kw_only=True)
class ScopedSetting(Generic[T]):
    default: T
    chats: Mapping[ChatSelector, T] = field(default_factory=dict[ChatSelector, T])
    platforms: Mapping[str, T] = field(default_factory=dict[str, T])
    kinds: Mapping[str, T] = field(default_factory=dict[str, T])
    profiles: Mapping[str, T] = field(default_factory=dict[str, T])

    def values(self) -> Iterator[T]:
        """Yield every value set in any scope."""
        yield self.default
        for layer in (self.chats, self.platforms, self.kinds, self.profiles):
            yield from layer.values()

    def find(self, source: Source) -> ResolvedSetting[T]:
        """Return the narrowest value for a source. A chat's value also holds in its threads without their own."""
        return self._only_default or self._find_narrowest(source)

    @cached_property
    def _only_default(self) -> ResolvedSetting[T] | None:
        is_set = self.chats or self.platforms or self.kinds or self.profiles
        return None if is_set else ResolvedSetting(self.default, "default")

    def _find_narrowest(self, source: Source) -> ResolvedSetting[T]:
        for chat in _selectors(source) if self.chats else ():
            if chat in self.chats:
                return ResolvedSetting(self.chats[chat], f"chat {chat}")
        if source.platform in self.platforms:
            return ResolvedSetting(self.platforms[source.platform], f"platform {source.platform}")
        if source.chat_kind in self.kinds:
            return ResolvedSetting(self.kinds[source.chat_kind], f"kind {source.chat_kind}")
        if source.profile in self.profiles:
            return ResolvedSetting(self.profiles[source.profile], f"profile {source.profile}")
        return ResolvedSetting(self.default, "default")


def _selectors(source: Source) -> Iterator[ChatSelector]:
    """Yield the selectors that match a source, narrowest first."""
    for chat_id in (source.chat, source.parent_chat_id):
        if chat_id is not None:
            yield ChatSelector(source.platform, chat_id, source.scope_id)
            yield ChatSelector(source.platform, chat_id)


class DmScope(StrEnum):
    PER_CHAT = "per-chat"
    PER_PERSON = "per-person"
    SHARED = "shared"


class GroupScope(StrEnum):
    PER_USER = "per-user"
    SHARED = "shared"


class ThreadScope(StrEnum):
    SHARED = "shared"
    PER_USER = "per-user"


@value
class Scope:
    dm: DmScope = DmScope.PER_CHAT
    group: GroupScope = GroupScope.PER_USER
    thread: ThreadScope = ThreadScope.SHARED


@value
class ProfileRule:
    """Route a source that matches every given field to a profile. A rule for a chat also matches its threads."""

    profile: str
    platform: str | None = None
    account: str | None = None
    scope_id: str | None = None
    chat_id: str | None = None
    thread_id: str | None = None

    def matches(self, source: Source) -> bool:
        return (
            self.platform in {None, source.platform}
            and self.account in {None, source.account}
            and self.scope_id in {None, source.scope_id}
            and self.chat_id in {None, source.chat, source.parent_chat_id}
            and self.thread_id in {None, source.thread_id}
        )

    def specificity(self, source: Source) -> tuple[bool, bool, bool, bool, bool, bool]:
        """Return a sort key that puts the narrower rule last: thread, then chat, server, account, platform."""
        return (
            self.thread_id is not None,
            self.chat_id is not None and self.chat_id == source.chat,
            self.chat_id is not None,
            self.scope_id is not None,
            self.account is not None,
            self.platform is not None,
        )


def choose_profile(source: Source, rules: tuple[ProfileRule, ...]) -> str:
    """Return the profile of the most specific matching rule, unless the source already asked for a profile."""
    matching = [rule for rule in rules if rule.matches(source)]
    if not matching or source.profile != MAIN:
        return source.profile
    return max(matching, key=lambda rule: rule.specificity(source)).profile


class SessionKey(NamedTuple):
    """Which conversation. Two keys are equal exactly if the conversation is the same; an empty part means none."""

    profile: str
    platform: str = ""
    kind: str = DM
    chat: str = ""
    scope: str = ""
    thread: str = ""
    user: str = ""
    person: str = ""
    account: str = ""

    @property
    def shared(self) -> bool:
        """Whether several people can take part: nothing in the key narrows it down to one of them."""
        if self.kind == DM:
            return bool(self.platform) and not self.chat and not self.user
        return not self.user

    @property
    def text(self) -> str:
        return _text(self)

    @staticmethod
    def parse(text: str) -> "SessionKey":
        """Parse the text form. Only the exact output of `text` is accepted, so one key has one text."""
        return _parse(text)


_NAMED = ("scope", "thread", "user", "person", "account")


# Cached: every step of a message formats or parses the key of its conversation.
@lru_cache(4096)
def _text(key: SessionKey) -> str:
    place = ":".join(map(encode_id, (key.profile, key.platform, key.kind, key.chat)))
    named = "".join(f":{name}:{encode_id(value)}" for name in _NAMED if (value := getattr(key, name)))
    return f"agent:{place}{named}" if key.chat or named else f"agent:{place}".removesuffix(":")


@lru_cache(4096)
def _parse(text: str) -> SessionKey:
    head, *place = text.split(":")
    tail = place[4:]
    values = dict(zip(("profile", "platform", "kind", "chat"), map(decode_id, place), strict=False))
    named = dict(zip(tail[::2], map(decode_id, tail[1::2]), strict=False))
    if head == "agent" and values.get("profile") and values.get("kind") and named.keys() <= set(_NAMED):
        key = SessionKey(**values, **named)
        if key.text == text:
            return key
    raise MalformedKey(
        "{found} is not a session key",
        found=text,
        allowed="agent:<profile>:<platform>:<kind>:<chat> and named parts, with ids percent-encoded",
        example="agent:main:telegram:group:-100:user:7",
    )


def key_file_name(key: SessionKey) -> str:
    """Return a file name of lower-case letters, digits, `-`, `_` and `%` that is unique even if case is ignored."""
    name = re.sub(r"[^a-z0-9_-]", lambda found: f"%{ord(found[0]):02x}", key.text)
    if len(name) <= _MAX_FILE_NAME_LENGTH:
        return name
    return f"{name[:100]}-{hashlib.sha256(name.encode()).hexdigest()}"


_MAX_FILE_NAME_LENGTH = 160


class Speaker(NamedTuple):
    """What is known about the person behind a source's user id."""

    person: str | None = None
    is_owner: bool = False


UNKNOWN_SPEAKER = Speaker()


class Sharing(Enum):
    """Who a conversation is shared with; the value is the sentence that explains it."""

    OWNER = "dm scope shared: the owner has one conversation on every platform"
    PERSON = "dm scope per-person: linked identities share one conversation"
    DIRECT = "one conversation per direct chat"
    SENDER = "no chat id: the sender identifies the conversation"
    EVERYBODY = "neither chat id nor sender: one conversation for the whole platform"
    GROUP = "group scope shared: everybody in the chat shares it"
    MEMBER = "group scope per-user: each participant has their own"
    THREAD = "thread scope shared: everybody in the thread shares it"
    THREAD_MEMBER = "thread scope per-user: each participant has their own"
    UNNAMED = "no user id: the chat alone identifies the conversation"


_PER_USER = frozenset({Sharing.SENDER, Sharing.MEMBER, Sharing.THREAD_MEMBER})


def derive_key(source: Source, scope: Scope, speaker: Speaker = UNKNOWN_SPEAKER) -> SessionKey:
    return _key(source, speaker, _sharing(source, scope, speaker))


def _sharing(source: Source, scope: Scope, speaker: Speaker) -> Sharing:
    if source.chat_kind == DM:
        return _direct_sharing(source, scope.dm, speaker)
    if source.thread_id or source.chat_kind == THREAD:
        if scope.thread is ThreadScope.SHARED:
            return Sharing.THREAD
        return Sharing.THREAD_MEMBER if source.participant else Sharing.UNNAMED
    if scope.group is GroupScope.SHARED:
        return Sharing.GROUP
    return Sharing.MEMBER if source.participant else Sharing.UNNAMED


def _direct_sharing(source: Source, scope: DmScope, speaker: Speaker) -> Sharing:
    if scope is DmScope.SHARED and speaker.is_owner:
        return Sharing.OWNER
    if scope is DmScope.PER_PERSON and speaker.person:
        return Sharing.PERSON
    if source.chat_id:
        return Sharing.DIRECT
    return Sharing.SENDER if source.participant else Sharing.EVERYBODY


def _key(source: Source, speaker: Speaker, sharing: Sharing) -> SessionKey:
    if sharing is Sharing.OWNER:
        return SessionKey(source.profile)
    if sharing is Sharing.PERSON:
        return SessionKey(source.profile, person=speaker.person or "")
    return SessionKey(
        source.profile,
        source.platform,
        source.chat_kind,
        source.chat or "",
        source.scope_id or "",
        source.thread_id or "",
        (source.participant or "") if sharing in _PER_USER else "",
        "",
        source.account or "",
    )


class KeyPart(NamedTuple):
    """One part of a key and the rule that put it there."""

    name: str
    value: str
    rule: str


class KeyExplanation(NamedTuple):
    key: SessionKey
    sharing: Sharing
    parts: tuple[KeyPart, ...]


_RULES = {
    "profile": "each profile is its own name space",
    "platform": "platforms never share a chat",
    "kind": "the kind of chat, as the platform reports it",
    "chat": "chats never share a conversation",
    "scope": "a chat id is only unique inside its server or workspace",
    "thread": "each thread is its own conversation",
    "account": "each bot account has its own conversations",
}


def explain_key(source: Source, scope: Scope, speaker: Speaker = UNKNOWN_SPEAKER) -> KeyExplanation:
    sharing = _sharing(source, scope, speaker)
    key = _key(source, speaker, sharing)
    parts = (KeyPart(name, value, _RULES.get(name, sharing.value)) for name, value in key._asdict().items() if value)
    return KeyExplanation(key, sharing, tuple(parts))


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
    """Replace people's ids with their canonical ids. A direct chat's id is a person's; a group's is not."""
    if not aliases:
        return source
    people = {"user_id": source.user_id, "user_id_alt": source.user_id_alt}
    if source.chat_kind == DM:
        people["chat_id"] = source.chat_id
    return replace(source, **{name: canonical_id(value, aliases) for name, value in people.items() if value})
