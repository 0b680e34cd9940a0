"""Webhooks as Meta documents them become messages; what is odd in them harms nothing."""

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaver.model.label import Label
from palaver.model.turn import Inbound
from palaver.platforms.whatsapp.parse import (
    Change,
    FailedSend,
    OwnNumber,
    list_changes,
    parse_change,
    parse_failure,
    parse_message,
)
from palaver.protocols.incoming import parse_or_skip
from tests.platforms.whatsapp.fakes import ALICE, GROUP_ID, said
from tests.platforms.whatsapp.server import DISPLAY_NUMBER, NUMBER_ID

US = OwnNumber(account="shop", id=NUMBER_ID)


def update(*messages: Any, **value: Any) -> dict[str, Any]:
    metadata = {"display_phone_number": DISPLAY_NUMBER, "phone_number_id": NUMBER_ID}
    change = {"messaging_product": "whatsapp", "metadata": metadata, "messages": list(messages), **value}
    return {"object": "whatsapp_business_account", "entry": [{"changes": [{"field": "messages", "value": change}]}]}


def changes(update: Any) -> list[Change]:
    return [change for raw in list_changes(update) if (change := parse_change(raw))]


def parsed(message: dict[str, Any], **value: Any) -> Inbound:
    (change,) = changes(update(message, **value))
    found = parse_message(change.messages[0], change, US)
    assert found
    return found.inbound


def test_a_text_has_its_sender_name_and_time() -> None:
    message = said("text", {"body": "Does it come in another color?"})
    inbound = parsed(message, contacts=[{"profile": {"name": "Sheena"}, "wa_id": ALICE}])
    assert inbound.text == "Does it come in another color?"
    assert inbound.at == datetime(2025, 6, 8, 20, 59, 43, tzinfo=UTC)
    assert inbound.labels.user == Label("Sheena")
    source = inbound.source
    assert (source.chat_kind, source.chat_id, source.user_id) == ("dm", ALICE, ALICE)
    assert source.message_id == message["id"]


@pytest.mark.parametrize(
    ("kind", "content", "name", "media_type", "text"),
    [
        ("image", {"id": "1", "mime_type": "image/jpeg", "caption": "look"}, "image.jpg", "image/jpeg", "look"),
        ("video", {"id": "1", "mime_type": "video/mp4"}, "video.mp4", "video/mp4", ""),
        ("audio", {"id": "1", "mime_type": "audio/ogg; codecs=opus", "voice": True}, "audio.ogg", "audio/ogg", ""),
        ("sticker", {"id": "1", "mime_type": "image/webp", "animated": False}, "sticker.webp", "image/webp", ""),
        (
            "document",
            {"id": "1", "mime_type": "application/pdf", "filename": "../a.pdf", "caption": "read"},
            "../a.pdf",
            "application/pdf",
            "read",
        ),
        ("document", {"id": 1}, "document", "application/octet-stream", ""),
    ],
)
def test_media_are_announced(kind: str, content: Any, name: str, media_type: str, text: str) -> None:
    inbound = parsed(said(kind, content))
    (file,) = inbound.files
    assert (file.name, file.media_type, file.size, file.handle) == (Label(name), media_type, None, "1")
    assert inbound.text == text


@pytest.mark.parametrize(
    ("kind", "content", "text"),
    [
        ("button", {"payload": "/approve 7", "text": "Approve"}, "/approve 7"),
        ("button", {"text": "Approve"}, "Approve"),
        ("interactive", {"type": "button_reply", "button_reply": {"id": "/deny 7", "title": "Deny"}}, "/deny 7"),
        ("interactive", {"type": "list_reply", "list_reply": {"id": "row", "title": "A row"}}, "row"),
        ("interactive", {"type": "call_permission_reply"}, "[call_permission_reply, which cannot be shown here]"),
        (
            "interactive",
            {
                "type": "nfm_reply",
                "nfm_reply": {
                    "name": "flow",
                    "body": "Sent",
                    "response_json": '{"flow_token": "t1", "day": "/new", "people": 4, "diets": ["vegan", "kosher"]}',
                },
            },
            '[form "flow"]\nday: /new\npeople: 4\ndiets: ["vegan", "kosher"]',
        ),
        (
            "order",
            {
                "catalog_id": "194",
                "text": "Gift wrapped, please",
                "product_items": [
                    {"product_retailer_id": "di9ozbzfi4", "quantity": 2, "item_price": 30, "currency": "USD"},
                    {"product_retailer_id": "nqryix03ez", "quantity": 1, "item_price": 5.5, "currency": "USD"},
                ],
            },
            "[order]\n2 x di9ozbzfi4, 30 USD\n1 x nqryix03ez, 5.5 USD\nGift wrapped, please",
        ),
        ("location", {"latitude": 52.5, "longitude": 13.4, "name": "Cafe"}, '[location 52.5, 13.4 "Cafe"]'),
        ("location", {"latitude": "52.5", "longitude": 13.4}, "[location 52.5, 13.4]"),
        (
            "contacts",
            [{"name": {"formatted_name": 'Bob "]'}, "phones": [{"phone": "+49 170"}]}, {}],
            '[contact "Bob \\"]", "+49 170"]\n[contact ""]',
        ),
        ("unsupported", {}, "[unsupported message, which cannot be shown here]"),
    ],
)
def test_other_content_becomes_words(kind: str, content: Any, text: str) -> None:
    inbound = parsed(said(kind, content))
    assert inbound.text == text
    assert inbound.mentions_us is (kind in {"button", "interactive"})


