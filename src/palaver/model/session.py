"""Sessions, their titles, and the principals on whose behalf they are read."""

import re
import unicodedata
from collections.abc import Collection, Iterable
from collections.abc import Set as AbstractSet
from datetime import datetime
from enum import Enum, StrEnum
from itertools import count
from urllib.parse import urlsplit

from palaver.model.access import Reach
from palaver.model.errors import BadArgument
from palaver.model.key import ARCHIVE, SessionKey
from palaver.model.providers import parse_model, spell_model
from palaver.model.source import DM, Source, identity_of
from palaver.model.text import cut_line, cut_off, one_line, strip_markdown
from palaver.model.usage import Spent
from palaver.model.value import value


class SessionState(Enum):
    OPEN = "open"
    ENDED = "ended"


class EndReason(StrEnum):
    IDLE = "idle"
    DAILY = "daily"
    RESET = "reset"
    SWITCHED = "switched"
    HANDED_OFF = "handed-off"
    SUSPENDED = "suspended"
    EXPIRED = "expired"
    UNLINKED = "unlinked"
    """The people who shared it are no longer linked: it stays readable for them, and nobody goes on in it."""


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
    placed: tuple[tuple[str, Reach], ...] = ()
    """Where those of its identities have access now that do not have it in every chat they took part in."""
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


_MAX_MODEL_NAME = 100


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


def model_name(override: ModelOverride) -> str:
    """Return the name for people: `provider:model`, or the model alone."""
    return one_line(spell_model(_configured_name(override)), _MAX_MODEL_NAME)


def find_models(name: str, offered: Iterable[ModelOverride]) -> list[ModelOverride]:
    """Return the offered models of that name, with or without the provider, in any spelling."""
    colon = name.replace("/", ":", 1)
    return [model for model in offered if {name, colon} & {model.model, _configured_name(model)} or _is(name, model)]


def _is(name: str, model: ModelOverride) -> bool:
    return spell_model(parse_model(name)) == spell_model(_configured_name(model))


def _configured_name(override: ModelOverride) -> str:
    return ":".join(filter(None, (override.provider, override.model)))


@value
class UsageTotal(Spent):
    turns: int = 0


@value
class Counters(UsageTotal):
    """What a session has used, and how many entries it has."""

    entries: int = 0


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
    instructions: str | None = None
    """What its people want the model to heed in this conversation alone."""
    version_root: int | None = None
    """The first version of the conversation, if this is another one."""

    @property
    def root(self) -> int:
        """Return the number of the first version, which stands for all of them."""
        return self.version_root or self.number

    @property
    def state(self) -> SessionState:
        return SessionState.OPEN if self.ended is None else SessionState.ENDED

    def can_move_with(self, identities: Collection[str]) -> bool:
        """Tell whether a person can take it to another chat: it is theirs, and nobody else writes where it is.

        A group's conversation never moves: on its way back it would take private messages along.
        """
        return self.owner in identities and self.key.kind in {DM, ARCHIVE}

    def name_after(self, first_said: str) -> str:
        """Return the title, or the first words until there is one."""
        return self.title or strip_markdown(first_said) or "New conversation"


def owner_of(key: SessionKey, source: Source) -> str:
    """Return the owner, whose titles are unique: the person of a private conversation, the key of a shared one."""
    return key.text if key.shared else identity_of(source) or key.text


TITLE_LIMIT = 100
_LONGEST_SUFFIX = len(" #999999999999")
_NUMBERED = re.compile(r"(?P<base>.*\S) #(?P<number>[2-9]|[1-9][0-9]{1,11})", re.DOTALL)
_ACCENTS = re.compile("[\u0300-\u036f]")
_QUOTED = re.compile(r"\s*(?:\"(.+)\"|'(.+)'|[“„](.+)[”“]|«(.+)»|<(.+)>|\[(.+)\])\s*", re.DOTALL)


def clean_title(text: str) -> str:
    """Reduce a title to one line without invisible characters, in NFC, cut at the limit."""
    # Taking away what is invisible brings marks to their letters.
    title = one_line(unicodedata.normalize("NFC", one_line(text, len(text) + 1)), TITLE_LIMIT)
    if not title:
        raise BadArgument(
            "A title needs visible characters:", found=text, allowed="1 to 100 characters", example="Holiday"
        )
    return title


def unquoted(text: str) -> str | None:
    """Return what is between the quotation marks or brackets around a text; None without them."""
    found = _QUOTED.fullmatch(text)
    return next(filter(None, found.groups())) if found else None


def lineage(title: str) -> tuple[str, int]:
    """Return base and number: `x` is the first of its lineage, `x #3` the third, `x #draft` the first of its own."""
    numbered = _NUMBERED.fullmatch(title)
    return (numbered["base"], int(numbered["number"])) if numbered else (title, 1)


def lineage_prefix(base: str) -> str:
    """Return how every numbered title of a lineage begins; some of other lineages begin so too."""
    if len(base) + _LONGEST_SUFFIX <= TITLE_LIMIT:
        return f"{base} #"
    return cut_off(base, TITLE_LIMIT - _LONGEST_SUFFIX - 3)


def is_in_lineage(title: str, base: str) -> bool:
    """Return whether a title is the base, or the base with a number."""
    return title == base or title == _numbered(base, lineage(title)[1])


def next_in_lineage(title: str, taken: Iterable[str]) -> str:
    """Return the title if it is free, else the next number of its lineage. A lineage is not begun twice."""
    taken = set(taken)
    base, number = lineage(title)
    if title not in taken and (number > 1 or not _numbers(base, taken)):
        return title
    following = (_numbered(base, number) for number in count(max(_numbers(base, taken), default=1) + 1))
    return next(numbered for numbered in following if numbered not in taken)


def fold_title(title: str) -> str:
    """Return a title without case and accents."""
    return _ACCENTS.sub("", unicodedata.normalize("NFKD", title).casefold())


def alike_title(text: str, titles: Iterable[str]) -> str | None:
    """Return what a person means by a text that no title is: the first alike but for case and accents.

    That is the base, if the text has no number.
    """
    wanted = fold_title(text)
    for title in titles:
        for meant in (title, lineage(title)[0]):
            if fold_title(meant) == wanted:
                return meant
    return None


def newest_of_lineage(title: str, taken: Iterable[str]) -> str | None:
    """Return what a person means by `title`: exactly `x #2`, or for `x` the highest number of its lineage."""
    taken = set(taken)
    base, number = lineage(title)
    numbers = _numbers(base, taken) if number == 1 else []
    newest = _numbered(base, max(numbers)) if numbers else title
    return newest if newest in taken else None


def _numbered(base: str, number: int) -> str:
    """Return the title with a number behind it, cut as far as the number needs."""
    suffix = f" #{number}"
    return cut_line(base, TITLE_LIMIT - len(suffix)) + suffix


def _numbers(base: str, taken: AbstractSet[str]) -> list[int]:
    """Return the numbers in use behind `base`. A cut title that other long titles share belongs to none of them."""
    numbers = {title: lineage(title)[1] for title in taken}
    used = [(title, number) for title, number in numbers.items() if number > 1 and title == _numbered(base, number)]
    firsts = [title for title in taken - {base} if len(title) + _LONGEST_SUFFIX > TITLE_LIMIT and numbers[title] == 1]
    return [number for title, number in used if title not in {_numbered(first, number) for first in firsts}]
