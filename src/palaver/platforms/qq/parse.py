"""Parse QQ's events: messages of people and groups."""

from collections.abc import Iterator, Mapping
from typing import Any

from palaver.protocols import DM, GROUP, Attachment, Inbound, Source, parse_time
from palaver.protocols.files import described_file

Json = Mapping[str, Any]
GROUP_PREFIX = "group/"
"""Of a chat id: groups and people have ids of the same form."""


def parse(event: Json, account: str) -> Inbound | None:
    """Parse an event; None if it is no message."""
    said = event["d"]
    match event["t"]:
        case "C2C_MESSAGE_CREATE":
            kind, user = DM, str(said["author"]["user_openid"])
            chat = user
        case "GROUP_AT_MESSAGE_CREATE":
            kind, user = GROUP, str(said["author"]["member_openid"])
            chat = f"{GROUP_PREFIX}{said['group_openid']}"
        case _:
            return None
    return Inbound(
        source=Source(
            platform="qq",
            account=account,
            chat_kind=kind,
            chat_id=chat,
            user_id=user,
            user_id_alt=said["author"].get("union_openid"),
            message_id=str(said["id"]),
        ),
        text=str(said.get("content") or "").removeprefix(" "),
        at=parse_time(said["timestamp"]),
        # In a group, QQ sends only what mentions the bot, without the mention.
        mentions_us=kind == GROUP,
        files=tuple(_files(said)),
    )


def _files(said: Json) -> Iterator[Attachment]:
    for file in said.get("attachments") or ():
        url = str(file["url"])
        kind = str(file.get("content_type") or "")
        handle = url if "://" in url else f"https://{url}"
        yield described_file(file.get("filename"), kind if "/" in kind else None, handle=handle)
