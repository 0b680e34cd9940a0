import json
from dataclasses import fields, replace

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from palaver.model.errors import MalformedSource, UnknownPlatform
from palaver.model.label import Label
from palaver.model.source import (
    MAX_IDS_BYTES,
    NO_LABELS,
    Labels,
    Source,
    Trust,
    check_ids,
    decode_id,
    describe_source,
    encode_id,
    identity_text,
    parse_participant,
    participant_text,
    readable_identity,
    shorten_id,
    source_of_identity,
    stored_identity,
    with_participant,
)
from palaver.model.text import join_halves
from palaver.platforms.plugins import PLATFORMS
from tests.strategies import BRIEF, THOROUGH, ids, labels, sources, texts

OPTIONAL = tuple(f.name for f in fields(Source) if f.name not in {"platform", "chat_kind", "profile"})
TELEGRAM, TERMINAL = PLATFORMS["telegram"], PLATFORMS["terminal"]


def named(*, chat: str | None = None, user: str | None = None) -> Labels:
    return Labels(chat=Label(chat) if chat is not None else None, user=Label(user) if user is not None else None)


@THOROUGH
@example(Source(platform="telegram", user_id_alt="\ud83d\ude00"))  # JSON joins the two halves of a character
@given(sources)
def test_a_source_goes_to_json_and_back(source: Source) -> None:
    assert Source.from_json(json.loads(json.dumps(source.to_json())), PLATFORMS) == source


@BRIEF
@given(labels)
def test_labels_go_to_json_and_back_unchanged(given_labels: Labels) -> None:
    json.dumps(given_labels.to_json())
    assert Labels.from_json(given_labels.to_json()) == given_labels


def test_labels_of_another_type_are_left_out() -> None:
    assert Labels.from_json({"chat": 42, "user": None, "topic": ["x"]}) == NO_LABELS


@pytest.mark.parametrize("name", OPTIONAL)
def test_numbers_become_text(name: str) -> None:
    source = Source.from_json({"platform": "telegram", name: -100123}, PLATFORMS)
    assert getattr(source, name) == "-100123"


@pytest.mark.parametrize("value", [True, False, 1.5, float("nan"), [1], {"a": 1}, b"x"])
@pytest.mark.parametrize("name", ["chat_id", "platform", "profile"])
def test_what_is_neither_text_nor_whole_number_is_refused(name: str, value: object) -> None:
    with pytest.raises(MalformedSource, match=f"{name}.*Use text, null, or a whole number"):
        Source.from_json({"platform": "telegram", name: value}, PLATFORMS)


@pytest.mark.parametrize("value", [2**128, -(10**5000), [10**5000]], ids=["bare", "negative", "in a list"])
def test_a_number_too_long_to_write_is_refused(value: object) -> None:
    with pytest.raises(MalformedSource):
        Source.from_json({"platform": "telegram", "chat_id": value}, PLATFORMS)


def test_guild_id_is_the_old_name_of_scope_id() -> None:
    assert Source.from_json({"platform": "discord", "guild_id": 5}, PLATFORMS).scope_id == "5"
    both = {"platform": "discord", "guild_id": "old", "scope_id": "new"}
    for data in (both, dict(reversed(both.items()))):
        assert Source.from_json(data, PLATFORMS).scope_id == "new"
    assert "guild_id" not in Source(platform="discord", scope_id="5").to_json()


@pytest.mark.parametrize("none", [None, ""])
def test_a_missing_scope_id_does_not_hide_the_guild_id(none: str | None) -> None:
    data = {"platform": "discord", "scope_id": none, "guild_id": "5"}
    assert Source.from_json(data, PLATFORMS).scope_id == "5"


@pytest.mark.parametrize("data", [{}, {"platform": None}, {"platform": ""}, {"platform": 5}, {"platform": "Telegram"}])
def test_an_unknown_platform_lists_the_known_ones(data: dict[str, object]) -> None:
    with pytest.raises(UnknownPlatform) as caught:
        Source.from_json(data, PLATFORMS)
    assert all(name in str(caught.value) for name in PLATFORMS)


@BRIEF
@given(sources, st.booleans())
def test_trust_marks_have_no_written_form(source: Source, mark: bool) -> None:
    marks = [f.name for f in fields(Trust)]
    assert not {*marks, "trust"} & source.to_json().keys()
    forged = source.to_json() | dict.fromkeys(marks, mark) | {"trust": dict.fromkeys(marks, True)}
    restored = Source.from_json(forged, PLATFORMS)
    assert restored == source
    assert not any(hasattr(restored, name) for name in (*marks, "trust"))


def test_trust_cannot_be_turned_into_json() -> None:
    assert not hasattr(Trust, "to_json")
    assert not hasattr(Trust, "from_json")
    assert Trust() == Trust(is_bot=False, has_role_grant=False, via_trusted_relay=False)


@pytest.mark.parametrize("name", OPTIONAL)
def test_an_empty_id_is_no_id(name: str) -> None:
    source = Source(platform="telegram", **{name: ""})
    assert source == Source(platform="telegram")
    assert name not in source.to_json()


