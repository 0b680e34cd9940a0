"""Incoming messages: check and read callbacks, skip what is unreadable, find our name in front of a text."""

import hashlib
import hmac
import json
import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any, NamedTuple, TypeVar, cast

from palaver.model.source import Trust
from palaver.model.turn import Inbound
from palaver.protocols.adapter import Receiver
from palaver.protocols.capabilities import HttpRequest, HttpResponse

log = logging.getLogger(__name__)

T = TypeVar("T")

_MAX_SIZE = 1 << 62


def is_secret(given: str, secret: str) -> bool:
    """Compare in constant time. An empty secret matches nothing."""
    return bool(secret) and hmac.compare_digest(given.encode("utf-8", "replace"), secret.encode())


def is_signed(body: bytes, secret: str, signature: str) -> bool:
    """Return whether the signature is the hexadecimal HMAC-SHA256 of the body; it can begin with `sha256=`."""
    expected = hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()
    return bool(secret) and is_secret(signature.removeprefix("sha256="), expected)


def read_object(text: str | bytes) -> dict[str, Any]:
    """Decode a JSON object. Raise ValueError if it is none."""
    try:
        found: object = json.loads(text)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    if not isinstance(found, dict):
        raise ValueError("not an object")  # noqa: TRY004 - it is the data that is wrong
    return cast("dict[str, Any]", found)


async def take_json(
    request: HttpRequest, take: Callable[[Mapping[str, Any]], Awaitable[None]], *, is_authentic: bool
) -> HttpResponse:
    """Hand the JSON object of a callback to `take`, and respond 200 once that has returned."""
    if not is_authentic:
        return HttpResponse(status=HTTPStatus.UNAUTHORIZED)
    try:
        found = read_object(request.body)
    except ValueError:
        return HttpResponse(status=HTTPStatus.BAD_REQUEST)
    await take(found)
    return HttpResponse()


def parse_or_skip(platform: str, parse: Callable[[], T]) -> T | None:
    """Parse a payload; log and skip it if it is unreadable: it would come again and again and block all behind it.

    So would a message with a value of another type than documented, which could not be stored: what `parse` returns is
    searched for messages, in lists and named tuples.
    """
    try:
        found = parse()
        for inbound in _messages_in(found):
            _check_types(inbound)
    except (ArithmeticError, AttributeError, LookupError, OSError, RecursionError, TypeError, ValueError) as error:
        log_skipped(platform, error)
        return None
    return found


class NewMessage(NamedTuple):
    """A message, and what the platform vouches for about its sender."""

    inbound: Inbound
    trust: Trust = Trust()


async def receive_or_skip(platform: str, parse: Callable[[], Inbound | None], receiver: Receiver) -> None:
    """Parse a payload and hand over its message; skip one that is unreadable or has none."""
    inbound = parse_or_skip(platform, parse)
    if inbound is not None:
        await receiver.receive(inbound, Trust())


def log_skipped(platform: str, error: Exception) -> None:
    """Log only the type of the error: its text can quote the payload."""
    extra = {"action": f"{platform}.unreadable"}
    log.warning("skipped an unreadable update: %s", type(error).__name__, extra=extra)


def _messages_in(found: object) -> Iterator[Inbound]:
    if isinstance(found, Inbound):
        yield found
    elif isinstance(found, list | tuple):
        for each in cast("Iterable[object]", found):
            yield from _messages_in(each)


def _check_types(inbound: Inbound) -> None:
    """Raise TypeError if a value in its payload was something else than text or a number."""
    labels, files, quote = inbound.labels, inbound.files, inbound.quote
    names = (labels.user, labels.chat, labels.topic, *(file.name for file in files), quote.name if quote else None)
    optional: list[object] = [inbound.reply_to, inbound.burst, *(name and name.stored() for name in names)]
    optional += [inbound.revision and inbound.revision.version, *((quote.text, quote.author) if quote else ())]
    optional += [file.handle for file in files]
    optional += [inbound.reaction and inbound.reaction.emoji]
    texts: list[object] = [inbound.text, *inbound.source.to_json().values(), *(file.media_type for file in files)]
    sizes: list[object] = [file.size for file in files]
    if not (
        all(isinstance(text, str) for text in texts)
        and all(isinstance(text, str | None) for text in optional)
        and all(size is None or (isinstance(size, int) and 0 <= size < _MAX_SIZE) for size in sizes)
    ):
        raise TypeError


def parse_time(text: str) -> datetime:
    """Parse a time in ISO 8601; it is UTC unless it says otherwise."""
    found = datetime.fromisoformat(text)
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def parse_milliseconds(since_1970: str | float) -> datetime:
    return datetime.fromtimestamp(int(since_1970) / 1000, UTC)


def after_name(text: str, names: Iterable[str], ends: str = ":, ") -> str | None:
    """Return what follows one of our names at the beginning (`helper: hi`, `@helper hi`); None if there is none."""
    for name in names:
        if text.lower().startswith(name.lower()) and text[len(name) : len(name) + 1] in {*ends, "\n"}:
            return text[len(name) + 1 :].lstrip(" :,\n")
    return None


def edit_version(at: str, text: str) -> str:
    """Return the version of an edit: the time that the platform gives it, and a digest, as times can be rough."""
    return f"{at} {hashlib.sha256(text.encode('utf-8', 'replace')).hexdigest()[:16]}"