def test_a_reply_knows_what_it_replies_to_and_a_forwarded_command_is_none() -> None:
    ours = parsed(said("text", {"body": "why?"}, context={"from": DISPLAY_NUMBER, "id": "wamid.1"}))
    assert (ours.reply_to, ours.mentions_us) == ("wamid.1", True)
    others = parsed(said("text", {"body": "why?"}, context={"from": "4917", "id": "wamid.1"}))
    assert (others.reply_to, others.mentions_us) == ("wamid.1", False)
    for mark in ("forwarded", "frequently_forwarded"):
        forwarded = parsed(said("text", {"body": "/new"}, context={mark: True}))
        assert (forwarded.text, forwarded.reply_to) == ("[forwarded]\n/new", None)


def test_in_a_group_people_mention_our_number() -> None:
    for text, rest, is_named in (
        (f"@{DISPLAY_NUMBER} hi", "hi", True),
        (f"hi @{DISPLAY_NUMBER}!", f"hi @{DISPLAY_NUMBER}!", True),
        ("hi all", "hi all", False),
        (f"@{DISPLAY_NUMBER}0 hi", f"@{DISPLAY_NUMBER}0 hi", False),
    ):
        inbound = parsed(said("text", {"body": text}, group_id=GROUP_ID))
        assert (inbound.text, inbound.mentions_us) == (rest, is_named)
        assert (inbound.source.chat_kind, inbound.source.chat_id, inbound.source.user_id) == ("group", GROUP_ID, ALICE)
    assert parsed(said("text", {"body": f"@{DISPLAY_NUMBER} hi"})).text == f"@{DISPLAY_NUMBER} hi", "in a direct chat"


def test_somebody_who_hides_their_number_has_another_id() -> None:
    message = said("text", {"body": "hi"}, from_user_id="US.13491208655302741918")
    contact = {"profile": {"name": "Sheena"}, "user_id": "US.13491208655302741918"}
    (change,) = changes(update(message, contacts=[contact]))
    both = parse_message(message, change, US)
    assert both
    assert both.inbound.source.user_id == ALICE
    assert both.aliases == [("US.13491208655302741918", ALICE)]
    hidden = parsed({**message, "from": None}, contacts=[contact])
    assert hidden.source.user_id == hidden.source.chat_id == "US.13491208655302741918"
    assert hidden.labels.user == Label("Sheena")


def test_an_edit_and_a_deletion_name_the_message_they_change() -> None:
    inner = {"type": "image", "image": {"id": "1", "caption": "better"}}
    edited = parsed(said("edit", {"original_message_id": "wamid.1", "message": inner}, id="wamid.2"))
    assert (edited.source.message_id, edited.text) == ("wamid.1", "better")
    assert edited.revision
    assert (edited.revision.version, edited.revision.deleted) == ("wamid.2", False)
    deleted = parsed(said("revoke", {"original_message_id": "wamid.1"}, id="wamid.3"))
    assert deleted.revision
    assert (deleted.source.message_id, deleted.revision.deleted) == ("wamid.1", True)


@pytest.mark.parametrize("kind", ["interactive", "text", "image", "unsupported"])
def test_what_whatsapp_cannot_pass_on_has_an_error_and_no_content(kind: str) -> None:
    message = said(kind, {}, errors=[{"code": 131051, "title": "Message type unknown", "message": "Unsupported"}])
    for raw in (message, {name: value for name, value in message.items() if name != kind}):
        inbound = parsed(raw)
        assert (inbound.text, inbound.files) == (f"[{kind} message, which cannot be shown here]", ())


def test_what_the_agent_need_not_see_is_ignored() -> None:
    for kind in ("system", "request_welcome"):
        message = said(kind, {"message_id": "wamid.1", "emoji": "👍"})
        (change,) = changes(update(message))
        assert parse_message(message, change, US) is None
    assert changes({"entry": [{"changes": [{"field": "account_update", "value": {}}]}]}) == []


def test_only_failures_among_statuses_say_something() -> None:
    for status in ("sent", "delivered", "read"):
        assert parse_failure({"id": "wamid.1", "status": status}) is None
    failed = {"id": "wamid.1", "status": "failed", "errors": [{"code": 131047, "title": "Re-engagement message"}]}
    assert parse_failure(failed) == FailedSend(message_id="wamid.1", code=131047)
    assert parse_failure({"id": "wamid.1", "status": "failed"}) == FailedSend(message_id="wamid.1", code=0)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@given(
    st.fixed_dictionaries(
        {},
        optional={
            "from": JSON,
            "from_user_id": JSON,
            "id": JSON,
            "timestamp": JSON | st.just("1749416383"),
            "type": st.sampled_from(["text", "image", "interactive", "location", "contacts", "edit"]) | JSON,
            "text": JSON,
            "image": JSON,
            "interactive": JSON,
            "location": JSON,
            "contacts": JSON,
            "edit": JSON,
            "context": JSON,
            "group_id": JSON,
        },
    )
)
def test_an_odd_message_is_skipped_or_read_and_raises_nothing_else(message: dict[str, Any]) -> None:
    (change,) = changes(update(message))
    found = parse_or_skip("whatsapp", lambda: parse_message(message, change, US))
    assert found is None or isinstance(found.inbound.text, str)


@given(JSON)
def test_an_odd_update_is_skipped(found: Any) -> None:
    parse_or_skip("whatsapp", lambda: changes({"entry": found}))
