"""Events become messages and changes of messages; no matter what else they are, nothing breaks."""

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from palaver.model.label import Label
from palaver.model.source import GROUP, Labels
from palaver.model.turn import Inbound, Revision
from palaver.platforms.matrix.parse import EventContext, parse, parse_event, trust_of

SCENE = EventContext(
    account="helper",
    us="@helper:example.org",
    our_name="Helper",
    chat_id="!room:example.org",
    kind=GROUP,
    title="Dev",
    name="alice",
    topic="releases",
)


def event(content: Any, kind: str = "m.room.message", **more: Any) -> dict[str, Any]:
    return {
        "type": kind,
        "event_id": "$one",
        "sender": "@alice:example.org",
        "origin_server_ts": 1_700_000_000_000,
        "content": content,
        **more,
    }


def said(body: str, **more: Any) -> Inbound:
    inbound = parsed(event({"msgtype": "m.text", "body": body, **more}))
    assert inbound
    return inbound


def parsed(source: dict[str, Any], scene: EventContext = SCENE) -> Inbound | None:
    read = parse_event(source)
    return parse(read, scene) if read else None


def related(**relation: Any) -> dict[str, Any]:
    return {"m.relates_to": relation}


def test_a_message_has_its_ids_its_time_and_its_names_as_labels() -> None:
    inbound = said("hi")
    assert inbound.source.to_json() == {
        "platform": "matrix",
        "chat_kind": "group",
        "account": "helper",
        "chat_id": "!room:example.org",
        "user_id": "@alice:example.org",
        "profile": "main",
        "message_id": "$one",
    }
    assert inbound.at == datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)
    assert inbound.labels == Labels(chat=Label("Dev"), user=Label("alice"), topic=Label("releases"))
    assert not inbound.mentions_us


def test_a_thread_is_known_by_its_first_message_and_answers_nothing_unless_somebody_answers() -> None:
    falling_back = {"m.in_reply_to": {"event_id": "$last"}, "is_falling_back": True}
    in_thread = said("hi", **related(rel_type="m.thread", event_id="$root", **falling_back))
    assert (in_thread.source.thread_id, in_thread.reply_to) == ("$root", None)
    answer = said("hi", **related(rel_type="m.thread", event_id="$root", **{"m.in_reply_to": {"event_id": "$two"}}))
    assert (answer.source.thread_id, answer.reply_to) == ("$root", "$two")


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ("> <@bob:example.org> are you\n> there?\n\nyes", "yes"),
        ("> <@bob:example.org> first\n\n> second is mine", "> second is mine"),
        ("yes", "yes"),
        ("> a quote of my own", "> a quote of my own"),
    ],
)
def test_what_old_clients_quote_of_the_answered_message_is_taken_off(body: str, text: str) -> None:
    inbound = said(body, **related(**{"m.in_reply_to": {"event_id": "$two"}}))
    assert (inbound.text, inbound.reply_to) == (text, "$two")


def test_an_edit_is_a_change_of_the_message_it_replaces() -> None:
    new = {"m.new_content": {"msgtype": "m.text", "body": "hello"}}
    inbound = said("* hello", **new, **related(rel_type="m.replace", event_id="$first"))
    assert (inbound.source.message_id, inbound.text) == ("$first", "hello")
    assert inbound.revision == Revision(version="$one")


@pytest.mark.parametrize(
    "source", [event({"redacts": "$first"}, "m.room.redaction"), event({}, "m.room.redaction", redacts="$first")]
)
def test_a_redaction_is_a_deletion_in_old_and_new_rooms(source: dict[str, Any]) -> None:
    inbound = parsed(source)
    assert inbound
    assert (inbound.source.message_id, inbound.source.user_id) == ("$first", None)
    assert inbound.revision == Revision(version="$one", deleted=True)


