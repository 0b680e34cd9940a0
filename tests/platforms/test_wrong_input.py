"""A payload of a platform with anything in it: it is read or skipped, and stops nothing."""

import json
from collections.abc import Callable
from datetime import UTC, datetime

from palaver.platforms.dingtalk.adapter import parse as parse_dingtalk
from palaver.platforms.discord.parse import OwnBot, Place, parse_event
from palaver.platforms.feishu.parse import parse as parse_feishu
from palaver.platforms.imessage.parse import Context, is_complete, related
from palaver.platforms.imessage.parse import parse as parse_bubble
from palaver.platforms.line.adapter import parse as parse_line
from palaver.platforms.matrix.parse import EventContext
from palaver.platforms.matrix.parse import parse as parse_matrix
from palaver.platforms.matrix.parse import parse_event as parse_room_event
from palaver.platforms.qq.adapter import parse as parse_qq
from palaver.platforms.signal.parse import Known, OwnAccount
from palaver.platforms.signal.parse import parse as parse_signal
from palaver.platforms.slack.parse import ButtonPress, NewMessage, OwnApp
from palaver.platforms.slack.parse import parse as parse_slack
from palaver.platforms.whatsapp.adapter import parse_frame
from palaver.platforms.whatsapp.parse import OwnNumber, list_changes, parse_change, parse_message
from palaver.platforms.yuanbao.wire import parse as parse_yuanbao
from palaver.protocols import Inbound, Label, parse_or_skip
from tests.platforms.imessage.world import DM_GUID, GROUP_GUID, US, Mac
from tests.platforms.mutants import Json, check_parsed, mutants

NOW = datetime(2026, 5, 1, tzinfo=UTC)
PERSON = {"id": "7", "username": "alice", "global_name": "Alice"}


def test_discord() -> None:
    us = OwnBot("helper", "900", ["42"], opens_threads=True)
    room = {"id": "501", "type": 0, "name": "dev", "topic": "all"}
    said: Json = {
        "id": "334385199974967042",
        "channel_id": "502",
        "guild_id": "500",
        "author": PERSON,
        "member": {"roles": ["1"], "nick": "Al"},
        "content": "<@900> hi",
        "timestamp": "2017-07-11T17:27:07.299000+00:00",
        "edited_timestamp": "2017-07-11T17:28:07.299000+00:00",
        "mentions": [PERSON],
        "mention_roles": ["42"],
        "type": 19,
        "message_reference": {"message_id": "5", "channel_id": "502"},
        "referenced_message": {"id": "5", "author": PERSON, "content": "before"},
        "attachments": [{"id": "1", "filename": "a.png", "size": 1, "content_type": "image/png", "url": "https://x"}],
        "message_snapshots": [{"message": {"content": "forwarded", "attachments": []}}],
        "sticker_items": [{"id": "1", "name": "Wave"}],
        "poll": {"question": {"text": "Tea?"}, "answers": [{"poll_media": {"text": "yes"}}]},
    }
    pressed: Json = {
        "id": "334385199974967043",
        "type": 2,
        "channel_id": "502",
        "guild_id": "500",
        "member": {"user": PERSON, "roles": []},
        "data": {"type": 1, "name": "new", "options": [{"name": "text", "value": "x"}]},
    }
    place: Json = {"channel": {"id": "502", "type": 11, "parent_id": "501", "owner_id": "900"}, "parent": room}
    for wrong in mutants({"said": said, "pressed": pressed, "place": place}):
        if set(wrong) == {"said", "pressed", "place"}:
            _check_discord(wrong, us)
    assert check_parsed("discord", lambda: parse_event("MESSAGE_CREATE", said, Place(**place), us, NOW))


def _check_discord(wrong: Json, us: OwnBot) -> None:
    def place() -> Place:
        return Place(wrong["place"]["channel"], wrong["place"]["parent"])

    for name in ("MESSAGE_CREATE", "MESSAGE_UPDATE", "MESSAGE_DELETE"):
        check_parsed("discord", lambda name=name: parse_event(name, wrong["said"], place(), us, NOW))
    check_parsed("discord", lambda: parse_event("INTERACTION_CREATE", wrong["pressed"], place(), us, NOW))


