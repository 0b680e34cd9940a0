"""What updates of Telegram mean: as the Bot API documents them, in one table."""

from datetime import UTC, datetime
from typing import Any

import pytest
from telegram import Update

from palaver.model.key import Scope, derive_key
from palaver.model.label import Label
from palaver.model.source import CHANNEL, DM, GROUP, Source, Trust
from palaver.model.transcript import Quote
from palaver.model.turn import Choice, Inbound, Outbound, Reaction, Revision
from palaver.platforms.telegram.parse import ButtonPress, ChatMigrated, NewMessage, OwnBot, parse
from palaver.platforms.telegram.send import keyboard

Json = dict[str, Any]

US = OwnBot("helper", 42, "Helper_Bot")
NOW = datetime(2026, 11, 15, tzinfo=UTC)
AT = 1_700_000_000
ALICE: Json = {"id": 7, "is_bot": False, "first_name": "Alice", "last_name": "Doe"}
BOT: Json = {"id": 42, "is_bot": True, "first_name": "Helper", "username": "Helper_Bot"}
PRIVATE: Json = {"id": 7, "type": "private", "first_name": "Alice"}
GROUP_CHAT: Json = {"id": -5, "type": "group", "title": "Dev"}
FORUM: Json = {"id": -1001, "type": "supergroup", "title": "Forum", "is_forum": True}
NEWS: Json = {"id": -1009, "type": "channel", "title": "News"}


def message(chat: Json = PRIVATE, /, **more: Any) -> Json:
    return {"message_id": 9, "date": AT, "chat": chat, "from": ALICE, **more}


def entity(kind: str, offset: int, length: int, **more: Any) -> Json:
    return {"type": kind, "offset": offset, "length": length, **more}


def heard(content: Json, kind: str = "message") -> NewMessage | ButtonPress | ChatMigrated | None:
    return parse(Update.de_json({"update_id": 500, kind: content}, None), US, NOW)


def said(content: Json, kind: str = "message") -> Inbound:
    found = heard(content, kind)
    assert isinstance(found, NewMessage)
    return found.inbound


def test_a_message_has_ids_as_text_and_names_as_labels() -> None:
    inbound = said(message(GROUP_CHAT, text="hi"))
    assert inbound.source == Source(
        platform="telegram", account="helper", chat_kind=GROUP, chat_id="-5", user_id="7", message_id="9"
    )
    assert (inbound.labels.chat, inbound.labels.user) == (Label("Dev"), Label("Alice Doe"))
    assert inbound.at == datetime.fromtimestamp(AT, UTC)
    assert (inbound.reply_to, inbound.burst, inbound.revision, inbound.mentions_us) == (None, None, None, False)


TOPIC = {"message_thread_id": 77, "is_topic_message": True}


@pytest.mark.parametrize(
    ("content", "kind", "thread"),
    [
        (message(text="x"), DM, None),
        (message(text="x", **TOPIC), DM, "77"),
        (message(GROUP_CHAT, text="x"), GROUP, None),
        (message(FORUM, text="in General"), GROUP, None),
        (message(FORUM, text="x", **TOPIC), GROUP, "77"),
        (message({**FORUM, "is_forum": False}, text="an answer", message_thread_id=77), GROUP, None),
    ],
    ids=["private", "a topic in private", "a group", "the General topic", "a topic", "a thread of answers"],
)
def test_chats_and_topics(content: Json, kind: str, thread: str | None) -> None:
    source = said(content).source
    assert (source.chat_kind, source.thread_id) == (kind, thread)


def test_every_topic_is_a_conversation_of_its_own_and_general_is_the_group() -> None:
    def key(content: Json) -> str:
        return derive_key(said(content).source, Scope()).text

    bob = {**ALICE, "id": 8}
    general, topic, other = (
        message(FORUM, text="x", **more) for more in ({}, TOPIC, {**TOPIC, "message_thread_id": 78})
    )
    assert len({key(general), key(topic), key(other), key(message(text="x")), key(message(text="x", **TOPIC))}) == 5
    assert key(topic) == key({**topic, "from": bob}), "a topic is shared"
    assert key(general) != key({**general, "from": bob}), "a group is not, unless it is set so"


