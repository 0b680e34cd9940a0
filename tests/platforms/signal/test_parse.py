"""What events of signal-cli become."""

from datetime import UTC, datetime
from typing import Any

from palaver.model.label import Label
from palaver.model.source import Labels, Source
from palaver.model.turn import Inbound, Revision
from palaver.platforms.signal.parse import Known, OwnAccount, edit_key, parse, split_message_id
from palaver.protocols import parse_or_skip
from tests.platforms.signal.server import ALICE, GROUP_ID, NUMBER, UUID

US = OwnAccount("helper", NUMBER, UUID)
BOB = "b0b00000-0000-4000-8000-000000000003"
SENT = 1_700_000_000_123
HOLE = "\N{OBJECT REPLACEMENT CHARACTER}"
GROUP = {"groupInfo": {"groupId": GROUP_ID, "groupName": "Dev", "revision": 3, "type": "DELIVER"}}
NOTHING = Known({}, {})
OURS = {"number": NUMBER, "uuid": UUID, "name": NUMBER}


def envelope(data: dict[str, Any], **more: Any) -> dict[str, Any]:
    content = {"timestamp": SENT, "message": None, "expiresInSeconds": 0, **data}
    return {**ALICE, "sourceName": "Alice", "timestamp": SENT, "dataMessage": content, **more}


def parsed(data: dict[str, Any], known: Known = NOTHING, us: OwnAccount = US, **more: Any) -> Inbound | None:
    return parse({"account": NUMBER, "envelope": envelope(data, **more)}, us, known)


def said(data: dict[str, Any], known: Known = NOTHING, us: OwnAccount = US) -> Inbound:
    inbound = parsed(data, known, us)
    assert inbound is not None
    return inbound


def test_a_direct_message() -> None:
    assert said({"message": "hi"}) == Inbound(
        source=Source(
            platform="signal",
            account="helper",
            chat_kind="dm",
            chat_id=ALICE["sourceUuid"],
            user_id=ALICE["sourceNumber"],
            user_id_alt=ALICE["sourceUuid"],
            message_id=f"{SENT}:{ALICE['sourceUuid']}",
        ),
        text="hi",
        at=datetime.fromtimestamp(SENT / 1000, UTC),
        labels=Labels(user=Label("Alice")),
    )


def test_a_message_in_a_group() -> None:
    inbound = said({"message": "hi", **GROUP})
    assert (inbound.source.chat_kind, inbound.source.chat_id) == ("group", GROUP_ID)
    assert inbound.labels.chat == Label("Dev")
    assert not inbound.mentions_us


def test_the_group_is_told_that_its_messages_disappear() -> None:
    cases = {30: "30 seconds", 3600: "1 hour", 90_000: "25 hours", 2_419_200: "4 weeks", 604_800: "1 week"}
    for seconds, words in cases.items():
        inbound = said({"message": "hi", "expiresInSeconds": seconds})
        assert inbound.labels.topic == Label(f"messages disappear after {words}")
        assert inbound.text == "hi"


def test_mentions_are_written_out_and_ours_is_found() -> None:
    bob = {"number": None, "uuid": BOB, "name": BOB}
    cases: list[tuple[str, list[dict[str, Any]], str, bool]] = [
        (f"{HOLE}: hi", [{**OURS, "start": 0, "length": 1}], "hi", True),
        (f"{HOLE}", [{**OURS, "start": 0, "length": 1}], "@helper", True),
        (f"🙂 {HOLE} and {HOLE}", [{**bob, "start": 9, "length": 1}, {**OURS, "start": 3, "length": 1}],
         f"🙂 @helper and @{BOB}", True),
        (f"{HOLE} hi", [{**bob, "start": 0, "length": 1}], f"@{BOB} hi", False),
        (f"{HOLE} {HOLE} hi", [{**OURS, "start": 0, "length": 1}, {**bob, "start": 2, "length": 1}],
         f"@{BOB} hi", True),
        ("hi", [{**bob, "start": 5, "length": 1}, {**bob, "start": -1, "length": 9}], "hi", False),
        ("hi", [{**bob, "start": 0, "length": 2}, {**bob, "start": 1, "length": 1}], f"@{BOB}", False),
    ]  # fmt: skip
    for text, mentions, words, is_ours in cases:
        inbound = said({"message": text, "mentions": mentions, **GROUP})
        assert (inbound.text, inbound.mentions_us) == (words, is_ours)