@pytest.mark.parametrize("name", ["platform", "chat_kind", "profile"])
def test_what_every_source_has_cannot_be_empty(name: str) -> None:
    with pytest.raises(MalformedSource, match=name):
        Source(**({"platform": "telegram"} | {name: ""}))


def test_the_participant_is_the_alternate_id_where_there_is_one() -> None:
    assert Source(platform="signal", user_id="+49", user_id_alt="uuid").participant == "alt:uuid"
    assert Source(platform="signal", user_id="+49", user_id_alt="").participant == "+49"
    assert Source(platform="signal").participant is None


@THOROUGH
@given(ids, ids, st.sampled_from(("", "alt:", "id:", "id:alt:")))
def test_a_user_id_is_never_taken_for_an_alternate_id(one: str, other: str, prefix: str) -> None:
    one, other = join_halves(one), join_halves(other)
    assume(one != "" and other != "")
    user, account = participant_text(prefix + one), participant_text("nick", other)
    assert user != account
    assert user is not None
    assert account is not None
    assert (parse_participant(user), parse_participant(account)) == ((prefix + one, None), (None, other))
    assert source_of_identity(identity_text("irc", account)) == Source(platform="irc", user_id_alt=other)
    assert with_participant(Source(platform="irc", user_id="x", user_id_alt="y"), user).names == (user,)


def test_a_chat_is_known_by_its_alternate_id_where_it_has_no_other() -> None:
    group = Source(platform="signal", chat_kind="group", chat_id_alt="alt")
    assert group.chat == "alt"
    assert replace(group, chat_id="c").chat == "c"
    assert replace(group, chat_kind="dm").chat is None


def test_a_source_describes_itself_for_people() -> None:
    dm = Source(platform="telegram", user_id="7", chat_id="9")
    group = Source(platform="telegram", chat_kind="group", chat_id="-100", thread_id="42")
    assert describe_source(Source(platform="terminal"), named(user="root"), place="CLI terminal") == "CLI terminal"
    assert describe_source(dm, named(user="alice")) == "DM with alice"
    assert describe_source(dm) == "DM with 7"
    assert describe_source(Source(platform="telegram")) == "DM with somebody unknown"
    assert describe_source(group, named(chat="Dev")) == "group: Dev, thread: 42"
    assert describe_source(group, named(chat="\u200b")) == "group: -100, thread: 42"
    assert describe_source(group, Labels(chat=Label("[Dev](x.y)\n/stop"), topic=Label("Plans"))) == (
        "group: `[Dev](x.y) /stop`, thread: Plans"
    )


@THOROUGH
@given(ids)
def test_an_id_survives_its_encoding(value: str) -> None:
    assert decode_id(encode_id(value)) == value


@THOROUGH
@given(ids)
def test_an_encoded_id_holds_no_separator(value: str) -> None:
    encoded = encode_id(value)
    assert encoded.isascii()
    assert encoded.isprintable()
    assert not set(encoded) & set(":,/ \\")


def test_plain_ids_stay_readable() -> None:
    for plain in ("-100123", "alice", "+4917012345", "a.b_c-d", "!room", "$event", "user@host"):
        assert encode_id(plain) == plain


def test_what_looks_encoded_is_encoded_again() -> None:
    assert encode_id("%3A") == "%253A"
    assert encode_id(":") == "%3A"
    assert decode_id("%253A") == "%3A"


@THOROUGH
@given(texts)
def test_any_text_can_be_decoded(text: str) -> None:
    assert isinstance(decode_id(text), str)


def test_text_that_is_no_valid_encoding_stands_for_itself() -> None:
    for broken in ("%", "%FF", "100%", "%zz", "%C3"):
        assert decode_id(broken) == broken


@pytest.mark.parametrize("width", ["a", ":", "é", "長", "\U0001f600", "\ud800"], ids=ascii)
def test_ids_are_as_long_as_they_are_written(width: str) -> None:
    most = MAX_IDS_BYTES // len(encode_id(width))
    check_ids("message", width * (most // 2), None, width * (most - most // 2))
    with pytest.raises(
        MalformedSource, match=r"ids of a message are too long: \d+ bytes\. Use at most \d+ bytes together"
    ):
        check_ids("message", width * most, "", width)


@given(st.lists(st.text(max_size=900), min_size=6, max_size=6))
def test_shortened_ids_can_be_stored_and_stay_different(ids: list[str]) -> None:
    short = [shorten_id(each) for each in ids]
    check_ids("message", *short)
    assert len(set(short)) == len(set(ids))
    assert [shorten_id(each) for each in short] == short


@pytest.mark.parametrize(
    "user", ["7", "@ann:example.org", "a,b", "a b", "50%", "%41", "ann\u202e", "id:alt:x", "alt:x"]
)
def test_an_identity_that_people_read_is_read_back(user: str) -> None:
    identity = identity_text("matrix", user)
    shown = readable_identity(identity)
    assert stored_identity(shown) == identity
    assert shown == (
        f"matrix:{user}" if user.replace("@", "").replace(":", "").replace(".", "").isalnum() else identity
    )
