"""Slack's payloads, after the examples in its documentation, and what is made of them."""

from datetime import UTC, datetime
from typing import Any

from palaver.platforms.slack.parse import ButtonPress, ChatRenumbered, NewMessage, OwnApp, Renamed, parse
from palaver.protocols import Inbound, Label, Source

NOW = datetime(2026, 5, 1, tzinfo=UTC)
US = OwnApp(account="helper", team="T123ABC456", user="U061F7AUR", bot="B19LU7CSY")
MESSAGE: dict[str, Any] = {
    "type": "message",
    "channel": "C123ABC456",
    "channel_type": "channel",
    "user": "U123ABC456",
    "text": "Live long and prospect.",
    "ts": "1355517523.000005",
    "event_ts": "1355517523.000005",
}


def payload(**event: Any) -> dict[str, Any]:
    about = {"token": "XXYYZZ", "team_id": "T123ABC456", "api_app_id": "A123ABC456", "type": "event_callback"}
    return {**about, "event": {**MESSAGE, **event}, "event_id": "Ev123ABC456", "event_time": 1355517523}


def read(us: OwnApp = US, **event: Any) -> Inbound:
    found = parse(payload(**event), us, NOW)
    assert isinstance(found, NewMessage)
    return found.inbound


def test_a_message_in_a_channel() -> None:
    assert read() == Inbound(
        source=Source(
            platform="slack",
            account="helper",
            chat_kind="channel",
            chat_id="C123ABC456",
            scope_id="T123ABC456",
            user_id="U123ABC456",
            message_id="1355517523.000005",
        ),
        text="Live long and prospect.",
        at=datetime.fromtimestamp(1355517523.000005, UTC),
    )


def test_the_kinds_of_chats() -> None:
    kinds = {"im": "dm", "mpim": "group", "channel": "channel", "group": "channel"}
    assert {type_: read(channel_type=type_).source.chat_kind for type_ in kinds} == kinds
    mention = payload(type="app_mention", text="<@U061F7AUR> hi")
    del mention["event"]["channel_type"]
    found = parse(mention, US, NOW)
    assert isinstance(found, NewMessage)
    assert found.inbound == read(text="<@U061F7AUR> hi"), "both events report the same message"


def test_a_thread_and_the_message_that_begins_it() -> None:
    assert read(thread_ts="1355517000.000001").source.thread_id == "1355517000.000001"
    assert read(thread_ts=MESSAGE["ts"]).source.thread_id is None
    ours = read(thread_ts="1355517000.000001", parent_user_id=US.user)
    assert (ours.mentions_us, ours.reply_to) == (True, "1355517000.000001")
    theirs = read(thread_ts="1355517000.000001", parent_user_id="U2")
    assert (theirs.mentions_us, theirs.reply_to) == (False, None)


def test_by_option_a_message_in_a_channel_is_a_thread_of_its_own() -> None:
    us = US._replace(reply_in_thread=True)
    assert read(us).source.thread_id == MESSAGE["ts"]
    assert read(us, channel_type="mpim").source.thread_id == MESSAGE["ts"]
    assert read(us, thread_ts="1355517000.000001").source.thread_id == "1355517000.000001"
    assert read(us, channel_type="im", channel="D1").source.thread_id is None


def test_texts_are_what_people_see() -> None:
    for text, shown in (
        ("a &lt;b&gt; &amp;amp; c", "a <b> &amp; c"),
        ("see <https://x.org/a?b=1&amp;c=2>", "see https://x.org/a?b=1&c=2"),
        ("see <http://x.org|x.org>", "see x.org"),
        ("<mailto:ann@x.org|ann@x.org>", "ann@x.org"),
        ("<https://evil.example|your bank>", "your bank (https://evil.example)"),
        ("<#C024BE7LR|general> <#C024BE7LR>", "#general <#C024BE7LR>"),
        ("<!here> <!subteam^S1|@admins> <!date^1392734382^{date}|Feb 18>", "@here @admins Feb 18"),
        ("<@U2|ann> and <@U3>", "<@U2> and <@U3>"),
    ):
        assert read(text=text).text == shown


def test_our_name_addresses_us_and_is_removed_only_in_front() -> None:
    for text, words in (
        ("<@U061F7AUR> hi", "hi"),
        ("<@U061F7AUR|helper>: hi", "hi"),
        ("<@U061F7AUR>\u00a0hi", "hi"),
        ("<@U061F7AUR>", "<@U061F7AUR>"),
        ("hi <@U061F7AUR>", "hi <@U061F7AUR>"),
        ("<@U061F7AUR> &lt;@U061F7AUR&gt;", "<@U061F7AUR>"),
    ):
        assert (read(text=text).text, read(text=text).mentions_us) == (words, True)
    assert not read(text="&lt;@U061F7AUR&gt; hi").mentions_us, "typed, not a mention"
    assert not read(text="<@U061F7AURX> hi").mentions_us


