"""Parse Google Chat's interaction events: messages and pressed buttons."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

from palaver.protocols import (
    DM,
    GROUP,
    Attachment,
    Inbound,
    Label,
    Labels,
    NewMessage,
    Quote,
    Source,
    Trust,
    identity_of,
    parse_time,
)
from palaver.protocols.files import described_file

Json = Mapping[str, Any]
PRESSED = "palaver"
"""The function of our buttons."""
_PERSON = "users/"


def parse(event: Json, account: str) -> NewMessage | None:
    """Parse an event; None if nobody says anything. In a space, only what mentions us comes."""
    match event["type"]:
        case "MESSAGE":
            return _message(event, account)
        case "ADDED_TO_SPACE" if event.get("message"):  # somebody added us by mentioning us
            return _message(event, account)
        case "CARD_CLICKED":
            return _pressed(event, account)
        case _:
            return None


def _message(event: Json, account: str) -> NewMessage:
    said, sender = event["message"], event["message"]["sender"]
    text = said.get("argumentText")
    words = str(said.get("text") or "") if text is None else str(text).lstrip()
    source = _source(event, account, user=str(sender["name"]), message=str(said["name"]))
    quoted: Json = said.get("quotedMessageMetadata") or {}
    quote, is_forwarded = _quote(quoted, source), quoted.get("quoteType") == "FORWARD"
    inbound = Inbound(
        source=source,
        # The line in front also keeps a forwarded command from being run.
        text="\n".join(filter(None, (words, "[forwarded]", quote.text))) if is_forwarded and quote else words,
        at=parse_time(said["createTime"]),
        labels=_labels(event, sender),
        mentions_us=True,
        reply_to=None if is_forwarded else quoted.get("name"),
        quote=None if is_forwarded else quote,
        files=tuple(_files(said)),
    )
    return NewMessage(inbound, Trust(is_bot=sender.get("type") == "BOT"))


def _quote(quoted: Json, source: Source) -> Quote | None:
    """Return what a message quotes; older answers of Google name only the message. The sender is an id or a name."""
    snapshot: Json = quoted.get("quotedMessageSnapshot") or {}
    text, sender = str(snapshot.get("text") or ""), str(snapshot.get("sender") or "")
    if not text:
        return None
    if sender.startswith(_PERSON):
        return Quote(text=text, author=identity_of(replace(source, user_id=sender)))
    return Quote(text=text, name=Label.of(sender))


def _pressed(event: Json, account: str) -> NewMessage:
    """A press has no id: it is known by the card, the time and the person."""
    user, when = event["user"], str(event["eventTime"])
    given = {str(each["key"]): str(each["value"]) for each in event["action"]["parameters"]}
    message = f"{event['message']['name']}/{when}/{user['name']}"
    inbound = Inbound(
        source=_source(event, account, user=str(user["name"]), message=message),
        text=given["says"],
        at=parse_time(when),
        labels=_labels(event, user),
        mentions_us=True,
    )
    return NewMessage(inbound)


def _source(event: Json, account: str, *, user: str, message: str) -> Source:
    """Every message is in a thread. In a direct chat, and where nobody sees threads, it is not one of people."""
    space: Json = event["space"]
    is_direct = space.get("spaceType") == "DIRECT_MESSAGE" or space.get("type") == "DM"
    has_threads = not is_direct and space.get("spaceThreadingState") != "UNTHREADED_MESSAGES"
    thread = cast("Json", event["message"].get("thread") or {}).get("name")
    return Source(
        platform="googlechat",
        account=account,
        chat_kind=DM if is_direct else GROUP,
        chat_id=str(space["name"]),
        thread_id=thread if has_threads else None,
        user_id=user,
        message_id=message,
    )


def _labels(event: Json, user: Json) -> Labels:
    return Labels(user=Label.of(user.get("displayName")), chat=Label.of(event["space"].get("displayName")))


def _files(said: Json) -> Iterator[Attachment]:
    """Files in Google Drive are not given to apps."""
    for each in cast("Sequence[Json]", said.get("attachment") or ()):
        where = cast("Json", each.get("attachmentDataRef") or {}).get("resourceName")
        if where:
            yield described_file(each.get("contentName"), each.get("contentType"), handle=str(where))
