"""A payload of Discord, Slack or BlueBubbles with anything in it: it is read or skipped and stops nothing."""

from datetime import UTC, datetime

from palaver.platforms.discord.parse import OwnBot, Place, parse_event
from palaver.platforms.imessage.parse import Context, is_complete, related
from palaver.platforms.imessage.parse import parse as parse_bubble
from palaver.platforms.slack.parse import ButtonPress, NewMessage, OwnApp
from palaver.platforms.slack.parse import parse as parse_slack
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