def test_we_are_known_by_our_number_or_our_account_id() -> None:
    for shown in ({"number": NUMBER}, {"uuid": UUID}, OURS):
        mention = {"number": None, "uuid": None, **shown, "start": 0, "length": 1}
        assert said({"message": f"{HOLE} hi", "mentions": [mention]}).mentions_us
    unknown = OwnAccount("helper", NUMBER)
    for shown in ({"uuid": BOB}, {"number": "+15550001"}):
        stranger = {"number": None, "uuid": None, **shown, "start": 0, "length": 1}
        assert not said({"message": f"{HOLE} hi", "mentions": [stranger]}, us=unknown).mentions_us


def test_replies_show_what_they_reply_to() -> None:
    ours = said({"message": "why?", "quote": {"id": 5, "authorNumber": NUMBER, "authorUuid": UUID, "text": "so"}})
    assert (ours.reply_to, ours.mentions_us) == ("5", True)
    assert ours.quote
    assert (ours.quote.text, ours.quote.is_ours) == ("so", True)
    mentions = [{**OURS, "start": 0, "length": 1}]
    quote = {"id": 6, "authorNumber": None, "authorUuid": BOB, "text": f"{HOLE} go", "mentions": mentions}
    other = said({"message": "yes", "quote": quote, **GROUP})
    assert (other.reply_to, other.mentions_us) == (f"6:{BOB}", False)
    assert other.quote
    assert (other.quote.text, other.quote.author) == ("go", f"signal:alt%3A{BOB}")
    silent = said({"message": "nice", "quote": {"id": 7, "authorUuid": BOB, "text": None}})
    assert (silent.reply_to, silent.quote) == (f"7:{BOB}", None)


def test_an_edit_is_followed_to_the_first_version() -> None:
    data = {"timestamp": SENT + 9, "message": "new"}
    edit: dict[str, Any] = {"targetSentTimestamp": SENT + 5, "dataMessage": data}
    known = Known({}, {edit_key(str(SENT + 5), ALICE["sourceUuid"]): str(SENT)})
    inbound = parsed({}, known, editMessage=edit, dataMessage=None)
    assert inbound
    assert inbound.source.message_id == f"{SENT}:{ALICE['sourceUuid']}"
    assert (inbound.text, inbound.revision) == ("new", Revision(version=str(SENT + 9)))
    assert inbound.at == datetime.fromtimestamp((SENT + 9) / 1000, UTC)


def test_authors_and_admins_delete() -> None:
    own = said({"remoteDelete": {"timestamp": 5}})
    assert own.source.message_id == f"5:{ALICE['sourceUuid']}"
    assert own.revision == Revision(version=str(SENT), deleted=True)
    found = {"targetAuthorNumber": None, "targetAuthorUuid": BOB, "targetSentTimestamp": 6}
    other = said({"adminDelete": found, **GROUP})
    assert (other.source.message_id, other.source.user_id_alt) == (f"6:{BOB}", ALICE["sourceUuid"])


def test_files_are_named_and_not_fetched() -> None:
    attachments = [
        {"contentType": "image/jpeg", "filename": None, "id": "a.jpg", "size": 7},
        {"contentType": "application/pdf", "filename": "../x.pdf", "id": None, "size": None},
    ]
    picture, document = said({"attachments": attachments, **GROUP}).files
    assert (picture.name, picture.media_type, picture.size) == (Label("image-1"), "image/jpeg", 7)
    assert picture.handle == f"{GROUP_ID}/a.jpg"
    assert (document.name, document.handle, bool(document.problem)) == (Label("../x.pdf"), None, True)


