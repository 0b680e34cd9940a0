"""Parse Slack's events, and render what we send."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, NamedTuple, TypeAlias, cast

from palaver.protocols import (
    CHANNEL,
    DM,
    GROUP,
    Attachment,
    Inbound,
    Label,
    Labels,
    NewMessage,
    Outbound,
    Reaction,
    Revision,
    Source,
    Trust,
    after_name,
    edit_version,
)
from palaver.protocols.files import described_file
from palaver.protocols.markdown import Layout, Marks, is_web_link, to_marks

MAX_TEXT = 4000
"""Slack rejects a longer edit, and splits a longer message itself."""
MAX_SECTION = 3000
MAX_LABEL = 75
ACTION = "palaver"
"""The ids of our buttons begin with it."""
_MENTION = re.compile(r"(<@[UW][A-Z0-9]{2,30}>)")
_ESCAPES = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"})
_LOOKALIKES = str.maketrans({"&": "＆", "<": "‹", ">": "›"})  # noqa: RUF001
_URL_ESCAPES = str.maketrans({"&": "&amp;", "<": "%3C", ">": "%3E", "|": "%7C"})


def escape(text: str) -> str:
    """Escape what Slack reads as markup: `<!channel>` stays text. A mention of one person stays a mention."""
    parts = _MENTION.split(text)
    return "".join(part if number % 2 else part.translate(_ESCAPES) for number, part in enumerate(parts))


_MARKS = Marks(
    bold="*",
    italic="_",
    struck="~",
    code="`",
    code_block="```",
    link=lambda url: (f"<{url.translate(_URL_ESCAPES)}|", ">"),
    escape=escape,
    escape_code=lambda text: text.translate(_ESCAPES),
    layout=Layout(is_linked=is_web_link),
)


def render(text: str) -> str:
    """Return mrkdwn of at most `MAX_TEXT` characters, with less formatting if it would be longer."""
    return next(shown for shown in _candidates(text) if shown.strip() and len(shown) <= MAX_TEXT)


def _candidates(text: str) -> Iterator[str]:
    yield to_marks(text, _MARKS)
    yield to_marks(text, replace(_MARKS, layout=replace(_MARKS.layout, is_even=False)))
    yield escape(text)
    yield (text.translate(_LOOKALIKES) or " ")[:MAX_TEXT]
    yield "…"


def message(outbound: Outbound) -> dict[str, Any]:
    """Return text and blocks. Blocks are always there: an edit without them would keep the old buttons."""
    text = render(outbound.text)
    buttons = [_button(number, choice.label, choice.says) for number, choice in enumerate(outbound.choices)]
    if not buttons or len(text) > MAX_SECTION:
        return {"text": text, "blocks": []}
    section = {"type": "section", "text": {"type": "mrkdwn", "text": text, "verbatim": True}}
    return {"text": text, "blocks": [section, {"type": "actions", "elements": buttons}]}


def _button(number: int, label: str, says: str) -> dict[str, Any]:
    text = {"type": "plain_text", "text": label[:MAX_LABEL] or "…", "emoji": False}
    return {"type": "button", "action_id": f"{ACTION}:{number}", "text": text, "value": says}


PLATFORM = "slack"
_KINDS = {"im": DM, "mpim": GROUP, "channel": CHANNEL, "group": CHANNEL}
_SAID = frozenset({None, "bot_message", "file_share", "me_message", "thread_broadcast"})
"""The subtypes of messages that somebody wrote. Others report, for example, that somebody joined."""
_SLACKBOT = "USLACKBOT"
"""It posts reminders, for example, and is no app."""
_NO_FILES = frozenset({"hidden_by_limit", "tombstone"})
_MARKUP = re.compile(r"<([^<>|]*)(?:\|([^<>]*))?>")
_PERSON = re.compile(r"<(@[UW][A-Z0-9]+)\|[^<>]*>")

Json: TypeAlias = Mapping[str, Any]


class OwnApp(NamedTuple):
    """The app that receives the payload."""

    account: str
    team: str
    user: str
    bot: str
    reply_in_thread: bool = False


class ButtonPress(NamedTuple):
    """A press of one of our buttons counts as saying its text."""

    inbound: Inbound
    message: Json
    """The message with the buttons."""


class ChatRenumbered(NamedTuple):
    old: str
    new: str


class Renamed(NamedTuple):
    """A person or a channel has another name."""

    id: str
    name: str


Event: TypeAlias = NewMessage | ButtonPress | ChatRenumbered | Renamed


def parse(payload: Json, us: OwnApp, now: datetime) -> Event | None:
    """Parse a payload; None for our own messages and everything else that nobody says to us."""
    event = _parse(payload, us, now)
    told = cast("tuple[object, ...]", event) if isinstance(event, ChatRenumbered | Renamed) else ()
    if not all(isinstance(value, str) for value in told):
        raise TypeError
    return event


def _parse(payload: Json, us: OwnApp, now: datetime) -> Event | None:
    if "command" in payload:
        return _slash_command(payload, us, now)
    if payload.get("type") == "block_actions":
        return _button_press(payload, us)
    return _event(payload.get("event") or {}, us, str(payload.get("team_id") or us.team))


def _event(event: Json, us: OwnApp, team: str) -> Event | None:
    match event.get("type"):
        case "message" | "app_mention":
            return _message_event(event, us, team)
        case "reaction_added" | "reaction_removed":
            return _reaction(event, us, team)
        case "user_change":
            return Renamed(event["user"]["id"], user_name(event["user"]))
        case "channel_rename" | "group_rename":
            return Renamed(event["channel"]["id"], event["channel"]["name"])
        case "channel_id_changed":
            return ChatRenumbered(event["old_channel_id"], event["new_channel_id"])
        case _:
            return None


def user_name(user: Json) -> str:
    """Return the name that people see: the one a person chose, else the full one."""
    profile: Json = user.get("profile") or {}
    names = profile.get("display_name"), profile.get("real_name"), user.get("real_name"), user.get("name")
    return next((name for name in names if name), user["id"])


def _message_event(event: Json, us: OwnApp, team: str) -> NewMessage | None:
    match event.get("subtype"):
        case "message_changed":
            message: Json = event["message"]
            before: Json = event.get("previous_message") or {}
            if message.get("subtype") == "tombstone":  # the deleted beginning of a thread
                return _deletion(event, before or message, us, team)
            is_same = all(message.get(name) == before.get(name) for name in ("edited", "text"))
            if is_same or not message.get("edited"):  # Slack added a preview, for example
                return None
            version = edit_version(message["edited"]["ts"], message.get("text") or "")
            return _message(message, event, us, team, Revision(version=version))
        case "message_deleted":
            deleted: Json = event.get("previous_message") or {"ts": event["deleted_ts"]}
            return _deletion(event, deleted, us, team)
        case subtype if subtype in _SAID:
            return _message(event, event, us, team)
        case _:
            return None


def _is_ours(message: Json, us: OwnApp) -> bool:
    return message.get("user") == us.user or message.get("bot_id") == us.bot


def _message(message: Json, event: Json, us: OwnApp, team: str, revision: Revision | None = None) -> NewMessage | None:
    """Read a message, which an edit has within its event."""
    if _is_ours(message, us):
        return None
    words, is_named = _addressed(message.get("text") or "", us)
    files: Sequence[Json] = [each for each in message.get("files") or () if each.get("mode") not in _NO_FILES]
    lines = [*([words] if words else ()), *_forwarded(message), *(_link(file) for file in files if _is_external(file))]
    attachments = tuple(_attachment(file) for file in files if not _is_external(file))
    if not (lines or attachments):
        return None
    user = message.get("user")
    bot = message.get("bot_id")
    is_answer = message.get("parent_user_id") == us.user
    name = message.get("username") if bot else None
    inbound = Inbound(
        source=_source(message, event, us, team, user or bot),
        text="\n".join(lines),
        at=_time(event["ts"]),
        labels=Labels(user=Label.of(name)),
        mentions_us=is_named or is_answer,
        reply_to=message["thread_ts"] if is_answer else None,
        files=attachments,
        revision=revision,
    )
    return NewMessage(inbound, Trust(is_bot=bool(bot) or user == _SLACKBOT))


def _reaction(event: Json, us: OwnApp, team: str) -> NewMessage | None:
    """Return a reaction to one of our messages."""
    item: Json = event.get("item") or {}
    if item.get("type") != "message" or event["user"] == us.user or event.get("item_user") not in {None, us.user}:
        return None
    removed = event["type"] == "reaction_removed"
    inbound = Inbound(
        source=replace(_source({"ts": item["ts"]}, item, us, team, event["user"]), thread_id=None, message_id=None),
        text="",
        at=_time(event["event_ts"]),
        reply_to=item["ts"],
        reaction=Reaction(emoji=event["reaction"], removed=removed),
    )
    return NewMessage(inbound, Trust(is_bot=event["user"] == _SLACKBOT))


def _deletion(event: Json, message: Json, us: OwnApp, team: str) -> NewMessage | None:
    """Slack does not say who deleted the message."""
    if _is_ours(message, us):
        return None
    revision = Revision(version=event["ts"], deleted=True)
    source = _source(message, event, us, team, None)
    return NewMessage(Inbound(source=source, text="", at=_time(event["ts"]), revision=revision), Trust())


def _source(message: Json, event: Json, us: OwnApp, team: str, user: str | None) -> Source:
    chat = event["channel"]
    number = message["ts"]
    kind = _KINDS.get(event.get("channel_type", ""), kind_of(chat))
    return Source(
        platform=PLATFORM,
        account=us.account,
        chat_kind=kind,
        chat_id=chat,
        thread_id=_thread(message.get("thread_ts"), number, kind, us),
        scope_id=team,
        user_id=user,
        message_id=number,
    )


def kind_of(chat: str) -> str:
    """Return what the id of a chat says about it. Only Slack knows whether it is a group of direct messages."""
    return DM if chat.startswith("D") else CHANNEL


def type_of(conversation: Json) -> str:
    """Return what an event calls the type of this conversation."""
    flags = {"is_im": "im", "is_mpim": "mpim", "is_private": "group"}
    return next((name for flag, name in flags.items() if conversation.get(flag)), "channel")


def _thread(thread: str | None, number: str, kind: str, us: OwnApp) -> str | None:
    """Return the thread. The message that begins one is not in it, unless each is to begin one."""
    if thread and thread != number:
        return thread
    return number if us.reply_in_thread and kind != DM else None


def _time(number: str) -> datetime:
    """Slack's message ids are times."""
    return datetime.fromtimestamp(float(number), UTC)