def test_an_edit_is_a_change_and_a_preview_is_none() -> None:
    edited = {**MESSAGE, "text": "Hello, world!", "edited": {"user": "U123ABC456", "ts": "1358878755.000000"}}
    change: dict[str, Any] = {"subtype": "message_changed", "ts": "1358878755.000001", "previous_message": MESSAGE}
    found = read(**change, message=edited)
    assert found.revision
    assert (found.text, found.source.message_id) == ("Hello, world!", MESSAGE["ts"])
    assert (found.revision.version.split()[0], found.revision.deleted) == ("1358878755.000000", False)
    change["previous_message"] = edited
    again = read(**change, message={**edited, "text": "Hello!"})
    assert again.revision, "another edit in the same second"
    assert again.revision.version != found.revision.version
    assert found.at == datetime.fromtimestamp(1358878755.000001, UTC)
    with_preview = {**MESSAGE, "attachments": [{"title": "x"}]}
    assert parse(payload(**change, message=with_preview), US, NOW) is None
    again = {**change, "previous_message": edited, "message": {**edited, "attachments": [{"title": "x"}]}}
    assert parse(payload(**again), US, NOW) is None


def test_a_deletion_names_nobody() -> None:
    event: dict[str, Any] = {"subtype": "message_deleted", "ts": "1358878755.000001", "deleted_ts": MESSAGE["ts"]}
    tombstone = {**MESSAGE, "subtype": "tombstone", "user": "USLACKBOT", "text": "This message was deleted."}
    changed: dict[str, Any] = {"subtype": "message_changed", "ts": "1358878755.000001", "message": tombstone}
    for deleted in (
        read(**event, previous_message={**MESSAGE, "thread_ts": "1355517000.000001"}),
        read(**event),
        read(**changed, previous_message=MESSAGE),
    ):
        assert deleted.revision
        assert deleted.revision.deleted
        assert (deleted.text, deleted.source.user_id, deleted.source.message_id) == ("", None, MESSAGE["ts"])


def test_what_nobody_says_to_us_is_ignored() -> None:
    item = {"type": "message", "channel": MESSAGE["channel"], "ts": "1.0"}
    thumb = {"type": "reaction_added", "item": item, "item_user": US.user, "reaction": "+1", "event_ts": "2.0"}
    assert parse(payload(**thumb, user="U9"), US, NOW)
    for event in (
        {**thumb, "user": US.user},
        {**thumb, "user": "U9", "item_user": "U8"},
        {**thumb, "user": "U9", "item": {"type": "file", "ts": "1.0"}},
        {"user": US.user},
        {"bot_id": US.bot, "subtype": "bot_message"},
        {"subtype": "channel_join"},
        {"subtype": "channel_topic"},
        {"subtype": "message_replied"},
        {"text": ""},
        {"type": "reaction_added"},
        {"subtype": "message_deleted", "deleted_ts": "1.2", "previous_message": {**MESSAGE, "bot_id": US.bot}},
        {
            "subtype": "message_changed",
            "message": {**MESSAGE, "user": US.user, "edited": {"user": US.user, "ts": "2.0"}},
            "previous_message": MESSAGE,
        },
    ):
        assert parse(payload(**event), US, NOW) is None
    assert parse({"type": "view_submission"}, US, NOW) is None


def test_another_bot_is_known_as_one() -> None:
    found = parse(payload(subtype="bot_message", user=None, bot_id="B2", username="deploys"), US, NOW)
    assert isinstance(found, NewMessage)
    assert found.trust.is_bot
    assert (found.inbound.source.user_id, found.inbound.labels.user) == ("B2", Label("deploys"))
    reminder = parse(payload(user="USLACKBOT", text="Reminder: water the plants"), US, NOW)
    assert isinstance(reminder, NewMessage)
    assert reminder.trust.is_bot