def test_the_first_message_of_a_topic_is_answered_by_nobody_and_what_is_said_there_has_the_same_labels() -> None:
    root = {
        **message(FORUM, **TOPIC),
        "message_id": 77,
        "from": BOT,
        "forum_topic_created": {"name": "Plans", "icon_color": 1},
    }
    inbound = said(message(FORUM, text="x", **TOPIC, reply_to_message=root))
    assert (inbound.reply_to, inbound.mentions_us) == (None, False)
    answer = said(message(FORUM, text="y", **TOPIC, reply_to_message=message(FORUM, text="x", **TOPIC)))
    assert inbound.labels == answer.labels, "of an answer Telegram does not tell the name of the topic"
    assert answer.reply_to == "9", "it replies to something else in the topic"
    plain = {**FORUM, "is_forum": False}
    first = {**message(plain, text="x"), "message_id": 77, "from": BOT}
    chain = said(message(plain, text="y", message_thread_id=77, reply_to_message=first))
    assert (chain.reply_to, chain.mentions_us) == ("77", True), "without topics it is an answer like any other"
    assert heard(root) is None


POST: Json = {"message_id": 9, "date": AT, "chat": NEWS, "text": "x"}
ANONYMOUS: Json = {
    "from": {"id": 1087968824, "is_bot": True, "first_name": "Group", "username": "GroupAnonymousBot"},
    "sender_chat": GROUP_CHAT,
    "author_signature": "boss",
}


@pytest.mark.parametrize(
    ("content", "kind", "user", "name", "is_bot"),
    [
        (message(text="x"), "message", "7", "Alice Doe", False),
        (message(text="x", **{"from": {**ALICE, "is_bot": True}}), "message", "7", "Alice Doe", True),
        (message(GROUP_CHAT, text="x", **ANONYMOUS), "message", "-5", "boss", False),
        (message(GROUP_CHAT, text="x", sender_chat=NEWS), "message", "-1009", "News", False),
        ({**POST, "sender_chat": NEWS}, "channel_post", "-1009", "News", False),
        (POST, "channel_post", None, None, False),
    ],
    ids=["a person", "another bot", "an anonymous admin", "a channel in a group", "a channel", "nobody named"],
)
def test_who_speaks(content: Json, kind: str, user: str | None, name: str | None, is_bot: bool) -> None:
    found = heard(content, kind)
    assert isinstance(found, NewMessage)
    assert found.inbound.source.user_id == user
    assert found.inbound.labels.user == (Label(name) if name else None)
    assert found.trust == Trust(is_bot=is_bot)
    assert (found.inbound.source.chat_kind == CHANNEL) == (kind == "channel_post")


HEART = "💚💚"  # Four UTF-16 units.


@pytest.mark.parametrize(
    ("text", "entities", "shown", "is_ours"),
    [
        ("hello", [], "hello", False),
        ("@helper_bot hello", [entity("mention", 0, 11)], "hello", True),
        ("@HELPER_BOT, hello", [entity("mention", 0, 11)], "hello", True),
        ("@helper_bot", [entity("mention", 0, 11)], "@helper_bot", True),
        (f"{HEART} @helper_bot?", [entity("mention", 5, 11)], f"{HEART} @helper_bot?", True),
        ("@other_bot hello", [entity("mention", 0, 10)], "@other_bot hello", False),
        ("@helper_bot hello", [], "@helper_bot hello", False),
        ("Helper: hello", [entity("text_mention", 0, 6, user=BOT)], "hello", True),
        ("Alice: hello", [entity("text_mention", 0, 5, user=ALICE)], "Alice: hello", False),
        ("/status", [entity("bot_command", 0, 7)], "/status", False),
        ("/start", [entity("bot_command", 0, 6)], "Hello", False),
        ("/start@helper_bot from-a-link", [entity("bot_command", 0, 17)], "Hello", True),
        ("/new@Helper_Bot now", [entity("bot_command", 0, 15)], "/new now", True),
        ("see /new@helper_bot", [entity("bot_command", 4, 15)], "see /new@helper_bot", True),
        ("x", [entity("mention", 50, 90), entity("no_such_kind", 0, 1)], "x", False),
    ],
)
def test_our_name_at_the_beginning_is_taken_off(text: str, entities: list[Json], shown: str, is_ours: bool) -> None:
    for content in (
        {"text": text, "entities": entities},
        {"caption": text, "caption_entities": entities, "photo": PHOTO},
    ):
        inbound = said(message(GROUP_CHAT, **content))
        assert (inbound.text, inbound.mentions_us) == (shown, is_ours)