def test_slack() -> None:
    us = OwnApp(account="helper", team="T1", user="U0BOT", bot="B0BOT", reply_in_thread=True)
    file = {"id": "F1", "name": "a", "mode": "hosted", "size": 1, "mimetype": "text/plain"}
    said = {"type": "message", "channel": "C1", "channel_type": "channel", "user": "U1", "text": "<@U0BOT> hi"}
    said |= {"ts": "1355517523.000005", "thread_ts": "1355517520.000005", "parent_user_id": "U0BOT"}
    said |= {"files": [file, {**file, "is_external": True}], "attachments": [{"is_share": True, "text": "x"}]}
    change = {
        "type": "message",
        "channel": "C1",
        "ts": "1355517524.000005",
        "message": {**said, "edited": {"ts": "2.0"}},
    }
    action = {"action_id": "palaver:0", "value": "/approve 1", "action_ts": "1355517525.000005"}
    samples: list[Json] = [
        {"team_id": "T1", "event": said},
        {"team_id": "T1", "event": {**change, "subtype": "message_changed", "previous_message": said}},
        {"team_id": "T1", "event": {**change, "subtype": "message_deleted", "deleted_ts": "1.2"}},
        {
            "command": "/palaver",
            "text": "new",
            "channel_id": "C1",
            "user_id": "U1",
            "team_id": "T1",
            "trigger_id": "1.2",
        },
        {"type": "block_actions", "actions": [action], "channel": {"id": "C1"}, "user": {"id": "U1"}, "message": said},
    ]

    def read(payload: Json) -> list[Inbound]:
        found = parse_slack(payload, us, NOW)
        return [found.inbound] if isinstance(found, NewMessage | ButtonPress) else []

    for sample in samples:
        assert check_parsed("slack", lambda payload=sample: read(payload))
        for wrong in mutants(sample):
            check_parsed("slack", lambda payload=wrong: read(payload))


def test_imessage() -> None:
    mac = Mac()
    body = {"string": "@bot hi", "runs": [{"range": [0, 4], "attributes": {"__kIMMentionConfirmedMention": US}}]}
    file = {"guid": "A1", "transferName": "a.png", "mimeType": "image/png", "totalBytes": 1}
    edits = [{"date": 1, "text": {"values": [{"string": "a"}]}}, {"date": 2, "text": {"values": [{"string": "b"}]}}]
    samples = [
        mac.add(GROUP_GUID, "@bot hi", attributedBody=[body], attachments=[file], threadOriginatorGuid="1"),
        mac.add(DM_GUID, "b", dateEdited=1_777_000_000_000, messageSummaryInfo=[{"editedContent": {"0": edits}}]),
        mac.add(DM_GUID, "", dateRetracted=1_777_000_000_000),
        mac.add(DM_GUID, "x", associatedMessageType="like", associatedMessageGuid="p:0/1"),
    ]
    for sample in samples:
        replied = mac.add(DM_GUID, "ours", isFromMe=True)
        for wrong in mutants(sample):
            about = parse_or_skip("imessage", lambda message=wrong: related(message))
            parse_or_skip("imessage", lambda message=wrong: is_complete(message))
            if about:
                context = Context("mac", us=US, name=Label("Ann"), replied=replied)
                check_parsed("imessage", lambda message=wrong, context=context: parse_bubble(message, context))


def check_mutants(platform: str, read: Callable[[Json], list[Inbound]], *samples: Json) -> None:
    """Each sample is read, and what is read of it with something else in it can be stored."""
    for sample in samples:
        assert read(sample), sample
        for wrong in mutants(sample):
            check_parsed(platform, lambda wrong=wrong: read(wrong))


def test_feishu() -> None:
    ids = {"open_id": "ou_1", "union_id": "on_1", "user_id": "e33"}
    mention = {"key": "@_user_1", "id": {"open_id": "ou_us"}, "name": "Helper"}
    said = {"message_id": "om_1", "root_id": "om_0", "parent_id": "om_0", "thread_id": "omt_1", "chat_id": "oc_1"}
    said |= {"create_time": "1609073151345", "chat_type": "group", "message_type": "text"}
    text: Json = {**said, "content": json.dumps({"text": "@_user_1 hi"}), "mentions": [mention]}
    picture = [[{"tag": "text", "text": "x"}, {"tag": "img", "image_key": "k"}]]
    post: Json = {**said, "message_type": "post", "content": json.dumps({"title": "t", "content": picture})}
    reaction = {"message_id": "om_1", "reaction_type": {"emoji_type": "THUMBSUP"}, "operator_type": "user"}
    pressed = {"action": {"value": {"says": "/approve 1", "thread": "om_0"}}, "context": {"open_chat_id": "oc_1"}}
    events: dict[str, list[Json]] = {
        "im.message.receive_v1": [
            {"sender": {"sender_id": ids, "sender_type": "user"}, "message": message} for message in (text, post)
        ],
        "im.message.reaction.created_v1": [{**reaction, "user_id": ids, "action_time": "1609073151345"}],
        "im.message.recalled_v1": [{"message_id": "om_1", "chat_id": "oc_1", "recall_time": "1609073151345"}],
        "card.action.trigger": [{**pressed, "operator": ids}],
    }

    def read(event: Json) -> list[Inbound]:
        found = parse_feishu(event, "helper", "ou_us")
        return [found.inbound] if found else []

    for kind, samples in events.items():
        header = {"event_id": "e1", "event_type": kind, "create_time": "1603977298000000"}
        check_mutants("feishu", read, *({"header": header, "event": event} for event in samples))


