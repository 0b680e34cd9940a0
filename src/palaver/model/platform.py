"""Platforms as data: what the core may know about a chat platform, declared by the platform itself."""

import re
from collections.abc import Set as AbstractSet

from palaver.model.errors import UnknownPlatform
from palaver.model.value import value

__all__ = [
    "RESERVED_NAMES",
    "Platform",
    "PlatformNote",
]

# Words that already mean something as a delivery target.
RESERVED_NAMES = frozenset({"all", "local", "origin"})
_NAME = re.compile(r"[a-z][a-z0-9_]{0,31}")


@value
class PlatformNote:
    """A sentence for the agent about a platform; it promises a tool only to an agent that has the tool."""

    text: str
    needs: frozenset[str] = frozenset()
    otherwise: str = ""

    def for_tools(self, tools: AbstractSet[str]) -> str:
        return self.text if self.needs <= tools else self.otherwise


@value
class Platform:
    name: str
    title: str
    place: str | None = None
    """How to call the only place there is, where a platform has just one (`CLI terminal`)."""
    hides_ids: bool = False
    """The agent needs no raw ids here, so redaction may replace them."""
    mentions_by_id: bool = False
    """Whoever mentions a person writes their id, so the agent is told it with every name."""
    has_mentions: bool = False
    """People can mention an account, so in a group one that is not mentioned keeps silent."""
    has_threads: bool = False
    extra_kinds: tuple[str, ...] = ()
    """Kinds of chat it has besides the usual ones."""
    for_people: bool = True
    """False where no human reads notices: an API, a webhook."""
    accounts_are_chats: bool = False
    """Each account of ours there is a place to send to, and its name the id of the place."""
    chat_id_pattern: str = r"[^:]+"
    """What one chat id looks like in a target: percent-encoded, or as it is where that contains colons.

    The part before the first colon of an id written as it is starts with `!`, `#` or `@`, or is a small letter, or one
    or two digits: a chat id that looks so is written differently where a thread follows, lest it take the thread along.
    """
    example_chat: str = "123"
    """A chat id as somebody may write it in a target."""
    notes: tuple[PlatformNote, ...] = ()

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name) or self.name in RESERVED_NAMES:
            raise UnknownPlatform(
                "A platform cannot be named",
                found=self.name,
                allowed=f"lower-case letters, digits and _, except {', '.join(sorted(RESERVED_NAMES))}",
                example="telegram",
            )

    def note_for(self, tools: AbstractSet[str]) -> str:
        return " ".join(text for note in self.notes if (text := note.for_tools(tools)))
