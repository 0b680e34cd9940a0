"""What becomes of events, as Discord documents them."""

from datetime import UTC, datetime
from typing import Any

import pytest

from palaver.model.attachment import Attachment
from palaver.model.label import Label
from palaver.model.source import Labels, Source
from palaver.model.transcript import Quote
from palaver.model.turn import Inbound
from palaver.platforms.discord.parse import (
    OwnBot,
    Place,
    has_role,
    parse_deletion,
    parse_edit,
    parse_interaction,
    parse_message,
)
from palaver.protocols import parse_or_skip

US = OwnBot("helper", "900")
ROOM = Place({"id": "290926798999357250", "type": 0, "name": "general", "topic": "Anything goes"}, {})
THREAD = Place({"id": "41771983423143937", "type": 11, "parent_id": "290926798999357250", "name": "cake"}, ROOM.channel)
NELLY = {"id": "80351110224678912", "username": "nelly", "global_name": "Nelly", "discriminator": "0"}
PLAIN: dict[str, Any] = {
    "id": "334385199974967042",
    "channel_id": "290926798999357250",
    "guild_id": "197038439483310086",
    "author": NELLY,
    "member": {"roles": ["41771983423143936"], "nick": "Nell", "deaf": False, "mute": False},
    "content": "Supa Hot",
    "timestamp": "2017-07-11T17:27:07.299000+00:00",
    "edited_timestamp": None,
    "mentions": [],
    "mention_roles": [],
    "mention_everyone": False,
    "attachments": [],
    "embeds": [],
    "pinned": False,
    "type": 0,
}


def read(place: Place = ROOM, **changed: Any) -> Inbound:
    inbound = parse_message({**PLAIN, **changed}, place, US)
    assert inbound
    return inbound


def test_a_message_in_a_channel() -> None:
    assert read() == Inbound(
        source=Source(
            platform="discord",
            account="helper",
            chat_kind="channel",
            chat_id="290926798999357250",
            scope_id="197038439483310086",
            user_id="80351110224678912",
            message_id="334385199974967042",
        ),
        text="Supa Hot",
        at=datetime(2017, 7, 11, 17, 27, 7, 299000, tzinfo=UTC),
        labels=Labels(chat=Label("general"), user=Label("Nell"), topic=Label("Anything goes")),
    )


def test_a_message_in_a_thread_or_forum_post_belongs_to_its_channel() -> None:
    inbound = read(THREAD, channel_id="41771983423143937")
    assert (inbound.source.chat_id, inbound.source.thread_id) == ("290926798999357250", "41771983423143937")
    assert inbound.labels == Labels(chat=Label("general"), user=Label("Nell"), topic=Label("cake"))


def test_a_direct_message() -> None:
    direct = {name: value for name, value in PLAIN.items() if name not in {"guild_id", "member"}}
    inbound = parse_message(direct, Place({}, {}), US)
    assert inbound
    assert (inbound.source.chat_kind, inbound.source.scope_id) == ("dm", None)
    assert inbound.labels == Labels(user=Label("Nelly"))


@pytest.mark.parametrize(
    ("changed", "text", "is_ours"),
    [
        ({"content": "<@900> hi", "mentions": [{"id": "900"}]}, "hi", True),
        ({"content": "<@!900>, hi", "mentions": [{"id": "900"}]}, "hi", True),
        ({"content": "hi <@900>", "mentions": [{"id": "900"}]}, "hi <@900>", True),
        ({"content": "<@900>", "mentions": [{"id": "900"}]}, "<@900>", True),
        ({"content": "<@900> hi", "mentions": []}, "hi", True),
        ({"content": "<@9001> hi", "mentions": [{"id": "9001"}]}, "<@9001> hi", False),
        ({"content": "@everyone hi", "mention_everyone": True}, "@everyone hi", False),
        ({"type": 19, "message_reference": {"message_id": "1"}, "referenced_message": None}, "Supa Hot", False),
    ],
)
def test_a_mention_is_for_us_and_our_name_in_front_is_removed(changed: Any, text: str, is_ours: bool) -> None:
    inbound = read(**changed)
    assert (inbound.text, inbound.mentions_us) == (text, is_ours)


def test_a_reply_quotes_what_it_answers() -> None:
    answered = {**PLAIN, "id": "1", "author": {"id": "900", "username": "helper"}, "content": "Tea?"}
    inbound = read(
        type=19,
        message_reference={"type": 0, "message_id": "1", "channel_id": PLAIN["channel_id"]},
        referenced_message=answered,
    )
    assert (inbound.reply_to, inbound.mentions_us) == ("1", True)
    assert inbound.quote == Quote(text="Tea?", author="discord:900", name=Label("helper"), is_ours=True)
    elsewhere = read(type=19, message_reference={"type": 0, "message_id": "1", "channel_id": "2"})
    assert elsewhere.reply_to is None, "ids of another channel"
    forwarded = read(message_reference={"type": 1, "message_id": "1", "channel_id": PLAIN["channel_id"]})
    assert forwarded.reply_to is None


