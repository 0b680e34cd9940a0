"""Nobody sees another's conversation: keys are equal exactly when the specification says that two sources share one."""

from dataclasses import replace
from itertools import combinations

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from palaver.model.errors import BadArgument
from palaver.model.key import (
    UNKNOWN_SPEAKER,
    DmScope,
    GroupScope,
    Scope,
    SessionKey,
    Sharing,
    Speaker,
    chat_key,
    derive_key,
    explain_key,
    job_key,
)
from palaver.model.source import Source, canonical_id, canonical_source
from palaver.model.text import join_halves
from tests.strategies import BRIEF, NASTY, THOROUGH, close_sources, ids, scopes, sources, speakers

DEFAULT = Scope()
SHARED_GROUPS = Scope(group=GroupScope.SHARED)
SPLIT_THREADS = Scope(thread=GroupScope.PER_USER)
PER_PERSON = Scope(dm=DmScope.PER_PERSON)
ONE_FOR_THE_OWNER = Scope(dm=DmScope.SHARED)

session_keys = st.builds(
    SessionKey,
    profile=ids.filter(bool),
    platform=ids,
    kind=ids.filter(bool),
    chat=ids,
    scope=ids,
    thread=ids,
    user=ids,
    person=ids,
    account=ids,
)


def dm(**fields: str) -> Source:
    return Source(platform="telegram", **fields)


def group(**fields: str) -> Source:
    return Source(**({"platform": "telegram", "chat_kind": "group", "chat_id": "-100"} | fields))


# What must share, written from SPEC KEY-3, 4, 5 and 7 alone.


def who(source: Source) -> tuple[str, str | None]:
    return ("alternate", source.user_id_alt) if source.user_id_alt is not None else ("user", source.user_id)


def chat(source: Source) -> tuple[str, str | None]:
    is_alternate = source.chat_id is None and source.chat_kind != "dm" and source.chat_id_alt is not None
    return ("alternate", source.chat_id_alt) if is_alternate else ("chat", source.chat_id)


def joined_by(source: Source, speaker: Speaker, scope: Scope) -> str | None:
    """The option that takes a direct message out of its chat, if one does."""
    if source.chat_kind == "dm" and scope.dm.value == "shared" and speaker.is_owner:
        return "the owner"
    if source.chat_kind == "dm" and scope.dm.value == "per-person" and speaker.person is not None:
        return f"person {speaker.person}"
    return None


def needs_same_speaker(source: Source, scope: Scope) -> bool:
    if source.chat_kind == "dm":
        return source.chat_id is None
    in_thread = source.chat_kind == "thread" or source.thread_id is not None
    return (scope.thread.value if in_thread else scope.group.value) == "per-user"


def must_share(one: Source, by_one: Speaker, other: Source, by_other: Speaker, scope: Scope) -> bool:
    if one.profile != other.profile:
        return False
    options = joined_by(one, by_one, scope), joined_by(other, by_other, scope)
    if options != (None, None):
        return options[0] == options[1]
    place = ("platform", "account", "scope_id", "chat_kind", "thread_id")
    if chat(one) != chat(other) or any(getattr(one, part) != getattr(other, part) for part in place):
        return False
    return who(one) == who(other) or not needs_same_speaker(one, scope)


ID_FIELDS = ("account", "chat_id", "chat_id_alt", "thread_id", "scope_id", "user_id", "user_id_alt")
OTHER_FIELDS = ("platform", "chat_kind", "profile", "message_id", "parent_chat_id")
CLOSE = ("42", "a", "a:b", "dm", "thread")


@settings(THOROUGH, max_examples=200)
@given(
    close_sources,
    st.dictionaries(st.sampled_from((*ID_FIELDS, *OTHER_FIELDS)), st.sampled_from(CLOSE), max_size=2),
    speakers,
    speakers,
    scopes,
)
def test_two_close_sources_share_a_key_exactly_when_they_must(
    one: Source, changes: dict[str, str], by_one: Speaker, by_other: Speaker, scope: Scope
) -> None:
    other = replace(one, **changes)
    same = derive_key(one, scope, by_one) == derive_key(other, scope, by_other)
    assert same == must_share(one, by_one, other, by_other, scope)


@THOROUGH
@given(sources, st.dictionaries(st.sampled_from(ID_FIELDS), ids, max_size=2), scopes, speakers)
def test_hostile_ids_share_a_key_exactly_when_they_must(
    one: Source, changes: dict[str, str], scope: Scope, speaker: Speaker
) -> None:
    other = replace(one, **changes)
    same = derive_key(one, scope, speaker) == derive_key(other, scope, speaker)
    assert same == must_share(one, speaker, other, speaker, scope)


