"""Session keys: which conversation a message belongs to, and which profile and settings apply to it.

`derive_key` is the only place that knows the rules. A key's text is `agent:<profile>:<platform>:<kind>:<chat>`
followed by named parts, each id percent-encoded:

    agent:main:telegram:dm:123                          one direct chat
    agent:main:telegram:group:-100:thread:42            a topic, shared by its participants
    agent:main:telegram:group:-100:user:7               one participant of a group
    agent:main:telegram:dm::user:7                      a direct message without a chat id
    agent:main:irc:group:%23dev:user:alt%3Aann          one participant, known by an alternate id
    agent:main::dm::person:p1                           one person, on every platform
    agent:main::dm                                      the owner, on every platform
    agent:main::job:7                                   one scheduled job
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import field, replace
from enum import Enum, StrEnum
from functools import lru_cache
from typing import Any, Generic, NamedTuple, TypeVar

from palaver.model.errors import BadArgument
from palaver.model.source import DM, MAIN, THREAD, Source, decode_id, encode_id
from palaver.model.value import FieldPath, value

T = TypeVar("T")

JOB = "job"
"""The kind of a conversation that only a scheduled job has. No chat is of this kind: such a key has no platform."""
ARCHIVE = "archive"
"""The kind of an imported conversation that is in no chat here, so nobody can write in it."""


_NAMED = ("scope", "thread", "user", "person", "account", "alt_chat")


# Cached: every step of a message formats or parses the key of its conversation.
@lru_cache(4096)
def _text(key: "SessionKey") -> str:
    place = ":".join(map(encode_id, (key.profile, key.platform, key.kind, key.chat)))
    named = "".join(f":{name}:{encode_id(value)}" for name in _NAMED if (value := getattr(key, name)))
    return f"agent:{place}{named}" if key.chat or named else f"agent:{place}".removesuffix(":")


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
    alt_chat: str = ""
    """The alternate id of a chat that has no other."""

    @property
    def shared(self) -> bool:
        """Whether several people can take part: nothing in the key narrows it down to one of them."""
        if self.kind in {DM, JOB}:
            return bool(self.platform) and not self.chat and not self.user
        return not self.user

    text = property(_text)

    @staticmethod
    def parse(text: str) -> "SessionKey":
        """Parse the text form. Only the exact output of `text` is accepted, so one key has one text."""
        return _parse(text)


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
    raise BadArgument(
        "{found} is not a session key",
        found=text,
        allowed="agent:<profile>:<platform>:<kind>:<chat> and named parts, with ids percent-encoded",
        example="agent:main:telegram:group:-100:user:7",
    )


class DmScope(StrEnum):
    PER_CHAT = "per-chat"
    PER_PERSON = "per-person"
    SHARED = "shared"


class GroupScope(StrEnum):
    """Who shares a conversation in a group or a thread."""

    PER_USER = "per-user"
    SHARED = "shared"


@value
class Scope:
    dm: DmScope = DmScope.PER_CHAT
    group: GroupScope = GroupScope.PER_USER
    thread: GroupScope = GroupScope.SHARED


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
    NOT_OWNER = "dm scope shared is for the owner: others have one conversation per direct chat"
    NOT_LINKED = "dm scope per-person, but this account is not linked: one conversation per direct chat"
    SENDER = "no chat id: the sender identifies the conversation"
    EVERYBODY = "neither chat id nor sender: one conversation for the whole platform"
    GROUP = "group scope shared: everybody in the chat shares it"
    MEMBER = "group scope per-user: each participant has their own"
    THREAD = "thread scope shared: everybody in the thread shares it"
    THREAD_MEMBER = "thread scope per-user: each participant has their own"
    UNNAMED = "no user id: the chat alone identifies the conversation"
    JOB = "a scheduled job has a conversation of its own"
    OVERHEARD = "what was said to others belongs to the whole chat"


_DIRECT = {
    DmScope.PER_CHAT: Sharing.DIRECT,
    DmScope.PER_PERSON: Sharing.NOT_LINKED,
    DmScope.SHARED: Sharing.NOT_OWNER,
}
_PER_USER = frozenset({Sharing.SENDER, Sharing.MEMBER, Sharing.THREAD_MEMBER})


def derive_key(source: Source, scope: Scope, speaker: Speaker = UNKNOWN_SPEAKER) -> SessionKey:
    return _key(source, speaker, _sharing(source, scope, speaker))


def _sharing(source: Source, scope: Scope, speaker: Speaker) -> Sharing:
    if source.chat_kind == DM:
        return _direct_sharing(source, scope.dm, speaker)
    in_thread = source.thread_id or source.chat_kind == THREAD
    if (scope.thread if in_thread else scope.group) is GroupScope.SHARED:
        return Sharing.THREAD if in_thread else Sharing.GROUP
    if not source.participant:
        return Sharing.UNNAMED
    return Sharing.THREAD_MEMBER if in_thread else Sharing.MEMBER


def _direct_sharing(source: Source, scope: DmScope, speaker: Speaker) -> Sharing:
    if scope is DmScope.SHARED and speaker.is_owner:
        return Sharing.OWNER
    if scope is DmScope.PER_PERSON and speaker.person:
        return Sharing.PERSON
    if source.chat_id:
        return _DIRECT[scope]
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
        source.chat_id or "",
        source.scope_id or "",
        source.thread_id or "",
        (source.participant or "") if sharing in _PER_USER else "",
        "",
        source.account or "",
        "" if source.chat_id else source.chat or "",
    )


def chat_key(key: SessionKey) -> SessionKey | None:
    """Return the key of the whole chat in which a participant has a conversation; None for every other key."""
    return key._replace(user="") if key.user and key.kind != DM and (key.chat or key.alt_chat) else None


def job_key(profile: str, number: int) -> SessionKey:
    """Return the key of the conversation that a scheduled job has of its own."""
    return SessionKey(profile, kind=JOB, chat=str(number))


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
    "profile": "each profile is its own namespace",
    "platform": "platforms never share a chat",
    "kind": "the kind of chat, as the platform reports it",
    "chat": "chats never share a conversation",
    "scope": "a chat id is only unique within its server or workspace",
    "thread": "each thread is its own conversation",
    "account": "each bot account has its own conversations",
}


def explain_key(source: Source, scope: Scope, speaker: Speaker = UNKNOWN_SPEAKER) -> KeyExplanation:
    sharing = _sharing(source, scope, speaker)
    return _explained(_key(source, speaker, sharing), sharing)


def explain_job_key(profile: str, number: int) -> KeyExplanation:
    return _explained(job_key(profile, number), Sharing.JOB)


def explain_chat_key(chat: SessionKey) -> KeyExplanation:
    return _explained(chat, Sharing.OVERHEARD)


def _explained(key: SessionKey, sharing: Sharing) -> KeyExplanation:
    rules = {"profile": _RULES["profile"]} if sharing is Sharing.JOB else _RULES
    parts = (KeyPart(name, value, rules.get(name, sharing.value)) for name, value in key._asdict().items() if value)
    return KeyExplanation(key, sharing, tuple(parts))


@value
class ProfileRule:
    """Route a source that matches every given field to a profile. A rule for a chat also matches its threads."""

    profile: str
    platform: str | None = None
    account: str | None = None
    scope_id: str | None = None
    chat_id: str | None = None
    thread_id: str | None = None
    origin: FieldPath = field(default=(), compare=False)
    """The field of the configuration that has it."""

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


def choose_profile_rule(source: Source, rules: tuple[ProfileRule, ...]) -> ProfileRule | None:
    """Return the most specific matching rule; None if there is none or the source already asked for a profile."""
    return _most_specific(source, rules) if source.profile == MAIN else None


def overruled_profile_rule(source: Source, rules: tuple[ProfileRule, ...]) -> ProfileRule | None:
    """Return the rule that would apply if the source had not asked for a profile."""
    return None if source.profile == MAIN else _most_specific(source, rules)


def _most_specific(source: Source, rules: tuple[ProfileRule, ...]) -> ProfileRule | None:
    matching = [rule for rule in rules if rule.matches(source)]
    return max(matching, key=lambda rule: rule.specificity(source)) if matching else None


def choose_tenant(source: Source, rules: tuple[ProfileRule, ...]) -> str | None:
    """Return the tenant whose gateway gets the messages of a source; None if this gateway answers them."""
    rule = _most_specific(source, rules)
    return rule and rule.profile


def choose_profile(source: Source, rules: tuple[ProfileRule, ...]) -> str:
    rule = choose_profile_rule(source, rules)
    return rule.profile if rule else source.profile


class ChatSelector(NamedTuple):
    """A chat, or a thread in it, with its own setting. Without `scope_id` it matches that chat id on every server."""

    platform: str
    chat_id: str
    scope_id: str | None = None
    thread_id: str | None = None

    @property
    def section(self) -> FieldPath:
        server = () if self.scope_id is None else ("servers", self.scope_id)
        thread = () if self.thread_id is None else ("threads", self.thread_id)
        return ("platforms", self.platform, *server, "chats", self.chat_id, *thread)


@value
class ScopedSetting(Generic[T]):
    """A setting with a default, and other values for some chats, platforms, kinds of chat or profiles."""

    default: T
    chats: Mapping[ChatSelector, T] = field(default_factory=dict[ChatSelector, T])
    platforms: Mapping[str, T] = field(default_factory=dict[str, T])
    kinds: Mapping[str, T] = field(default_factory=dict[str, T])
    profiles: Mapping[str, T] = field(default_factory=dict[str, T])

    given: Mapping[FieldPath, frozenset[str]] = field(default_factory=dict[FieldPath, frozenset[str]])
    """For a setting with parts: which of them each section sets. The others are those of the next wider section."""

    def values(self) -> Iterator[T]:
        """Yield every value set in any scope."""
        yield self.default
        for layer in (self.chats, self.platforms, self.kinds, self.profiles):
            yield from layer.values()

    def map(self, change: Callable[[T], T]) -> "ScopedSetting[T]":
        """Return the setting with every value changed."""
        return ScopedSetting(
            default=change(self.default),
            chats={chat: change(value) for chat, value in self.chats.items()},
            platforms={name: change(value) for name, value in self.platforms.items()},
            kinds={name: change(value) for name, value in self.kinds.items()},
            profiles={name: change(value) for name, value in self.profiles.items()},
            given=self.given,
        )

    def find(self, source: Source) -> T:
        """Return the narrowest value for a source, each part of it the narrowest that is given."""
        # Most settings have one value, and every message asks for a dozen of them.
        if not (self.chats or self.platforms or self.kinds or self.profiles):
            return self.default
        if not self.given:
            return next(self._levels(source))[1]
        found: Any = self.default
        for section, layer in reversed([*self._levels(source)]):
            parts = self.given.get(section)
            found = layer if parts is None else replace(found, **{part: getattr(layer, part) for part in parts})
        return found

    def matching(self, source: Source) -> list[tuple[FieldPath, T]]:
        """Return every value for a source with its section, the widest first: for a setting whose values add up."""
        return [*self._levels(source)][::-1]

    def locate(self, source: Source, part: str = "") -> tuple[FieldPath, T]:
        """Return the section of the configuration that has the value, or that part of it, and its value.

        The section is empty for the default.
        """
        levels = self._levels(source)
        return next((section, value) for section, value in levels if part in self.given.get(section, {part}))

    def _levels(self, source: Source) -> Iterator[tuple[FieldPath, T]]:
        """Yield the sections that match a source, narrowest first. A chat's also holds in its threads."""
        for chat in _selectors(source) if self.chats else ():
            if chat in self.chats:
                yield chat.section, self.chats[chat]
        if source.platform in self.platforms:
            yield ("platforms", source.platform), self.platforms[source.platform]
        if source.chat_kind in self.kinds:
            yield ("kinds", source.chat_kind), self.kinds[source.chat_kind]
        if source.profile in self.profiles:
            yield ("profiles", source.profile), self.profiles[source.profile]
        yield (), self.default


def _selectors(source: Source) -> Iterator[ChatSelector]:
    """Yield the selectors that match a source, narrowest first."""
    chats = [chat_id for chat_id in (source.chat, source.parent_chat_id) if chat_id is not None]
    for thread_id in (source.thread_id, None) if source.thread_id else (None,):
        for chat_id in chats:
            yield ChatSelector(source.platform, chat_id, source.scope_id, thread_id)
            if source.scope_id is not None:
                yield ChatSelector(source.platform, chat_id, None, thread_id)