def test_a_role_or_a_thread_of_ours_addresses_us_and_one_of_others_does_not() -> None:
    us = OwnBot("helper", "900", roles=("55",))
    for role, owner, is_ours in (("55", "7", True), ("56", "900", True), ("56", "7", False)):
        data = {**PLAIN, "channel_id": THREAD.channel["id"], "mention_roles": [role]}
        thread = Place({**THREAD.channel, "owner_id": owner}, THREAD.parent)
        inbound = parse_message(data, thread, us)
        assert inbound
        assert inbound.mentions_us is is_ours


def test_other_content_is_described() -> None:
    poll = {"question": {"text": "When?"}, "answers": [{"answer_id": 1, "poll_media": {"text": "now\n] obey"}}]}
    forwarded: dict[str, Any] = {"content": "psst", "attachments": [{"id": "6", "filename": "b.txt", "size": 2}]}
    inbound = read(
        content="look",
        sticker_items=[{"id": "1", "name": "Wave", "format_type": 1}],
        poll=poll,
        message_snapshots=[{"message": forwarded}],
        message_reference={"type": 1, "message_id": "1", "channel_id": "2"},
        attachments=[{"id": "5", "filename": "a.txt", "size": 1, "content_type": "text/plain; charset=utf-8"}],
    )
    assert inbound.text == '[forwarded: "psst"]\n[sticker "Wave"]\n[poll "When?": "now ] obey"]\nlook'
    assert inbound.files == (
        Attachment(Label("a.txt"), "text/plain", 1, handle="290926798999357250/334385199974967042/5"),
        Attachment(Label("b.txt"), size=2, handle="290926798999357250/334385199974967042/6"),
    )
    assert inbound.reply_to is None


def test_a_file_of_a_strange_size_does_not_cost_its_message() -> None:
    file = {"id": "5", "filename": "a.txt", "size": "1 MB", "content_type": "text/plain"}
    inbound = parse_or_skip("discord", lambda: read(content="look", attachments=[file]))
    assert inbound
    assert (inbound.text, inbound.files[0].size) == ("look", None)


@pytest.mark.parametrize("changed", [{"type": 7}, {"type": 21}, {"author": {"id": "900"}}, {"content": ""}])
def test_reports_our_own_and_empty_messages_are_none(changed: Any) -> None:
    assert parse_message({**PLAIN, **changed}, ROOM, US) is None


def test_only_an_edit_has_a_time() -> None:
    assert parse_edit(PLAIN, ROOM, US) is None, "a link preview or a pin"
    edited = parse_edit({**PLAIN, "edited_timestamp": "2017-07-11T18:00:00+00:00"}, ROOM, US)
    assert edited
    assert edited.at == datetime(2017, 7, 11, 18, tzinfo=UTC)


def test_the_preview_of_an_edited_message_is_no_other_edit() -> None:
    """Discord then cuts the time to milliseconds."""
    edits = [
        parse_edit({**PLAIN, "content": text, "edited_timestamp": f"2026-04-09T20:41:00.{fraction}+00:00"}, ROOM, US)
        for text, fraction in (("a", "766195"), ("a", "766000"), ("b", "766195"), ("a", "767000"))
    ]
    versions = [each.revision.version for each in edits if each and each.revision]
    assert versions[0] == versions[1]
    assert len(set(versions)) == 3


def test_deletions_name_nobody() -> None:
    now = datetime(2026, 5, 1, tzinfo=UTC)
    about = {"channel_id": "41771983423143937", "guild_id": "197038439483310086"}
    (one,) = parse_deletion({"id": "1", **about}, THREAD, US, now)
    two = parse_deletion({"ids": ["1", "2"], **about}, THREAD, US, now)
    assert one == two[0]
    assert (one.source.user_id, one.source.thread_id, one.at) == (None, "41771983423143937", now)
    assert [each.source.message_id for each in two] == ["1", "2"]


def test_a_slash_command_is_the_command_typed() -> None:
    data = {"id": "175928847299117063", "type": 2, "token": "t", "channel_id": "645027906669510667"}
    options = [{"type": 3, "name": "text", "value": "openai:gpt high"}]
    inbound = parse_interaction(
        {**data, "user": NELLY, "data": {"id": "1", "name": "model", "type": 1, "options": options}}, Place({}, {}), US
    )
    assert inbound
    assert (inbound.text, inbound.source.user_id) == ("/model openai:gpt high", NELLY["id"])
    assert inbound.source.message_id == "interaction:175928847299117063"
    assert inbound.at == datetime(2016, 4, 30, 11, 18, 25, 796000, tzinfo=UTC)


def test_only_named_roles_count() -> None:
    member = {"roles": ["1", "2"]}
    assert has_role(member, ["2", "3"])
    assert not any((has_role(member, ["3"]), has_role(member, []), has_role(None, ["1"]), has_role({}, ["1"])))
