"""What a message of BlueBubbles becomes, with payloads in the form that its serializer writes."""

from datetime import UTC, datetime
from typing import Any

import pytest

from palaver.platforms.imessage.parse import Context, is_complete, parse, related
from palaver.protocols import UNKNOWN_TYPE, Attachment, Inbound, Label, Quote, Revision, Source
from tests.platforms.imessage.world import ANN, DM_GUID, GROUP_GUID, US, Json, Mac

MENTION = "__kIMMentionConfirmedMention"


def parsed(message: Json, *, name: str | None = None, replied: Json | None = None) -> list[Inbound]:
    return parse(message, Context(account="mac", us=US, name=Label.of(name), replied=replied))


@pytest.fixture
def mac() -> Mac:
    return Mac()


def test_a_message_in_a_direct_chat(mac: Mac) -> None:
    message = mac.add(DM_GUID, "hello", dateCreated=1_777_000_000_123)
    (inbound,) = parsed(message, name="Ann Lee")
    assert inbound.source == Source(
        platform="imessage",
        account="mac",
        chat_kind="dm",
        chat_id="iMessage;-;+15551234567",
        user_id="+15551234567",
        message_id=message["guid"],
    )
    assert (inbound.text, inbound.at) == ("hello", datetime(2026, 4, 24, 3, 6, 40, 123000, UTC))
    assert (inbound.labels.user, inbound.labels.chat) == (Label("Ann Lee"), None)
    assert not inbound.mentions_us


def test_a_group_has_a_name_and_is_known_by_its_style_or_by_its_id(mac: Mac) -> None:
    mac.chat(GROUP_GUID, "Family")
    message = mac.add(GROUP_GUID, "hello", sender="ann@example.org")
    (inbound,) = parsed(message)
    assert (inbound.source.chat_kind, inbound.source.user_id) == ("group", "ann@example.org")
    assert inbound.labels.chat == Label("Family")
    for changed in ({"guid": "any;+;chat1", "style": None}, {"guid": "odd", "style": 43}):
        assert parsed({**message, "chats": [{**message["chats"][0], **changed}]})[0].source.chat_kind == "group"


def test_a_chat_with_one_person_names_the_sender_even_if_the_message_does_not(mac: Mac) -> None:
    assert parsed(mac.add(DM_GUID, "hello", handle=None))[0].source.user_id == ANN
    assert parsed(mac.add(GROUP_GUID, "hello", handle=None))[0].source.user_id is None


@pytest.mark.parametrize(
    "fields",
    [
        {"isFromMe": True},
        {"associatedMessageType": "2006", "associatedMessageGuid": "p:0/1"},
        {"associatedMessageType": "sticker", "associatedMessageGuid": "bp:1"},
        {"itemType": 2, "groupTitle": "Family"},
        {"itemType": 1, "groupActionType": 0},
        {"isSystemMessage": True},
        {"isServiceMessage": True},
    ],
)
def test_what_is_not_said_to_us_is_ignored(mac: Mac, fields: Json) -> None:
    assert related(mac.add(GROUP_GUID, "x", **fields)) is None


def test_a_tapback_on_our_message_is_overheard_and_others_are_ignored(mac: Mac) -> None:
    ours, theirs = mac.add(DM_GUID, "Shall I?", isFromMe=True), mac.add(DM_GUID, "I wonder")
    for kind, guid, said in (
        ("like", f"p:0/{ours['guid']}", "[reacted with 👍]"),
        ("-laugh", f"bp:{ours['guid']}", "[took back 😂]"),
    ):
        tapback = mac.add(DM_GUID, "Liked “Shall I?”", associatedMessageType=kind, associatedMessageGuid=guid)
        assert related(tapback) == (ANN, ours["guid"])
        (found,) = parse(tapback, Context("mac", replied=ours))
        assert (found.text, found.observed, found.reply_to) == (said, True, ours["guid"])
        assert found.quote
        assert (found.quote.text, found.quote.is_ours) == ("Shall I?", True)
        assert parse(tapback, Context("mac", replied=theirs)) == []
        assert parse(tapback, Context("mac")) == [], "it was deleted"


def test_what_to_look_up(mac: Mac) -> None:
    assert related(mac.add(DM_GUID, "x")) == (ANN, None)
    assert related(mac.add(DM_GUID, "x", threadOriginatorGuid="G")) == (ANN, "G")


def test_files_come_with_name_type_and_size(mac: Mac) -> None:
    message = mac.add(DM_GUID, "look \ufffc")
    mac.attach(message, [("a.pdf", "application/pdf", b"12345"), ("IMG_1.HEIC", "image/heic", b"123"), ("b", "", b"")])
    message["attachments"].append({"guid": "preview", "hideAttachment": True, "transferName": "x.pluginPayload"})
    (inbound,) = parsed(message)
    assert inbound.text == "look "
    guids = [file["guid"] for file in message["attachments"]]
    assert inbound.files == (
        Attachment(Label("a.pdf"), "application/pdf", 5, handle=guids[0]),
        Attachment(Label("IMG_1.HEIC"), "image/heic", None, handle=guids[1]),
        Attachment(Label("b"), UNKNOWN_TYPE, None, handle=guids[2]),
    )