# Commands and buttons


def _slash_command(payload: Json, us: OwnApp, now: datetime) -> NewMessage:
    """Read `/palaver new`, which is `/new`; without a word it asks for help."""
    words = unescape(payload.get("text") or "").strip().lstrip("/!") or "help"
    chat = payload["channel_id"]
    source = Source(
        platform=PLATFORM,
        account=us.account,
        chat_kind=kind_of(chat),
        chat_id=chat,
        scope_id=payload.get("team_id") or us.team,
        user_id=payload["user_id"],
        message_id=f"command:{payload['trigger_id']}",
    )
    return NewMessage(Inbound(source=source, text=f"/{words}", at=now, mentions_us=True), Trust())


def _button_press(payload: Json, us: OwnApp) -> ButtonPress | None:
    """Return None for actions that are not of our messages: those of a modal have no message at all."""
    action = payload["actions"][0]
    if "message" not in payload or not str(action["action_id"]).startswith(f"{ACTION}:"):
        return None
    chat = payload["channel"]["id"]
    message = cast("Json", payload["message"])
    team: Json = payload.get("team") or {}
    kind = kind_of(chat)
    source = Source(
        platform=PLATFORM,
        account=us.account,
        chat_kind=kind,
        chat_id=chat,
        thread_id=_thread(message.get("thread_ts"), message["ts"], DM, us),
        scope_id=team.get("id") or us.team,
        user_id=payload["user"]["id"],
        message_id=f"action:{message['ts']}:{action['action_ts']}",
    )
    inbound = Inbound(source=source, text=action["value"], at=_time(action["action_ts"]), mentions_us=True)
    return ButtonPress(inbound, message)