PHOTO = [
    {"file_id": "small", "file_unique_id": "s", "width": 9, "height": 9, "file_size": 99},
    {"file_id": "large", "file_unique_id": "l", "width": 90, "height": 90, "file_size": 999},
]


def test_a_command_to_another_bot_is_none_of_our_business_in_a_group() -> None:
    command = {"text": "/new@other_bot", "entities": [entity("bot_command", 0, 14)]}
    assert heard(message(GROUP_CHAT, **command)) is None
    assert said(message(**command)).text == "/new@other_bot"


def test_someone_who_answers_us_means_us() -> None:
    ours = {**message(GROUP_CHAT, text="hi"), "message_id": 3, "from": BOT}
    answer = said(message(GROUP_CHAT, text="why?", reply_to_message=ours))
    assert (answer.mentions_us, answer.reply_to) == (True, "3")
    other = said(message(GROUP_CHAT, text="why?", reply_to_message={**ours, "from": ALICE}))
    assert (other.mentions_us, other.reply_to) == (False, "3")
    assert answer.quote is not None
    assert answer.quote.is_ours
    name, author = Label("Alice Doe"), f"telegram:{ALICE['id']}"
    assert other.quote == Quote(text="hi", author=author, name=name)
    part = message(
        GROUP_CHAT, text="why?", reply_to_message={**ours, "from": ALICE}, quote={"text": "a part", "position": 0}
    )
    assert said(part).text == "why?"
    assert said(part).quote == Quote(text="a part", author=author, name=name)


def _file(**more: Any) -> Json:
    return {"file_id": "f", "file_unique_id": "u", "file_size": 5, **more}


def _sticker(**more: Any) -> Json:
    usual = {"width": 1, "height": 1, "type": "regular", "is_animated": False, "is_video": False}
    return _file(**{**usual, **more})


@pytest.mark.parametrize(
    ("content", "name", "media_type"),
    [
        ({"photo": PHOTO}, "photo.jpg", "image/jpeg"),
        ({"document": _file(file_name="../a\nb", mime_type="text/plain")}, "../a\nb", "text/plain"),
        ({"document": _file()}, "document", "application/octet-stream"),
        ({"voice": _file(duration=1, mime_type="audio/ogg")}, "voice.ogg", "audio/ogg"),
        ({"audio": _file(duration=1, file_name="song.mp3")}, "song.mp3", "audio/mpeg"),
        ({"video": _file(duration=1, width=1, height=1)}, "video.mp4", "video/mp4"),
        ({"video_note": _file(duration=1, length=1)}, "video-note.mp4", "video/mp4"),
        ({"animation": _file(duration=1, width=1, height=1), "document": _file()}, "animation.mp4", "video/mp4"),
        ({"sticker": _sticker()}, "sticker.webp", "image/webp"),
        ({"sticker": _sticker(is_animated=True)}, "sticker.tgs", "application/x-tgsticker"),
        ({"sticker": _sticker(is_video=True)}, "sticker.webm", "video/webm"),
    ],
)
def test_files_are_named_with_a_handle(content: Json, name: str, media_type: str) -> None:
    (file,) = said(message(**content, caption="look", media_group_id="album")).files
    handle, size = ("large", 999) if "photo" in content else ("f", 5)
    assert (file.name, file.media_type, file.handle, file.size, file.problem) == (
        Label(name),
        media_type,
        handle,
        size,
        "",
    )


