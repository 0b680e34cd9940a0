"""Targets: where output can go. The text form parses back to the same targets."""

import re
from collections.abc import Mapping

from palaver.model.errors import BadArgument
from palaver.model.platform import Platform
from palaver.model.source import MAX_IDS_BYTES, decode_id, encode_id
from palaver.model.value import value


@value(kw_only=False)
class Origin:
    """Back to where the request came from."""

    text = "origin"


@value(kw_only=False)
class Local:
    """A file in the data directory."""

    text = "local"


@value(kw_only=False)
class All:
    """The home channel of every connected platform."""

    text = "all"


@value(kw_only=False)
class Home:
    """The home channel of one platform."""

    platform: str

    @property
    def text(self) -> str:
        return self.platform


@value
class Place:
    platform: str
    server: str | None = None
    chat: str
    thread: str | None = None

    @property
    def text(self) -> str:
        where = f"{self.platform}@{encode_id(self.server)}" if self.server else self.platform
        chat = encode_id(self.chat)
        if not self.thread:
            return f"{where}:{chat}"
        if _HEAD.fullmatch(chat):
            chat = f"%{ord(chat[0]):X}{chat[1:]}"
        return f"{where}:{chat}:{encode_id(self.thread)}"


# What a chat id that is written verbatim, with its colons, looks like before its first colon.
_HEAD = re.compile(r"[!#@][^%]*|[a-z]|[0-9]{1,2}")

Target = Origin | Local | All | Home | Place

_WORDS: Mapping[str, Target] = {word.text: word for word in (Origin(), Local(), All())}
_FORMS = "origin, local, all, <platform> or <platform>[@<server>]:<chat>[:<thread>], or several separated by commas"
_EXAMPLE = "telegram:-100:42,matrix"


def parse_targets(text: str, platforms: Mapping[str, Platform]) -> tuple[Target, ...]:
    """Return the targets named in `text`, in order and without duplicates."""
    words = [word.strip() for word in text.split(",")]
    return tuple(dict.fromkeys(_parse(word, platforms) for word in words))


def _parse(word: str, platforms: Mapping[str, Platform]) -> Target:
    where, colon, place = word.partition(":")
    name, at, server = where.partition("@")
    name = name.strip().lower()
    if not colon and not at and name in _WORDS:
        return _WORDS[name]
    if name not in platforms:
        known = ", ".join(sorted(platforms.keys() - _WORDS.keys()))
        allowed = f"{_FORMS}, where the platform is one of {known}"
        raise BadArgument("Unknown target", found=word, allowed=allowed, example=_EXAMPLE)
    if at:
        _check_server(word, platforms[name], server)
    return _place(word, platforms[name], server, place) if colon or at else Home(name)


def _check_server(word: str, platform: Platform, server: str) -> None:
    name, chat = platform.name, platform.example_chat
    if not platform.has_servers:
        problem = f"{platform.title} has no servers, so {{found}} names no chat"
        raise BadArgument(problem, found=word, allowed=f"{name}:<chat>", example=f"{name}:{chat}")
    if not server.strip():
        problem = "{found} names no server"
        raise BadArgument(problem, found=word, allowed=f"{name}@<server>:<chat>", example=f"{name}@example:{chat}")


def _place(word: str, platform: Platform, server: str, text: str) -> Place:
    name = platform.name
    if platform.place:
        problem = f"{platform.title} has only one place, so {{found}} names no chat"
        raise BadArgument(problem, found=word, allowed=name, example=name)
    parts = ":".join(part.strip() for part in text.split(":"))
    found = re.fullmatch(rf"(?P<chat>{platform.chat_id_pattern})(?::(?P<thread>[^:]+))?", parts)
    if not found or (found["thread"] and not platform.has_threads):
        where = f"{name}[@<server>]" if platform.has_servers else name
        form = f"{where}:<chat>[:<thread>]" if platform.has_threads else f"{where}:<chat> without a thread"
        raise BadArgument(
            "{found} does not name one chat",
            found=word,
            allowed=f"{form}, and write colons and commas inside ids as %3A and %2C",
            example=f"{name}:{platform.example_chat}",
        )
    chat, thread = found["chat"], found["thread"]
    place = Place(
        platform=name,
        server=decode_id(server.strip()) or None,
        chat=platform.canonical_chat(decode_id(chat)),
        thread=decode_id(thread) if thread else None,
    )
    if len(place.text) > MAX_IDS_BYTES:
        raise BadArgument(
            "The ids in {found} are too long",
            found=word,
            allowed=f"at most {MAX_IDS_BYTES} bytes together, percent-encoded",
            example=f"{name}:{platform.example_chat}",
        )
    return place