@THOROUGH
@given(sources, st.permutations(ID_FIELDS), scopes)
def test_ids_that_change_places_are_other_ids(one: Source, places: list[str], scope: Scope) -> None:
    """User 42 is not thread 42, no matter what 42 is."""
    other = replace(one, **{name: getattr(one, place) for name, place in zip(ID_FIELDS, places, strict=True)})
    same = derive_key(one, scope).text == derive_key(other, scope).text
    assert same == must_share(one, UNKNOWN_SPEAKER, other, UNKNOWN_SPEAKER, scope)


def test_hostile_ids_in_any_two_parts_never_meet() -> None:
    nasty = {join_halves(id_) for id_ in NASTY if 0 < len(id_) < 100}  # as a source has them
    found = [
        derive_key(group(chat_id=chat, **{part: id_}), DEFAULT)
        for chat in nasty
        for id_ in nasty
        for part in ("thread_id", "user_id", "scope_id", "account")
    ]
    assert len(set(found)) == len({key.text for key in found}) == len(found)


def test_the_examples_of_the_specification() -> None:
    assert derive_key(dm(chat_id="123"), DEFAULT).text == "agent:main:telegram:dm:123"
    assert derive_key(group(user_id="7"), DEFAULT).text == "agent:main:telegram:group:-100:user:7"
    assert derive_key(group(thread_id="42", user_id="7"), DEFAULT).text == "agent:main:telegram:group:-100:thread:42"
    assert derive_key(group(user_id="42"), DEFAULT) != derive_key(group(thread_id="42"), DEFAULT)
    assert derive_key(dm(chat_id="a:b"), DEFAULT) != derive_key(dm(chat_id="a", thread_id="b"), DEFAULT)


# KEY-3: direct messages


def test_a_direct_chat_is_one_conversation_no_matter_who_writes() -> None:
    assert derive_key(dm(chat_id="1", user_id="7"), DEFAULT) == derive_key(dm(chat_id="1", user_id="8"), DEFAULT)


def test_a_threaded_direct_message_adds_the_thread() -> None:
    assert derive_key(dm(chat_id="1", thread_id="2"), DEFAULT).text == "agent:main:telegram:dm:1:thread:2"


def test_without_chat_id_the_sender_identifies_a_direct_message() -> None:
    alice, bob = derive_key(dm(user_id="7"), DEFAULT), derive_key(dm(user_id="8"), DEFAULT)
    assert alice != bob
    assert alice.text == "agent:main:telegram:dm::user:7"
    assert alice != derive_key(dm(chat_id="7"), DEFAULT)
    assert not alice.shared


def test_with_neither_chat_nor_sender_there_is_one_shared_fallback() -> None:
    fallback = derive_key(dm(), DEFAULT)
    assert fallback.text == "agent:main:telegram:dm"
    assert fallback.shared
    assert fallback != derive_key(Source(platform="discord"), DEFAULT)


def test_linked_identities_share_one_conversation_per_person() -> None:
    alice = Speaker(person="p1")
    here, there = dm(chat_id="1"), Source(platform="discord", chat_id="9", account="bot2")
    assert derive_key(here, PER_PERSON, alice) == derive_key(there, PER_PERSON, alice)
    assert derive_key(here, PER_PERSON, alice) != derive_key(here, PER_PERSON, Speaker(person="p2"))
    assert derive_key(here, PER_PERSON) == derive_key(here, DEFAULT)
    assert derive_key(group(user_id="7"), PER_PERSON, alice) == derive_key(group(user_id="7"), DEFAULT)
    assert derive_key(here, DEFAULT, alice) == derive_key(here, DEFAULT)


def test_only_the_owner_has_the_one_shared_conversation() -> None:
    owner, guest = Speaker(person="p1", is_owner=True), Speaker(person="p2")
    here, there = dm(chat_id="1"), Source(platform="discord", chat_id="9")
    assert derive_key(here, ONE_FOR_THE_OWNER, owner) == derive_key(there, ONE_FOR_THE_OWNER, owner)
    assert derive_key(here, ONE_FOR_THE_OWNER, guest) == derive_key(here, DEFAULT)
    assert derive_key(group(user_id="7"), ONE_FOR_THE_OWNER, owner) == derive_key(group(user_id="7"), DEFAULT)