def test_the_file_of_a_long_text_is_left_out_if_the_text_is_whole() -> None:
    files = [{"contentType": "text/x-signal-plain", "filename": None, "id": "t", "size": 9000}]
    assert len(said({"message": "x" * 2000, "attachments": files}).files) == 1
    assert said({"message": "x" * 9000, "attachments": files}).files == ()
    picture = {"contentType": "image/png", "filename": None, "id": "p", "size": 9}
    assert [file.media_type for file in said({"message": "x" * 9000, "attachments": [*files, picture]}).files] == [
        "image/png"
    ]


def test_other_content_is_described() -> None:
    contact = {"name": {"given": "Ann", "family": "Lee", "nickname": None}, "phone": [{"value": "+1555"}]}
    cases: dict[str, dict[str, Any]] = {
        "[sticker]": {"sticker": {"packId": "00", "stickerId": 1}},
        '[contact "Ann Lee": +1555]': {"contacts": [contact]},
        '[poll "Tea?": "yes", "no"]': {"pollCreate": {"question": "Tea?", "options": ["yes", "no"]}},
        "[payment, not supported here]": {"payment": {"note": "n", "receipt": "r"}},
        "[in reply to a story]\nnice": {"storyContext": {"sentTimestamp": 1}, "message": "nice"},
        "[a picture or video to view once: not kept]": {"viewOnce": True, "attachments": [{"id": "a"}]},
    }
    for text, data in cases.items():
        inbound = said(data)
        assert (inbound.text, inbound.files) == (text, ())


def test_a_reaction_to_our_message_is_overheard() -> None:
    for removed, text in ((False, "[reacted with ❤️]"), (True, "[took back ❤️]")):
        reaction = {"emoji": "❤️", "targetAuthorUuid": UUID, "targetSentTimestamp": 5, "isRemove": removed}
        found = said({"reaction": reaction, **GROUP})
        assert (found.text, found.observed, found.reply_to) == (text, True, "5")


def test_what_is_no_message_is_ignored() -> None:
    reaction = {"emoji": "👍", "targetAuthorUuid": BOB, "targetSentTimestamp": 5, "isRemove": False}
    update = {"groupInfo": {**GROUP["groupInfo"], "type": "UPDATE"}}
    timer = {"isExpirationUpdate": True, "expiresInSeconds": 60}
    ignored: list[dict[str, Any]] = [{}, {"reaction": reaction}, update, timer]
    for data in ignored:
        assert parsed(data) is None
    for other in ("receiptMessage", "typingMessage", "callMessage", "storyMessage", "syncMessage"):
        content: dict[str, Any] = {"dataMessage": None, other: {"timestamp": 1, "sentMessage": {"message": "x"}}}
        assert parsed({}, NOTHING, US, **content) is None
    assert parsed({"message": "ours"}, sourceNumber=NUMBER, sourceUuid=UUID) is None
    assert parsed({"message": "nobody's"}, sourceNumber=None, sourceUuid=None) is None
    assert parse({"account": NUMBER}, US, NOTHING) is None


PLAIN: list[Any] = [None, True, 0, 7, -1, 10**30, 0.5, "", "x", [], ["x"], [7], [[]], [{}], {}, {"a": 1}]
ODD: list[Any] = [*PLAIN, *({"id": odd} for odd in PLAIN), *([{"start": odd, "length": 1}] for odd in PLAIN)]
FIELDS = ("message", "mentions", "quote", "attachments", "groupInfo", "remoteDelete", "contacts", "timestamp")


def test_nothing_breaks_the_parser() -> None:
    for field in (*FIELDS, "sticker", "pollCreate", "adminDelete", "reaction", "expiresInSeconds", "viewOnce"):
        for odd in ODD:
            parse_or_skip("signal", lambda field=field, odd=odd: parsed({"message": "hi", field: odd}))
            parse_or_skip("signal", lambda field=field, odd=odd: parse({"envelope": {field: odd}}, US, NOTHING))


def test_message_ids_are_taken_apart() -> None:
    assert split_message_id("17:a:b") == (17, "a:b")
    assert split_message_id("17") == (17, "")
    for text in ("", ":x", "x:y", "-1:y", "١:y", "9" * 19):
        assert split_message_id(text)[0] == 0