def test_files_are_named_and_those_at_other_services_are_links() -> None:
    hosted = {"id": "F1", "name": "a.png", "mimetype": "image/png", "size": 9, "mode": "hosted"}
    drive = {
        "id": "F2",
        "title": "Plan",
        "mode": "external",
        "is_external": True,
        "url_private": "https://docs.example/1",
    }
    gone = {"id": "F3", "mode": "tombstone"}
    found = read(subtype="file_share", text="", files=[hosted, drive, gone])
    (file,) = found.files
    assert (file.name, file.media_type, file.size, file.handle) == (Label("a.png"), "image/png", 9, "F1")
    assert found.text == "[file Plan: https://docs.example/1]"


def test_a_forwarded_message_is_no_command() -> None:
    shared = {"is_share": True, "author_id": "U2", "text": "!reset &amp; more"}
    assert read(text="", attachments=[shared, {"title": "a preview"}]).text == "[forwarded]\n!reset & more"


def test_a_slash_command_is_a_command() -> None:
    given = {
        "token": "gIkuvaNzQIHg97ATvDxqgjtO",
        "team_id": "T0001",
        "channel_id": "C2147483705",
        "channel_name": "test",
        "user_id": "U2147483697",
        "user_name": "Steve",
        "command": "/palaver",
        "trigger_id": "13345224609.738474920.8088930838d88f008e0",
    }
    for text, said in (("new tea", "/new tea"), ("/new tea", "/new tea"), ("", "/help"), (" !status ", "/status")):
        found = parse({**given, "text": text}, US, NOW)
        assert isinstance(found, NewMessage)
        assert (found.inbound.text, found.inbound.mentions_us, found.inbound.at) == (said, True, NOW)
        assert (found.inbound.source.scope_id, found.inbound.source.user_id) == ("T0001", "U2147483697")
        assert found.inbound.source.message_id == "command:13345224609.738474920.8088930838d88f008e0"


def press(**changed: Any) -> dict[str, Any]:
    message = {"type": "message", "ts": "1548261231.000200", "text": "May I?", "bot_id": US.bot, "user": US.user}
    action = {"action_id": "palaver:0", "block_id": "=qXel", "value": "/approve 7", "action_ts": "1548426417.840180"}
    return {
        "type": "block_actions",
        "team": {"id": "T9TK3CUKW", "domain": "example"},
        "user": {"id": "UA8RXUSPL", "username": "jtorrance", "team_id": "T9TK3CUKW"},
        "container": {"type": "message", "message_ts": "1548261231.000200", "channel_id": "CBR2V3XEX"},
        "trigger_id": "12321423423.333649436676.d8c1bb837935619ccad0f624c448ffb3",
        "channel": {"id": "CBR2V3XEX", "name": "review-updates"},
        "message": {**message, **changed.pop("message", {})},
        "actions": [{**action, **changed}],
    }


def test_an_action_in_a_modal_is_no_answer() -> None:
    """It has a view in place of a channel and a message."""
    pressed = press(action_id="approve_plan", type="button")
    view = {"id": "V0PKB1ZFV", "type": "modal", "callback_id": "plan", "hash": "1548261231.abc"}
    modal = {name: value for name, value in pressed.items() if name not in {"channel", "message"}}
    modal |= {"view": view, "container": {"type": "view", "view_id": "V0PKB1ZFV"}}
    assert parse(modal, US, NOW) is None
    assert parse({**modal, "actions": press()["actions"]}, US, NOW) is None


def test_a_pressed_button_says_what_it_is_for() -> None:
    found = parse(press(message={"thread_ts": "1548261000.000100"}), US._replace(reply_in_thread=True), NOW)
    assert isinstance(found, ButtonPress)
    assert found.inbound == Inbound(
        source=Source(
            platform="slack",
            account="helper",
            chat_kind="channel",
            chat_id="CBR2V3XEX",
            thread_id="1548261000.000100",
            scope_id="T9TK3CUKW",
            user_id="UA8RXUSPL",
            message_id="action:1548261231.000200:1548426417.840180",
        ),
        text="/approve 7",
        at=datetime.fromtimestamp(1548426417.840180, UTC),
        mentions_us=True,
    )
    assert parse(press(action_id="survey"), US, NOW) is None, "not one of our buttons"


def test_news_of_names_and_ids() -> None:
    user = {"id": "U1", "name": "ann", "profile": {"display_name": "", "real_name": "Ann Lee"}}
    assert parse(payload(type="user_change", user=user), US, NOW) == Renamed("U1", "Ann Lee")
    assert parse(payload(type="channel_rename", channel={"id": "C1", "name": "ops"}), US, NOW) == Renamed("C1", "ops")
    moved = payload(type="channel_id_changed", old_channel_id="G1", new_channel_id="C1")
    assert parse(moved, US, NOW) == ChatRenumbered("G1", "C1")