# KEY-4 and 5: groups and threads


def test_in_a_group_everybody_has_their_own_or_all_share_one() -> None:
    alice, bob = group(user_id="7"), group(user_id="8")
    assert derive_key(alice, DEFAULT) != derive_key(bob, DEFAULT)
    assert derive_key(alice, SHARED_GROUPS) == derive_key(bob, SHARED_GROUPS)


@pytest.mark.parametrize("place", [{"thread_id": "42"}, {"chat_kind": "thread", "chat_id": "42"}])
def test_a_thread_is_shared_or_split_no_matter_what_its_group_is(place: dict[str, str]) -> None:
    alice, bob = group(user_id="7", **place), group(user_id="8", **place)
    assert derive_key(alice, DEFAULT) == derive_key(bob, DEFAULT)
    split = Scope(group=GroupScope.SHARED, thread=GroupScope.PER_USER)
    assert derive_key(alice, split) != derive_key(bob, split)


def test_the_alternate_id_names_the_participant() -> None:
    first = group(user_id="+491", user_id_alt="uuid")
    moved = group(user_id="+492", user_id_alt="uuid")
    assert derive_key(first, DEFAULT) == derive_key(moved, DEFAULT)
    assert derive_key(first, DEFAULT).user == "alt:uuid"


def test_groups_known_only_by_their_alternate_id_stay_apart() -> None:
    one, other = (Source(platform="signal", chat_kind="group", chat_id_alt=id_, user_id="7") for id_ in "ab")
    assert derive_key(one, SHARED_GROUPS) != derive_key(other, SHARED_GROUPS)
    known = replace(one, chat_id="c")
    assert derive_key(known, DEFAULT) == derive_key(replace(known, chat_id_alt=None), DEFAULT)
    for place in (one, other, known):
        assert chat_key(derive_key(place, DEFAULT)) == derive_key(place, SHARED_GROUPS)
    for whole in (derive_key(one, SHARED_GROUPS), derive_key(Source(platform="signal", user_id="7"), DEFAULT)):
        assert chat_key(whole) is None, "it is nobody's part of a chat"


# KEY-7 and the other name spaces


@pytest.mark.parametrize("part", ["profile", "account", "scope_id", "platform", "chat_kind", "chat_id", "thread_id"])
def test_each_name_space_is_separate(part: str) -> None:
    here = group(user_id="7", account="bot1", scope_id="s1")
    assert derive_key(here, DEFAULT) != derive_key(replace(here, **{part: "other"}), DEFAULT)


def test_the_owner_and_linked_people_are_apart_in_each_profile() -> None:
    owner = Speaker(person="p1", is_owner=True)
    for scope in (PER_PERSON, ONE_FOR_THE_OWNER):
        assert derive_key(dm(), scope, owner) != derive_key(dm(profile="work"), scope, owner)


def test_what_changes_per_message_is_no_part_of_the_key() -> None:
    here = group(user_id="7")
    assert derive_key(here, DEFAULT) == derive_key(replace(here, message_id="1", parent_chat_id="2"), DEFAULT)


# KEY-9


@pytest.mark.parametrize(
    ("source", "scope", "speaker", "shared"),
    [
        (dm(chat_id="1", user_id="7"), DEFAULT, UNKNOWN_SPEAKER, False),
        (dm(chat_id="1", thread_id="2"), DEFAULT, UNKNOWN_SPEAKER, False),
        (dm(user_id="7"), DEFAULT, UNKNOWN_SPEAKER, False),
        (dm(), DEFAULT, UNKNOWN_SPEAKER, True),
        (dm(chat_id="1"), PER_PERSON, Speaker(person="p1"), False),
        (dm(chat_id="1"), ONE_FOR_THE_OWNER, Speaker(is_owner=True), False),
        (group(user_id="7"), DEFAULT, UNKNOWN_SPEAKER, False),
        (group(user_id="7"), SHARED_GROUPS, UNKNOWN_SPEAKER, True),
        (group(), DEFAULT, UNKNOWN_SPEAKER, True),
        (group(user_id="7", thread_id="42"), DEFAULT, UNKNOWN_SPEAKER, True),
        (group(user_id="7", thread_id="42"), SPLIT_THREADS, UNKNOWN_SPEAKER, False),
        (group(user_id="7", chat_kind="channel"), SHARED_GROUPS, UNKNOWN_SPEAKER, True),
        (group(user_id="7", chat_kind="forum"), DEFAULT, UNKNOWN_SPEAKER, False),
    ],
)
def test_a_conversation_knows_whether_several_people_share_it(
    source: Source, scope: Scope, speaker: Speaker, shared: bool
) -> None:
    assert derive_key(source, scope, speaker).shared is shared
    assert not job_key("main", 7).shared