# Text and files


def _addressed(text: str, us: OwnApp) -> tuple[str, bool]:
    """Return the text without our name in front, and whether it names us."""
    ours = f"<@{us.user}>"
    text = _PERSON.sub(r"<\1>", text)
    rest = after_name(text, (ours,), ends=":, \u00a0")
    return unescape(text if rest is None else rest), ours in text


def unescape(text: str) -> str:
    """Return what people see: links as they were written, channels by name. People stay ids, to mention them."""
    shown = _MARKUP.sub(lambda found: _shown(found[1], found[2] or ""), text)
    return shown.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")


def _shown(inside: str, label: str) -> str:
    match inside[:1]:
        case "@":
            return f"<{inside}>"
        case "#":
            return f"#{label}" if label else f"<{inside}>"
        case "!":
            return label or f"@{inside[1:].partition('^')[0]}"
        case _:
            return inside if not label or inside == label else _linked(inside, label)


def _linked(url: str, label: str) -> str:
    """Slack adds the scheme to an address that somebody wrote without it."""
    return label if url.partition(":")[2].removeprefix("//").rstrip("/") == label.rstrip("/") else f"{label} ({url})"


def _forwarded(message: Json) -> Iterator[str]:
    for attachment in message.get("attachments") or ():
        if attachment.get("is_share") and attachment.get("text"):
            yield f"[forwarded]\n{unescape(attachment['text'])}"


def _is_external(file: Json) -> bool:
    """It is at another service, such as Google Drive, which must not get our token."""
    return bool(file.get("is_external")) or file.get("mode") == "external"


def _link(file: Json) -> str:
    return f"[file {file.get('title') or file.get('name') or ''}: {file.get('url_private') or ''}]"


def _attachment(file: Json) -> Attachment:
    name = file.get("name") or file.get("title") or file["id"]
    return described_file(name, file.get("mimetype"), file.get("size"), handle=file["id"])