def test_an_album_is_one_burst_and_the_words_are_its_caption() -> None:
    first, second = (said(message(photo=PHOTO, media_group_id="12", **more)) for more in ({"caption": "look"}, {}))
    assert (first.text, second.text, first.burst, second.burst) == ("look", "", "12", "12")


def test_a_file_that_telegram_does_not_give_to_bots_says_so() -> None:
    (file,) = said(message(document=_file(file_size=20_000_001))).files
    assert file.is_settled
    assert "20 MB" in file.problem


PLACE = {"latitude": 52.5, "longitude": 13.4}
VENUE: Json = {"location": PLACE, "title": "Inn", "address": "A\nSt"}
POLL: Json = {
    "id": "1",
    "question": "Tea?",
    "options": [{"text": text, "voter_count": 0, "persistent_id": text} for text in ("yes", "no")],
    "total_voter_count": 0,
    "is_closed": False,
    "is_anonymous": True,
    "type": "regular",
    "allows_multiple_answers": False,
    "allows_revoting": False,
    "members_only": False,
}


def _from(kind: str, **more: Any) -> Json:
    return {"type": kind, "date": AT, **more}


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ({"location": PLACE}, "[location 52.5, 13.4]"),
        ({"venue": VENUE, "location": PLACE}, '[place "Inn", "A St": 52.5, 13.4]'),
        ({"contact": {"phone_number": "+49 1", "first_name": 'B"b'}}, '[contact "B\\"b": +49 1]'),
        ({"poll": POLL}, '[poll "Tea?": "yes", "no"]'),
        ({"checklist": {"title": "Buy", "tasks": [{"id": 1, "text": "tea"}]}}, '[checklist "Buy": "tea"]'),
        ({"dice": {"emoji": "🎲", "value": 4}}, "[dice 🎲: 4]"),
        ({"story": {"chat": PRIVATE, "id": 1}}, "[story, not supported here]"),
        ({"sticker": _sticker(emoji="👍")}, "[sticker 👍]"),
        ({"text": "/new", "forward_origin": _from("user", sender_user=ALICE)}, '[forwarded from "Alice Doe"]\n/new'),
        (
            {"text": "x", "forward_origin": _from("hidden_user", sender_user_name="E]\n[x")},
            '[forwarded from "E] [x"]\nx',
        ),
        ({"text": "x", "forward_origin": _from("channel", chat=NEWS, message_id=1)}, '[forwarded from "News"]\nx'),
        ({"text": "x", "forward_origin": _from("chat", sender_chat=GROUP_CHAT)}, '[forwarded from "Dev"]\nx'),
        (
            {"text": "x", "external_reply": {"origin": _from("user", sender_user=ALICE)}},
            '[in reply to "Alice Doe" elsewhere]\nx',
        ),
        ({"text": "why?", "quote": {"text": "tea", "position": 0}}, '[quoting "tea"]\nwhy?'),
        ({"text": "/new", "quote": {"text": "tea", "position": 0}}, "/new"),
    ],
)
def test_what_is_no_text_is_reported(content: Json, text: str) -> None:
    assert said(message(**content)).text == text


@pytest.mark.parametrize("kind", ["edited_message", "edited_channel_post"])
def test_an_edit_is_a_change_of_its_message(kind: str) -> None:
    inbound = said(message(NEWS if "channel" in kind else PRIVATE, text="new words", edit_date=AT + 60), kind)
    assert (inbound.source.message_id, inbound.text) == ("9", "new words")
    assert inbound.at == datetime.fromtimestamp(AT + 60, UTC)
    assert inbound.revision == Revision(version=f"{AT + 60}.500"), "two edits may share a second, but no update"