@THOROUGH
@given(close_sources, st.sampled_from(CLOSE), scopes)
def test_two_senders_of_one_group_conversation_make_it_shared(one: Source, sender: str, scope: Scope) -> None:
    assume(one.chat_kind != "dm" and ("user", sender) != who(one))
    key = derive_key(one, scope)
    assert key != derive_key(replace(one, user_id=sender, user_id_alt=None), scope) or key.shared


# KEY-2: the text form


@THOROUGH
@given(session_keys)
def test_the_text_parses_back_to_the_same_key(key: SessionKey) -> None:
    assert SessionKey.parse(key.text) == key


@THOROUGH
@given(session_keys)
def test_the_text_is_one_plain_word(key: SessionKey) -> None:
    assert key.text.isascii()
    assert key.text.isprintable()
    assert not set(key.text) & set("/\\ \n,")


@THOROUGH
@given(session_keys, session_keys)
@example(SessionKey("main", chat="A" * 4000), SessionKey("main", chat="a" * 4000))
@example(SessionKey("main", chat="x" * 4000), SessionKey("main", chat="x" * 4001))
def test_distinct_keys_have_distinct_texts(one: SessionKey, other: SessionKey) -> None:
    assert (one.text == other.text) == (one == other)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "agent",
        "agent:main",
        "agent:main:telegram",
        "Agent:main:telegram:dm:1",
        "robot:main:telegram:dm:1",
        " agent:main:telegram:dm:1",
        "agent:main:telegram:dm:1\n",
        "agent:main:telegram:dm:",
        "agent:main:telegram:dm:1:",
        "agent:main:telegram:dm:1:thread",
        "agent:main:telegram:dm:1:thread:",
        "agent:main:telegram:dm:1:thread:2:3",
        "agent:main:telegram:dm:1:thread:2:thread:2",
        "agent:main:telegram:dm:1:thread:2:thread:3",
        "agent:main:telegram:group:1:user:7:thread:2",
        "agent:main:telegram:dm:1:chat:2",
        "agent:main:telegram:dm:1:profile:2",
        "agent:main:telegram:dm:%31",
        "agent:main:telegram:dm:%3a",
        "agent:main:telegram:dm:%",
        "agent:main:telegram:dm:%FF",
        "agent:main:telegram:dm:é",
        "agent:main:telegram:dm:a/b",
        "agent:main:telegram:dm:a b",
    ],
)
def test_a_text_that_no_key_writes_is_refused(text: str) -> None:
    with pytest.raises(BadArgument, match="Use agent:<profile>"):
        SessionKey.parse(text)


PIECES = ("", ":", "%", "%3A", "%3a", "thread:", ":user:7", "agent", "\n", "A", "é", "\0")


def damaged(key: SessionKey, at: int, cut: int, piece: str) -> str:
    at %= len(key.text) + 1
    return key.text[:at] + piece + key.text[at + cut :]


mutations = st.one_of(
    st.text(max_size=40),
    st.builds(damaged, session_keys, st.integers(0, 300), st.integers(0, 3), st.sampled_from(PIECES)),
)


@THOROUGH
@given(mutations)
def test_a_damaged_text_is_refused_or_is_exactly_what_its_key_writes(text: str) -> None:
    try:
        key = SessionKey.parse(text)
    except BadArgument:
        return
    assert key.text == text


@pytest.mark.parametrize("text", ["agent::telegram:dm:1", "agent:main:telegram:", "agent:main:telegram::1"])
def test_a_text_without_profile_or_kind_is_refused(text: str) -> None:
    with pytest.raises(BadArgument):
        SessionKey.parse(text)


# KEY-8


@THOROUGH
@given(sources, scopes, speakers)
def test_an_explanation_has_the_key_and_a_rule_for_each_part(source: Source, scope: Scope, speaker: Speaker) -> None:
    explanation = explain_key(source, scope, speaker)
    assert explanation.key == derive_key(source, scope, speaker)
    assert {part.name: part.value for part in explanation.parts} == {
        name: value for name, value in explanation.key._asdict().items() if value
    }
    assert all(part.rule for part in explanation.parts)