def test_line() -> None:
    def read(event: Json) -> list[Inbound]:
        found = parse_line(event, "helper")
        return [found.inbound] if found else []

    where = {"type": "group", "groupId": "C1", "userId": "U1"}
    event: Json = {"type": "message", "timestamp": 1625665242211, "source": where, "webhookEventId": "01"}
    mention = {"mentionees": [{"index": 0, "length": 2, "isSelf": True}]}
    text = {"id": "1", "type": "text", "text": "@h hi", "quoteToken": "q", "quotedMessageId": "7", "mention": mention}
    album = {"id": "2", "type": "image", "contentProvider": {"type": "line"}, "imageSet": {"id": "x"}}
    file = {"id": "3", "type": "file", "fileName": "a.txt", "fileSize": 3}
    check_mutants(
        "line",
        read,
        *({**event, "replyToken": "r", "message": message} for message in (text, album, file)),
        {**event, "type": "postback", "postback": {"data": "/approve 1"}},
        {**event, "type": "unsend", "unsend": {"messageId": "1"}},
    )


def test_qq_and_dingtalk() -> None:
    def read_qq(event: Json) -> list[Inbound]:
        found = parse_qq(event, "helper")
        return [found] if found else []

    author = {"member_openid": "u1", "union_openid": "x1"}
    file = {"url": "https://x.qq.com/1", "filename": "a.png", "content_type": "image/png"}
    said: Json = {"id": "m1", "author": author, "group_openid": "g1", "content": " hi", "attachments": [file]}
    group: Json = {"t": "GROUP_AT_MESSAGE_CREATE", "d": {**said, "timestamp": "2026-05-01T00:00:00+08:00"}}
    check_mutants("qq", read_qq, group)
    about: Json = {"conversationType": "2", "conversationId": "cid1", "conversationTitle": "Dev", "msgId": "m1"}
    about |= {"senderStaffId": "s1", "senderId": "x1", "senderNick": "Ann", "createAt": 1609073151345}
    check_mutants(
        "dingtalk",
        lambda message: [parse_dingtalk(message, "helper")],
        {**about, "msgtype": "text", "text": {"content": " hi"}},
        {**about, "msgtype": "file", "content": {"downloadCode": "d1", "fileName": "a.txt"}},
        {**about, "msgtype": "richText", "content": {"richText": [{"text": "a"}, {"downloadCode": "d1"}]}},
    )


def test_whatsapp() -> None:
    def read(update: Json) -> list[Inbound]:
        changes = [change for raw in list_changes(update) if (change := parse_change(raw))]
        us = OwnNumber(account="shop", id="1")
        found = [parse_message(message, change, us) for change in changes for message in change.messages]
        return [message.inbound for message in found if message]

    def update(kind: str, content: Json) -> Json:
        sender = {"from": "49170", "from_user_id": "US.1", "id": "w1", "timestamp": "1609073151"}
        context = {"id": "w0", "from": "1", "forwarded": True}
        contact = {"wa_id": "49170", "user_id": "US.1", "profile": {"name": "Ann"}}
        metadata = {"display_phone_number": "1", "phone_number_id": "1"}
        message = {**sender, "context": context, "type": kind, kind: content}
        value = {"metadata": metadata, "contacts": [contact], "messages": [message]}
        return {"entry": [{"changes": [{"field": "messages", "value": value}]}]}

    edited = {"original_message_id": "w0", "message": {"type": "text", "text": {"body": "b"}}}
    samples = {
        "text": {"body": "hi"},
        "image": {"id": "i1", "mime_type": "image/png", "caption": "c"},
        "reaction": {"message_id": "w0", "emoji": "x"},
        "edit": edited,
    }
    check_mutants("whatsapp", read, *(update(kind, content) for kind, content in samples.items()))