def test_a_message_whose_files_are_not_known_yet_is_incomplete(mac: Mac) -> None:
    message = mac.add(DM_GUID, "look")
    assert is_complete(message)
    mac.attach(message, [("a.pdf", "application/pdf", b"12345")])
    assert is_complete(message)
    message["attachments"].clear()
    assert not is_complete(message)
    assert is_complete({**message, "attributedBody": None})


def test_a_subject_stands_before_the_text_and_an_app_is_named(mac: Mac) -> None:
    assert parsed(mac.add(DM_GUID, "at nine", subject="Dinner"))[0].text == "Dinner\nat nine"
    app = parsed(mac.add(DM_GUID, "\ufffc", balloonBundleId="com.apple.messages.MSMessageExtensionBalloonPlugin:x"))
    assert app[0].text == "[an iMessage app, not supported here]"
    link = parsed(mac.add(DM_GUID, "https://example.org", balloonBundleId="com.apple.messages.URLBalloonProvider"))
    assert link[0].text == "https://example.org"
    assert parsed(mac.add(DM_GUID, None)) == []


def test_a_reply_shows_what_it_replies_to(mac: Mac) -> None:
    ours, bobs = mac.add(GROUP_GUID, "At nine?", sender=None), mac.add(GROUP_GUID, "no", sender="bob@example.org")
    for root, quote in (
        (ours, Quote(text="At nine?", is_ours=True)),
        (bobs, Quote(text="no", author="imessage:bob@example.org")),
    ):
        (inbound,) = parsed(mac.add(GROUP_GUID, "yes", threadOriginatorGuid=root["guid"]), replied=root)
        assert (inbound.reply_to, inbound.quote, inbound.mentions_us) == (root["guid"], quote, root is ours)


@pytest.mark.parametrize(
    ("string", "start", "name", "text"),
    [
        ("Helper what time?", 0, "Helper", "what time?"),
        ("@Helper: what time?", 0, "@Helper", "what time?"),
        ("👋🏽 Helper, hi", 5, "Helper", "👋🏽 Helper, hi"),
        ("Helper", 0, "Helper", "Helper"),
    ],
)
def test_a_mention_of_us(mac: Mac, string: str, start: int, name: str, text: str) -> None:
    for address, is_ours in ((US, True), ("bob@example.org", False)):
        body = [{"string": string, "runs": [{"range": [start, len(name)], "attributes": {MENTION: address}}]}]
        (inbound,) = parsed(mac.add(GROUP_GUID, string, attributedBody=body))
        assert (inbound.text, inbound.mentions_us) == (text if is_ours else string, is_ours)


def test_an_edited_message_comes_with_all_that_it_said(mac: Mac) -> None:
    message = mac.add(DM_GUID, "one")
    mac.edit(message, "two")
    first = parsed(message)
    mac.edit(message, "three")
    said, two, three = parsed(message)
    assert [each.text for each in (said, two, three)] == ["one", "two", "three"]
    assert said.revision is None
    assert two.revision == first[1].revision, "a version keeps its id"
    assert two.revision != three.revision
    assert said.at < two.at <= three.at
    assert {each.source for each in (said, two, three)} == {said.source}


def test_an_edit_without_a_history_has_only_its_last_text(mac: Mac) -> None:
    message = mac.add(DM_GUID, "one")
    mac.edit(message, "two")
    infos: list[Any] = [None, [{"editedContent": {"0": [], "1": []}}], [{}]]
    for info in infos:
        said, edited = parsed({**message, "messageSummaryInfo": info})
        assert (said.text, edited.text) == ("two", "two")
        assert edited.revision == Revision(version=str(message["dateEdited"]))


def test_a_message_with_files_is_edited_without_them(mac: Mac) -> None:
    message = mac.add(DM_GUID, "look")
    mac.edit(message, "look here")
    mac.attach(message, [("a.pdf", "application/pdf", b"12345")])
    said, edited = parsed(message)
    assert (len(said.files), edited.files, edited.text) == (1, (), "look here")


def test_an_unsent_message_is_deleted(mac: Mac) -> None:
    message = mac.add(DM_GUID, "one")
    mac.unsend(message)
    (deleted,) = parsed(message)
    assert (deleted.text, deleted.revision and deleted.revision.deleted) == ("", True)
    later = mac.now()
    (again,) = parsed({**message, "dateRetracted": later})
    assert again.at == datetime.fromtimestamp(later / 1000, UTC)
    edited = mac.add(DM_GUID, "one")
    mac.edit(edited, "two")
    mac.unsend(edited)
    assert [(each.text, bool(each.revision and each.revision.deleted)) for each in parsed(edited)] == [
        ("one", False),
        ("two", False),
        ("", True),
    ]


def test_one_part_that_is_unsent_is_an_edit(mac: Mac) -> None:
    message = mac.add(DM_GUID, "what is left")
    message.update(dateEdited=mac.now(), partCount=1, messageSummaryInfo=[{"retractedParts": [1]}])
    assert [(each.text, bool(each.revision)) for each in parsed(message)] == [
        ("what is left", False),
        ("what is left", True),
    ]