@pytest.mark.parametrize(
    ("content", "text", "is_meant"),
    [
        ({"body": "Helper: hi", "m.mentions": {"user_ids": ["@helper:example.org"]}}, "hi", True),
        ({"body": "Helper hi", "m.mentions": {"user_ids": ["@helper:example.org"]}}, "hi", True),
        ({"body": "hi Helper", "m.mentions": {"user_ids": ["@helper:example.org"]}}, "hi Helper", True),
        ({"body": "Helper hi", "m.mentions": {}}, "Helper hi", False),
        ({"body": "helper, hi"}, "hi", True),
        ({"body": "@helper:example.org hi"}, "hi", True),
        ({"body": "@helper hi"}, "hi", True),
        ({"body": "@helperette hi"}, "@helperette hi", False),
        ({"body": "helpers: hi"}, "helpers: hi", False),
        ({"body": "hey @helper:example.org"}, "hey @helper:example.org", True),
        (
            {
                "body": "Helper hi",
                "formatted_body": '<a href="https://matrix.to/#/%40helper%3Aexample.org">Helper</a> hi',
            },
            "hi",
            True,
        ),
        ({"body": "Helper: hi", "m.mentions": {"user_ids": ["@bob:example.org"]}}, "hi", True),
    ],
)
def test_who_mentions_us_means_us_and_our_name_at_the_beginning_is_taken_off(
    content: dict[str, Any], text: str, is_meant: bool
) -> None:
    inbound = parsed(event({"msgtype": "m.text", **content}))
    assert inbound
    assert (inbound.text, inbound.mentions_us) == (text, is_meant)


def test_a_file_has_its_name_its_claims_and_a_handle() -> None:
    about = {"mimetype": "image/png", "size": 12}
    inbound = said("cat.png", msgtype="m.image", url="mxc://example.org/abc", info=about)
    (file,) = inbound.files
    assert (file.name, file.media_type, file.size, file.handle) == (
        Label("cat.png"),
        "image/png",
        12,
        "mxc://example.org/abc",
    )
    assert not inbound.text


def test_words_that_go_with_a_file_are_distinguished_from_its_name() -> None:
    inbound = said("look at this", msgtype="m.file", filename="a.txt", url="mxc://example.org/abc")
    assert (inbound.text, inbound.files[0].name) == ("look at this", Label("a.txt"))


@pytest.mark.parametrize("about", [{"size": -1}, {"size": "many"}, {"mimetype": 3}, None, "none"])
def test_false_claims_about_a_file_lose_no_words(about: Any) -> None:
    inbound = said("look", msgtype="m.file", filename="a.txt", url="mxc://example.org/abc", info=about)
    assert inbound.text == "look" or inbound.files


def test_a_notice_is_of_a_bot() -> None:
    read = parse_event(event({"msgtype": "m.notice", "body": "beep"}))
    assert read
    assert trust_of(read).is_bot


@pytest.mark.parametrize(
    "source",
    [
        event({"body": "no type"}),
        event({"msgtype": "m.key.verification.request", "body": "verify"}),
        event({"m.relates_to": {"rel_type": "m.annotation", "event_id": "$x"}}, "m.reaction"),
        event({"m.relates_to": {"rel_type": "m.thread", "event_id": "$x", "key": "👍"}}, "m.reaction"),
        event({"membership": "join"}, "m.room.member", state_key="@alice:example.org"),
        event("nothing"),
        {"type": "m.room.message"},
        {},
    ],
)
def test_what_is_no_message_is_passed_over(source: dict[str, Any]) -> None:
    assert parsed(source) is None


_NO_ID = "$" + "é" * 128


def test_what_is_too_long_to_be_an_id_is_none() -> None:
    """Strangers choose what they call the message that they change, and the thread that they write in."""
    new = {"msgtype": "m.text", "body": "x", "m.new_content": {"msgtype": "m.text", "body": "hello"}}
    assert parsed(event({**new, **related(rel_type="m.replace", event_id=_NO_ID)})) is None
    assert parsed(event({"redacts": _NO_ID}, "m.room.redaction")) is None
    assert parsed(event({}, "m.room.redaction", redacts=_NO_ID)) is None
    answered = {"m.in_reply_to": {"event_id": _NO_ID}}
    inbound = said("hi", **related(rel_type="m.thread", event_id=_NO_ID, **answered))
    assert (inbound.text, inbound.source.thread_id, inbound.reply_to) == ("hi", None, None)


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
_FIELDS = (
    "body",
    "msgtype",
    "m.relates_to",
    "m.new_content",
    "m.mentions",
    "info",
    "file",
    "url",
    "filename",
    "redacts",
)


@settings(max_examples=40)
@given(
    content=st.dictionaries(st.sampled_from(_FIELDS), _JSON),
    moment=st.integers(),
    kind=st.sampled_from(["m.room.message", "m.room.redaction", "m.sticker"]),
)
def test_nothing_breaks_no_matter_what_a_stranger_sends(content: dict[str, Any], moment: int, kind: str) -> None:
    parsed(event(content, kind, origin_server_ts=moment))
