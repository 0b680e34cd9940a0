"""Platforms as data: what a chat platform declares about itself to the core."""

import re
from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import field
from enum import StrEnum

from palaver.model.errors import BadArgument
from palaver.model.source import parse_participant
from palaver.model.value import value

# These words are delivery targets.
RESERVED_NAMES = frozenset({"all", "local", "origin"})
_NAME = re.compile(r"[a-z][a-z0-9_]{0,31}")


class Ability(StrEnum):
    """What people see in a chat, in the order of the table in the documentation."""

    THREADS = "threads"
    EDITS = "edits"
    DRAFTS = "drafts"
    FILES_IN = "files in"
    FILES_OUT = "files out"
    VOICE = "voice"
    BUTTONS = "buttons"
    REACTIONS = "reactions"
    TYPING = "typing"
    MENU = "menu"


@value
class SetupQuestion:
    """One question of `palaver setup`; the answer becomes an option of the account."""

    option: str
    prompt: str
    help: str = ""
    """How to find the answer; printed before the question."""
    default: str = ""
    """`{folder}` stands for the folder of the configuration, `{account}` for the account's name."""
    required: bool = True
    unless: str = ""
    """Skip the question if this other option has a value."""
    only_if: str = ""
    """Ask only if this other option has a value; empty to ask always."""
    generate: Callable[[], str] | None = None
    """Makes the answer if the person gives none: a new secret."""


@value
class SetupGuide:
    questions: Sequence[SetupQuestion]
    before: Sequence[str] = ()
    """What to do on the platform first, step by step, one sentence each."""
    after: Sequence[str] = ()
    """What to do once it works, step by step; `{account}` stands for the account's name."""
    owner_prompt: str = ""
    """Asks people for their own user id on the platform, and says how to find it."""
    owner_pattern: str = ""
    """A regular expression that the whole id matches; empty if any text can be an id."""
    owner_example: str = ""

    def __post_init__(self) -> None:
        if isinstance(self.before, str) or isinstance(self.after, str):
            raise TypeError("before and after of a SetupGuide are lists of steps, not one text")


@value
class PlatformNote:
    """A sentence for the agent about a platform. It mentions a tool only to an agent that has the tool."""

    text: str
    needs: frozenset[str] = frozenset()
    otherwise: str = ""

    def for_tools(self, tools: AbstractSet[str]) -> str:
        return self.text if self.needs <= tools else self.otherwise


@value
class Platform:
    """The declaration of a platform: everything that can be known of it without loading its adapter."""

    name: str
    title: str
    adapter: str = ""
    """Where the adapter is, as `module:Class`; empty if the gateway makes it itself."""
    abilities: frozenset[Ability] = frozenset()
    extras: tuple[str, ...] = ()
    """The extras of its distribution, each of which installs what the adapter imports."""
    needs: str = ""
    """What to install, in Markdown, where that is more than one of the extras."""
    connection: str = ""
    """How messages come and go."""
    page: str = ""
    """The page of the documentation; by default it has the name of the platform."""
    guide: SetupGuide | None = field(default=None, hash=False)
    """The questions of `palaver setup`. Without it, setup asks for the options that have no default."""
    place: str | None = None
    """The name of the only place on a platform that has just one (`CLI terminal`)."""
    hides_ids: bool = False
    """The agent needs no raw ids here, so redaction can replace them."""
    mentions_by_id: bool = False
    """A mention is written with an id, so the agent sees the id with every name."""
    has_mentions: bool = False
    """People can mention an account, so in a group it stays silent unless mentioned."""
    has_servers: bool = False
    """A chat id is only unique within a server (`Source.scope_id`), which a target can name: `irc@libera:#dev`."""
    keeps_slash: bool = False
    """Its clients keep `/` for themselves, so `!help` is `/help` here, and notices say `!help`."""
    keeps_history: bool = True
    """What people say while we are not connected comes later. Where it does not, as on IRC, it is lost."""
    has_message_ids: bool = True
    """Messages have ids. Without them a message that comes twice is answered twice."""
    has_names: bool = True
    """People have display names besides their ids."""
    extra_kinds: tuple[str, ...] = ()
    """Kinds of chat besides the standard ones."""
    for_people: bool = True
    """False if no human reads notices: an API, a webhook."""
    output_only: bool = False
    """It is the target `local`: the gateway writes files there, and nothing ever comes from it."""
    accounts_are_chats: bool = False
    """Each of our accounts is itself a place to send to, with the account's name as chat id."""
    chat_id_pattern: str = r"[^:]+"
    """The form of a chat id in a target: percent-encoded, or verbatim if it contains colons.

    The part of a verbatim id before its first colon starts with `!`, `#` or `@`, or is a lower-case letter or one or
    two digits. `Place.text` escapes a chat id of that form before a thread, so that the thread is not part of the id.
    """
    example_chat: str = "123"
    """A chat id as people write it in a target."""
    notes: tuple[PlatformNote, ...] = ()
    user_rule: Callable[[str], str | None] = str
    """Returns the canonical form of a person's id, as the adapter reports it; None for what cannot be one."""
    chat_rule: Callable[[str], str | None] = str
    """The same for the id of a direct chat, where it is a person's; None for other chats, whose ids stay."""
    example_user: str = "7"
    anybody_writes: bool = False
    """Machines and advertisers write, too: strangers get a pairing code only where the platform's section says so."""
    takes_keys: bool = False
    """Only the people of this gateway write here, so the owner can paste the key of a model provider."""

    @property
    def abilities_in_order(self) -> list[str]:
        return [each.value for each in Ability if each in self.abilities]

    @property
    def has_threads(self) -> bool:
        return Ability.THREADS in self.abilities

    def canonical_user(self, user: str) -> str:
        """Return the one form of a person's id. An alternate id (`alt:ID`) has no other forms."""
        alternate = parse_participant(user)[1] if user else None
        found = user if alternate else self.user_rule(user)
        if not found:
            raise BadArgument(
                f"{{found}} cannot be the id of a person on {self.title}",
                found=user,
                allowed="the id that the platform gives them, which a refused message or `palaver pair list` shows",
                example=f"{self.name}:{self.example_user}",
            )
        return found

    def canonical_chat(self, chat: str) -> str:
        return self.chat_rule(chat) or chat

    def __post_init__(self) -> None:
        is_reserved = self.name in RESERVED_NAMES and not self.output_only
        if not _NAME.fullmatch(self.name) or is_reserved:
            raise BadArgument(
                "A platform cannot be named {found}",
                found=self.name,
                allowed=f"lowercase letters, digits and _, but not {', '.join(sorted(RESERVED_NAMES))}",
                example="telegram",
            )

    def note_for(self, tools: AbstractSet[str]) -> str:
        return " ".join(text for note in self.notes if (text := note.for_tools(tools)))