def test_whatsapp_bridge() -> None:
    def read(frame: Json) -> list[Inbound]:
        found = parse_frame(frame, "mine", frozenset({"1"}))
        return [found.inbound] if found else []

    frame: Json = {"type": "message", "from": "49170@s.whatsapp.net", "from_alt": "9@lid", "id": "3A", "at": 1609073151}
    frame |= {"group": "g@g.us", "group_name": "Dev", "name": "Ann", "text": "@1 hi", "mentions": ["1@s.whatsapp.net"]}
    frame |= {"reply_to": "3B", "quote": {"from": "1", "text": "tea?", "name": "Helper"}, "forwarded": True}
    frame |= {"files": [{"handle": "h1", "name": "a.png", "type": "image/png", "size": 3}]}
    check_mutants(
        "whatsapp",
        read,
        frame,
        {**frame, "type": "change", "version": "v1"},
        {**frame, "type": "reaction", "emoji": "x"},
    )


def test_matrix() -> None:
    context = EventContext(
        account="helper", us="@helper:x", our_name="helper", chat_id="!r:x", kind="group", title="Dev", name="Ann"
    )

    def read(source: Json) -> list[Inbound]:
        event = parse_room_event(source)
        inbound = parse_matrix(event, context) if event else None
        return [inbound] if inbound else []

    event: Json = {"type": "m.room.message", "event_id": "$1", "sender": "@ann:x", "origin_server_ts": 1609073151345}
    relation = {"rel_type": "m.thread", "event_id": "$0", "m.in_reply_to": {"event_id": "$0"}}
    picture = {"msgtype": "m.image", "body": "b", "filename": "f", "info": {"mimetype": "image/png", "size": 3}}
    picture |= {"m.mentions": {"user_ids": ["@helper:x"]}, "m.relates_to": relation}
    sealed = {"url": "mxc://x/1", "key": {"k": "a"}, "iv": "b", "hashes": {"sha256": "c"}}
    edit = {"msgtype": "m.text", "body": "* x", "m.new_content": {"msgtype": "m.text", "body": "x"}}
    contents: list[tuple[str, Json]] = [
        ("m.room.message", {**picture, "url": "mxc://x/1"}),
        ("m.room.message", {**picture, "file": sealed}),
        ("m.room.message", {**edit, "m.relates_to": {"rel_type": "m.replace", "event_id": "$0"}}),
        ("m.reaction", {"m.relates_to": {"rel_type": "m.annotation", "event_id": "$0", "key": "x"}}),
        ("m.room.redaction", {"redacts": "$0"}),
    ]
    samples = [{**event, "type": kind, "content": content} for kind, content in contents]
    check_mutants("matrix", read, *samples)
    for sample in samples:  # Nothing skips what cannot even be an event.
        for wrong in mutants(sample):
            parse_room_event(wrong)


def test_signal() -> None:
    us, known = OwnAccount("helper", "+1", "us"), Known({}, {})

    def read(event: Json) -> list[Inbound]:
        inbound = parse_signal(event, us, known)
        return [inbound] if inbound else []

    def event(**content: Json) -> Json:
        return {"envelope": {"sourceNumber": "+2", "sourceUuid": "u2", "sourceName": "Ann", **content}}

    mention = {"start": 0, "length": 1, "number": "+1", "uuid": "us"}
    quote = {"id": 1609073151000, "authorNumber": "+1", "authorUuid": "us", "text": "tea?"}
    file = {"contentType": "image/png", "id": "a1", "filename": "a.png", "size": 3}
    about: Json = {"timestamp": 1609073151345}
    said: Json = {**about, "message": "\ufffc hi", "mentions": [mention], "quote": quote, "attachments": [file]}
    said |= {"groupInfo": {"groupId": "g1", "groupName": "Dev"}, "expiresInSeconds": 60}
    reaction = {"emoji": "👍", "targetAuthorNumber": "+1", "targetAuthorUuid": "us"}
    check_mutants(
        "signal",
        read,
        event(dataMessage=said),
        event(editMessage={"targetSentTimestamp": 1609073151000, "dataMessage": said}),
        event(dataMessage={**about, "reaction": {**reaction, "targetSentTimestamp": 1609073151000}}),
        event(dataMessage={**about, "remoteDelete": {"timestamp": 1609073151000}}),
    )


def test_yuanbao() -> None:
    def read(message: Json) -> list[Inbound]:
        push = parse_yuanbao(json.dumps(message).encode(), "helper", "us")
        return list(push.inbounds) if push else []

    said: Json = {"from_account": "u1", "group_code": "5", "group_name": "Dev", "msg_time": 1609073151, "msg_id": "m1"}
    text = {"msg_type": "TIMTextElem", "msg_content": {"text": "hi"}}
    content = {"url": "https://x.qq.com/1", "file_name": "a.txt", "file_size": 3}
    file = {"msg_type": "TIMFileElem", "msg_content": content}
    check_mutants("yuanbao", read, {**said, "msg_body": [text, file]})
