"""Parse Mattermost's events and posts."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Any, NamedTuple, cast

from palaver.protocols import (
    CHANNEL,
    DM,
    GROUP,
    Attachment,
    Inbound,
    Label,
    Labels,
    Reaction,
    Revision,
    Source,
    after_name,
    edit_version,
    parse_milliseconds,
)
from palaver.protocols.files import described_file

Json = Mapping[str, Any]
OVERLAP_MS = 10_000
"""How much of what was read before is read again."""
_NEVER = 1 << 62
_KINDS = {"D": DM, "G": GROUP, "O": CHANNEL, "P": CHANNEL}


class Change(StrEnum):
    """What happened to a post, named as its event."""

    POSTED = "posted"
    EDITED = "post_edited"
    DELETED = "post_deleted"


class Frame(NamedTuple):
    """What comes over the WebSocket: an event with a number, or an answer to our login."""

    event: str
    number: int
    data: Json
    is_login: bool = False


class Us(NamedTuple):
    account: str
    id: str
    name: str


class Post(NamedTuple):
    """A post, and what happened to it where."""

    content: Json
    change: Change
    channel: Json
    sender: object = None
    """The name of its author, if the event tells it."""


def read_frame(raw: str | bytes) -> Frame | None:
    """Return None for answers that nothing waits for."""
    found = json.loads(raw)
    if "seq_reply" in found:
        return Frame("", 0, {}, is_login=True) if found.get("status") == "OK" else None
    return Frame(str(found["event"]), int(found["seq"]), found.get("data") or {})


def read_post(data: Json) -> Json:
    """Return the post of an event; it is JSON within JSON."""
    post = json.loads(data["post"])
    return {**post, "channel_id": str(post["channel_id"])}


def read_posts(found: Json) -> list[Json]:
    """Return the posts that an answer lists; it also has the beginnings of their threads."""
    posts = [cast("Json", post) for key in found["order"] if isinstance(post := found["posts"].get(key), dict)]
    return [post for post in posts if isinstance(post.get("id"), str)]


def sort_posts(posts: Iterable[Json]) -> list[Json]:
    """Return each post once, the oldest first."""
    return sorted({str(post["id"]): post for post in posts}.values(), key=_created_at)


def find_page_start(page: Sequence[Json], since: int) -> str:
    """Return the post before which the next page ends; empty if a page has everything since a time.

    It has the posts of the oldest millisecond again, as some of them can be missing on this one.
    """
    times = sorted({_created_at(post) for post in page})
    if not times or times[0] <= since:
        return ""
    start = times[1] if len(times) > 1 else times[0]
    return next(str(post["id"]) for post in page if _created_at(post) == start)


def _created_at(post: Json) -> int:
    """An unreadable time is a time to come: such a post is skipped later, and hides no other."""
    at = post.get("create_at")
    return at if isinstance(at, int) else _NEVER


def changed_at(post: Json) -> int:
    """Return when a post was last written, changed or deleted, in milliseconds."""
    return max(int(post.get(name) or 0) for name in ("create_at", "update_at", "edit_at", "delete_at"))


def changes_since(post: Json, since: int) -> list[Change]:
    """Return what happened to a post after a time, as far as people see it.

    Events do not come quite in order, so of a post from shortly before we do not know whether it is stored.
    """
    created = int(post["create_at"])
    edited = int(post.get("edit_at") or 0)
    may_be_stored = created <= since
    if int(post.get("delete_at") or 0):
        return [Change.DELETED] if may_be_stored else []
    changes = [Change.POSTED] if created > since - OVERLAP_MS else []
    return [*changes, Change.EDITED] if may_be_stored and edited > since - OVERLAP_MS else changes


def parse(event: Post, us: Us, now: datetime) -> Inbound | None:
    """Parse a post; None if it is ours, or the server wrote it."""
    post, change, channel, name = event
    if post["user_id"] == us.id or post.get("type"):
        return None
    text = str(post["message"])
    rest = after_name(text, (f"@{us.name}",))
    addressed = text if rest is None else rest
    root = post.get("root_id") or None
    kind = _KINDS.get(channel["type"], CHANNEL)
    sender = name.removeprefix("@") if isinstance(name, str) else ""
    return Inbound(
        source=Source(
            platform="mattermost",
            account=us.account,
            chat_kind=kind,
            chat_id=str(post["channel_id"]),
            thread_id=root,
            user_id=str(post["user_id"]),
            message_id=str(post["id"]),
        ),
        text="" if change is Change.DELETED else addressed,
        at=_time(post, change, now),
        labels=Labels(user=Label.of(sender), chat=Label.of(channel.get("display_name")) if kind != DM else None),
        mentions_us=is_mentioned(text, us.name),
        reply_to=root,
        files=() if change is Change.DELETED else tuple(_files(post)),
        revision=_revision(post, change),
    )


REACTIONS = {"reaction_added": False, "reaction_removed": True}
"""Events about reactions, and whether one is taken back."""


def read_reaction(data: Json) -> Json:
    """Return the reaction of an event; it is JSON within JSON."""
    found = json.loads(data["reaction"])
    return {**found, "channel_id": str(found["channel_id"])}


def parse_reaction(found: Json, channel: Json, us: Us, now: datetime, *, removed: bool) -> Inbound | None:
    if found["user_id"] == us.id:
        return None
    at = max(int(found.get(name) or 0) for name in ("create_at", "update_at", "delete_at"))
    return Inbound(
        source=Source(
            platform="mattermost",
            account=us.account,
            chat_kind=_KINDS.get(channel["type"], CHANNEL),
            chat_id=str(found["channel_id"]),
            user_id=str(found["user_id"]),
        ),
        text="",
        at=parse_milliseconds(at) if at and not removed else now,
        reply_to=str(found["post_id"]),
        reaction=Reaction(emoji=str(found["emoji_name"]), removed=removed),
    )


def is_mentioned(text: str, name: str) -> bool:
    return bool(re.search(rf"(?<![\w.@-])@{re.escape(name)}(?![\w-]|\.\w)", text, re.IGNORECASE))


def is_by_bot(post: Json) -> bool:
    """The server marks the posts of bots and of incoming webhooks."""
    props = post.get("props")
    if not isinstance(props, dict):
        return False
    marks = cast("Json", props)
    return any(str(marks.get(name)) == "true" for name in ("from_bot", "from_webhook"))


def _time(post: Json, change: Change, now: datetime) -> datetime:
    """The event of a deletion has the post as it was before, so it happened now."""
    name = {Change.POSTED: "create_at", Change.EDITED: "edit_at", Change.DELETED: "delete_at"}[change]
    milliseconds = int(post.get(name) or 0)
    return parse_milliseconds(milliseconds) if milliseconds else now


def _revision(post: Json, change: Change) -> Revision | None:
    if change is Change.POSTED:
        return None
    if change is Change.DELETED:
        return Revision(version="deleted", deleted=True)
    return Revision(version=edit_version(str(post["edit_at"]), str(post["message"])))


def _files(post: Json) -> Iterator[Attachment]:
    """Without the metadata, a server tells only the ids."""
    metadata = cast("Json", post.get("metadata") or {})
    files = cast("Sequence[Json]", metadata.get("files") or ())
    known = {file["id"]: file for file in files}
    for file_id in post.get("file_ids") or ():
        file = known.get(file_id, {})
        yield described_file(file.get("name"), file.get("mime_type"), file.get("size"), handle=str(file_id))