def test_an_explanation_names_the_rule_that_decided() -> None:
    member = explain_key(group(user_id="7"), DEFAULT)
    assert member.sharing is Sharing.MEMBER
    assert {part.name: part.rule for part in member.parts}["user"] == Sharing.MEMBER.value
    assert explain_key(dm(), DEFAULT).sharing is Sharing.EVERYBODY
    assert explain_key(group(), DEFAULT).sharing is Sharing.UNNAMED
    assert explain_key(dm(chat_id="7"), ONE_FOR_THE_OWNER).sharing is Sharing.NOT_OWNER
    assert explain_key(dm(chat_id="7"), PER_PERSON).sharing is Sharing.NOT_LINKED
    owner = Speaker(person="p1", is_owner=True)
    assert explain_key(dm(), ONE_FOR_THE_OWNER, owner).sharing is Sharing.OWNER
    assert {part.name: part.rule for part in explain_key(dm(), PER_PERSON, owner).parts}[
        "person"
    ] == Sharing.PERSON.value


# KEY-6: aliases

aliases = st.dictionaries(st.sampled_from("abcdefg"), st.sampled_from("abcdefg"))


def test_a_chain_of_aliases_is_followed_to_its_end() -> None:
    assert {canonical_id(id_, {"a": "b", "b": "c"}) for id_ in "abc"} == {"c"}
    assert canonical_id("z", {"a": "b"}) == "z"


def test_a_ring_has_one_answer_and_ends() -> None:
    ring = {"b": "c", "c": "a", "a": "b", "x": "c"}
    assert {canonical_id(id_, ring) for id_ in "abcx"} == {"a"}
    assert canonical_id("a", {"a": "a"}) == "a"


@THOROUGH
@given(aliases)
def test_all_connected_ids_are_one_identity_and_others_are_not(table: dict[str, str]) -> None:
    group_of = {id_: {id_} for id_ in "abcdefg"}
    for one, other in table.items():
        merged = group_of[one] | group_of[other]
        group_of.update(dict.fromkeys(merged, merged))
    for one, other in combinations("abcdefg", 2):
        assert (canonical_id(one, table) == canonical_id(other, table)) == (other in group_of[one])


@THOROUGH
@given(aliases, st.sampled_from("abcdefg"))
def test_a_canonical_id_stands_for_itself(table: dict[str, str], identity: str) -> None:
    once = canonical_id(identity, table)
    assert canonical_id(once, table) == once


def test_one_person_in_several_forms_has_one_key() -> None:
    table = {"49170@s.whatsapp.net": "49170", "49170:3@s.whatsapp.net": "49170@s.whatsapp.net", "lid:9": "49170"}
    forms = [
        canonical_source(Source(platform="whatsapp", chat_id=form, user_id=form), table)
        for form in (*table, *table.values())
    ]
    assert len({derive_key(form, DEFAULT) for form in forms}) == 1
    members = [canonical_source(group(user_id=form), table) for form in table]
    assert len({derive_key(member, DEFAULT) for member in members}) == 1


@pytest.mark.parametrize("kind", ["group", "channel", "thread", "broadcast"])
def test_group_ids_are_not_rewritten(kind: str) -> None:
    here = Source(platform="whatsapp", chat_kind=kind, chat_id="a", chat_id_alt="a", parent_chat_id="a", thread_id="a")
    assert canonical_source(here, {"a": "b"}) == here


def test_only_people_are_rewritten_in_a_direct_chat() -> None:
    here = Source(**dict.fromkeys(("platform", "chat_id", "user_id", "user_id_alt", "thread_id", "scope_id"), "a"))
    there = canonical_source(here, {"a": "b"})
    assert there == replace(here, chat_id="b", user_id="b"), "the alternate id is in a name space of its own"


@BRIEF
@given(sources)
def test_without_aliases_a_source_stays_as_it_is(source: Source) -> None:
    assert canonical_source(source, {}) == source


def test_a_long_chain_of_aliases_is_followed_fast() -> None:
    chain = {str(n): str(n + 1) for n in range(200_000)}
    assert canonical_id("0", chain) == "200000"


def test_an_empty_alias_never_merges_strangers() -> None:
    table = {"a": "", "b": ""}
    one, other = (canonical_source(dm(chat_id=id_, user_id=id_), table) for id_ in "ab")
    assert derive_key(one, DEFAULT) != derive_key(other, DEFAULT)