def test_a_pressed_button_is_as_good_as_its_words() -> None:
    ours = {**message(FORUM, text="May I?", **TOPIC), "from": BOT}
    query = {"id": "4711", "from": ALICE, "chat_instance": "1", "data": "/approve 7", "message": ours}
    found = heard(query, "callback_query")
    assert isinstance(found, ButtonPress)
    inbound, source = found.inbound, found.inbound.source
    assert (inbound.text, inbound.mentions_us, inbound.at) == ("/approve 7", True, NOW)
    assert (source.message_id, source.chat_id, source.thread_id, source.user_id) == (
        "callback:4711",
        "-1001",
        "77",
        "7",
    )
    assert (found.query, found.chat_id, found.message_id) == ("4711", -1001, 9)


def test_a_button_of_a_message_that_telegram_does_not_show_any_more_is_heard() -> None:
    query = {
        "id": "1",
        "from": ALICE,
        "chat_instance": "1",
        "data": "x",
        "message": {"chat": PRIVATE, "message_id": 3, "date": 0},
    }
    found = heard(query, "callback_query")
    assert isinstance(found, ButtonPress)
    assert (found.inbound.source.chat_id, found.message_id) == ("7", 3)


@pytest.mark.parametrize(("says", "topic"), [("/approve 7-1", "77"), ("x" * 64, None)])
def test_a_button_in_a_topic_knows_where_it_is_when_its_message_is_old(says: str, topic: str | None) -> None:
    asks = Outbound(platform="telegram", chat_id="-1001", thread_id="77", text="", choices=(Choice("Yes", says),))
    markup = keyboard(asks)
    assert markup
    data, old = markup.inline_keyboard[0][0].callback_data, {"chat": FORUM, "message_id": 3, "date": 0}
    found = heard({"id": "1", "from": ALICE, "chat_instance": "1", "data": data, "message": old}, "callback_query")
    assert isinstance(found, ButtonPress)
    assert (found.inbound.text, found.inbound.source.thread_id) == (says, topic)


@pytest.mark.parametrize(
    ("content", "moved"),
    [
        (message(GROUP_CHAT, migrate_to_chat_id=-1001), ChatMigrated("-5", "-1001")),
        (message(FORUM, migrate_from_chat_id=-5), ChatMigrated("-5", "-1001")),
    ],
)
def test_a_group_that_becomes_a_supergroup_has_moved(content: Json, moved: ChatMigrated) -> None:
    assert heard(content) == moved


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        ({**message(GROUP_CHAT, text="x"), "from": BOT}, "message"),
        (message(GROUP_CHAT, new_chat_members=[ALICE]), "message"),
        (message(GROUP_CHAT, pinned_message=message(GROUP_CHAT, text="x")), "message"),
        ({"id": "1", "from": ALICE, "chat_instance": "1", "game_short_name": "g"}, "callback_query"),
    ],
    ids=["our own", "somebody came", "pinned", "a game"],
)
def test_what_is_nothing_to_us(content: Json, kind: str) -> None:
    assert heard(content, kind) is None


def test_only_new_thumbs_of_a_person_are_feedback() -> None:
    thumb, party = ({"type": "emoji", "emoji": emoji} for emoji in ("👍", "🎉"))
    own = {"type": "custom_emoji", "custom_emoji_id": "5"}

    def reacted(user: Json | None, old: list[Json], new: list[Json]) -> Any:
        about = {"chat": GROUP_CHAT, "message_id": 1, "date": AT, "old_reaction": old, "new_reaction": new}
        return heard(about | ({"user": user} if user else {"actor_chat": GROUP_CHAT}), "message_reaction")

    for old, new, removed in (([], [party, thumb], False), ([thumb, own], [own], True)):
        found = reacted(ALICE, old, new).inbound
        assert (found.reaction, found.source.user_id) == (Reaction(emoji="👍", removed=removed), str(ALICE["id"]))
    for old, new in (([], [party]), ([], [own]), ([thumb], [thumb, party]), ([], [])):
        assert reacted(ALICE, old, new) is None
    for nobody in (None, BOT):
        assert reacted(nobody, [], [thumb]) is None
