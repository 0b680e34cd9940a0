"""Search: everything a principal may see is found, in every script, on both engines; nothing else is."""

from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from palaver.model.compaction import plan_compaction
from palaver.model.errors import BadArgument, NotFound
from palaver.model.query import parse_query
from palaver.model.session import Principal
from palaver.model.transcript import Entry, Role
from palaver.store.conversations import branches, deletion, history, sessions, titles, transcript
from palaver.store.queue import turns
from palaver.store.search.search import SPOKEN_ROLES, Order, SearchFilter
from palaver.store.store import Store
from tests.store.speech import marked, tell, texts, topic
from tests.store.world import OPERATOR, World, dm, key_of


@pytest.fixture
def world(store: Store) -> World:
    return World(store)


# Words in every script

WRITTEN = (
    "The quick brown fox jumps over the lazy dog",
    "Déjà vu: café, naïve, Straße, Øresund",
    "call getUserName() in foo.bar or snake_case_name, see HTTPServer2 and utf-8",
    "今天天气很好，我们去公园吧",
    "日本語の検索はむずかしい。カタカナ",
    "한국어 검색도 됩니다",
    "ภาษาไทยไม่มีช่องว่าง",
    "good job 👍🏽 from 🇩🇪, family 👨\u200d👩\u200d👧",
    "Привет, МИР. Γειά σου Κόσμε. שָׁלוֹם",
)


WORDS: list[tuple[str, list[int]]] = [
    ("fox", [0]),
    ("FOX quick", [0]),
    ("fox cat", []),
    ('"brown fox"', [0]),
    ('"fox brown"', []),
    ('"over the la*"', [0]),
    ("qui*", [0]),
    ("fo*", [2, 0]),
    ("deja CAFE naïve strasse oresund", [1]),
    ("getUserName", [2]),
    ("getusername", [2]),
    ("get_user_name", [2]),
    ("user", [2]),
    ("getuser*", [2]),
    ("foo.bar", [2]),
    ("foobar", [2]),
    ("bar", [2]),
    ("snake_case_name", [2]),
    ("case_name", [2]),
    ("httpserver2", [2]),
    ("utf8", [2]),
    ("天", [3]),
    ("天气", [3]),
    ("天气很好", [3]),
    ("好我", []),
    ("检 索", []),
    ("検索", [4]),
    ("カタ", [4]),
    ("ｶﾀｶﾅ", [4]),
    ("索は", [4]),
    ("검", [5]),
    ("검색", [5]),
    ("어검", []),
    ("ไทย", [6]),
    ("ไ", [6]),
    ("ช่อง", [6]),
    ("👍", [7]),
    ("🇩🇪", [7]),
    ("👨\u200d👩\u200d👧", [7]),
    ("мир привет", [8]),
    ("κοσμε", [8]),
    ("שלום", [8]),
]
"""A query, and the texts of WRITTEN that it finds."""


async def test_words(world: World) -> None:
    for text in WRITTEN:
        await tell(world, text)
    for query, found in WORDS:
        expected = sorted(WRITTEN[index] for index in found)
        assert sorted(await texts(world.store, query, order=Order.NEWEST)) == expected, query
        best = await texts(world.store, query, order=Order.BEST)
        assert sorted(best[: len(expected)]) == expected, query
        assert len(best) == len(expected) or parse_query(query).is_question, query


async def test_a_question_finds_the_best_whatever_its_age(world: World) -> None:
    await tell(world, "Caroline went camping near the lake with her kids", "How nice of her")
    await tell(world, "Caroline has bought a boat", "The lake is cold in June")
    for number in range(60):
        await tell(world, f"I went to work with the bus, number {number}", "That is what they all do in the end")
    question = "When was it that Caroline went camping with the kids?"
    assert (await texts(world.store, question))[:2] == [
        "Caroline went camping near the lake with her kids",
        "Caroline has bought a boat",
    ]
    assert await texts(world.store, question, order=Order.NEWEST) == [], "every word must be there"
    assert await texts(world.store, f'"{question}"') == []
    assert await texts(world.store, "camp", order=Order.NEWEST) == ["Caroline went camping near the lake with her kids"]
    assert await texts(world.store, '"camp"') == []
    only_common = await texts(world.store, "with the", limit=3)
    assert only_common[0].startswith("I went to work with the bus")


async def test_what_is_indexed(world: World) -> None:
    """The words of every role; not the reasoning, not the calls."""
    tool = Entry(seq=0, role=Role.TOOL, at=world.now, text="walnut from a tool", answers="c1", reasoning="secretly")
    await tell(world, "peanut from me", "hazelnut from you", tool)
    assert await texts(world.store, "from") == ["walnut from a tool", "hazelnut from you", "peanut from me"]
    assert await texts(world.store, "secretly") == []


async def test_an_empty_query_is_refused(store: Store) -> None:
    for query in ("", "   ", '""', "*", "!?-", "\x00", '"""'):
        with pytest.raises(BadArgument, match="no word to search for"):
            await store.search.find(query, OPERATOR)


QUERIES = [
    "a' OR 1=1 --",
    'x" AND "y',
    "NEAR(a b, 3)",
    "body: fox",
    "^fox",
    "a:* & b | !c",
    "\\'fox\\'",
    "_s1",
    "|_ruser|",
    "%",
    "fox%",
    "a" * 5000,
    "中" * 5000,
    "a* " * 300,
    "\ud800x",
    "x\x00y",
    "((((((((((a",
    "a.b.c.d.e.f.g.h.i.j.k.l",
    "👍" * 500,
    "".join(map(chr, range(0x4E00, 0x5500))),
    " ".join(map(chr, range(0x4E00, 0x5500))),
    ".".join(f"w{number}" for number in range(400)),
    "\u0e48\u0e33 \u1160 \u3099",
]


async def test_any_query_is_answered(world: World) -> None:
    await tell(world, WRITTEN[0])
    for query in QUERIES:
        with suppress(BadArgument):
            assert await texts(world.store, query) in ([], [WRITTEN[0]]), query


# Narrowing


async def test_filters(world: World) -> None:
    first = await tell(world, "apple of the first", "apple of the agent")
    middle = world.now
    await tell(world, "apple of the second", source=dm("8"))
    await tell(world, "apple on another platform", source=dm("7", platform="discord"))

    async def found(**narrowed: Any) -> list[str]:
        return await texts(world.store, "apple", filter=SearchFilter(**narrowed))

    assert len(await found()) == 4
    assert await found(platform="discord") == ["apple on another platform"]
    assert await found(people={"telegram:8"}) == ["apple of the second"]
    assert await found(people={"discord:7"}) == ["apple on another platform"]
    assert await found(people={"discord:7", "telegram:8"}) == ["apple on another platform", "apple of the second"]
    assert await found(roles={Role.ASSISTANT}) == ["apple of the agent"]
    assert await found(session=first.turn.session) == ["apple of the agent", "apple of the first"]
    assert await found(since=middle) == ["apple on another platform", "apple of the second", "apple of the agent"]
    assert await found(until=middle) == ["apple of the first"]
    assert await found(since=middle, until=middle + timedelta(seconds=1)) == ["apple of the agent"]
    assert await found(roles={Role.USER}, people={"telegram:7"}, until=middle) == ["apple of the first"]
    assert await found(roles={Role.SUMMARY}) == []
    assert await found(roles={Role.SUMMARY, Role.TOOL, Role.ASSISTANT}) == ["apple of the agent"]
    assert len(await found(roles=SPOKEN_ROLES)) == 4


async def test_a_session_of_others_is_no_filter(world: World) -> None:
    begun = await tell(world, "apple")
    with pytest.raises(NotFound):
        await texts(world.store, "apple", Principal.speaking(dm("8")), filter=SearchFilter(session=begun.turn.session))


async def test_limit_and_order(world: World) -> None:
    await tell(world, "tea tea tea")
    for number in range(30):
        await tell(world, f"tea and a long talk about number {number} and other things")
    newest = await texts(world.store, "tea", limit=5)
    assert [text.split()[7] for text in newest] == ["29", "28", "27", "26", "25"]
    assert (await texts(world.store, "tea", order=Order.BEST, limit=2))[0] == "tea tea tea"
    assert len(await texts(world.store, "tea", limit=1000)) == 31
    assert await texts(world.store, "tea", limit=0) == []


async def test_newest_is_by_the_time_of_the_entry(world: World) -> None:
    """What comes late but is old, as from an import, does not push itself to the front."""
    for day in (5, 1, 9, 3):
        world.now = datetime(2025, 1, day, tzinfo=world.now.tzinfo)
        await tell(world, f"pear {day}")
    assert await texts(world.store, "pear") == ["pear 9", "pear 5", "pear 3", "pear 1"]


async def test_many_in_one_second_keep_their_order(world: World) -> None:
    await world.say("begin")
    begun = await world.begin()
    assert begun
    entries = [Entry(seq=0, role=Role.TOOL, at=world.now, text=f"plum {number}") for number in range(300)]
    await world.store.transact(turns.settle(begun.turn, entries, [], world.now))
    await tell(world, "plum after", "plum last")
    found = await texts(world.store, "plum", limit=400)
    assert found == ["plum last", "plum after", *(f"plum {number}" for number in reversed(range(300)))]
    until = SearchFilter(until=world.now)
    assert len(await texts(world.store, "plum", limit=400, filter=until)) == 301


# What is shown


async def test_snippet_and_marks(world: World) -> None:
    text = "x " * 200 + "\n\twhere the  Brown\x07 fox\njumps" + " y" * 300
    await tell(world, text)
    (hit,) = await world.store.search.find("fox brown", OPERATOR)
    assert "where the Brown fox jumps" in hit.snippet
    assert marked(hit) == ["Brown", "fox"]
    assert len(hit.snippet) <= 170
    assert hit.snippet[0] == hit.snippet[-1] == "…"
    assert hit.entry
    assert hit.entry.text == text
    (hit,) = await world.store.search.find("fox", OPERATOR)
    assert marked(hit) == ["fox"]


async def test_snippet_without_spaces(world: World) -> None:
    await tell(world, "今天天气很好" * 100 + "终点在这里" + "明天" * 100)
    (hit,) = await world.store.search.find("终点在", OPERATOR)
    assert marked(hit) == ["终点在"]
    assert len(hit.snippet) <= 170


async def test_neighbours(world: World) -> None:
    await tell(world, "one", "two")
    await tell(world, "three", "four")
    await tell(world, "of somebody else", source=dm("8"))
    await tell(world, "five", "six")
    (hit,) = await world.store.search.find("four", OPERATOR, neighbours=2)
    assert [entry.text for entry in hit.before] == ["two", "three"]
    assert [entry.text for entry in hit.after] == ["five", "six"]
    (hit,) = await world.store.search.find("one", OPERATOR, neighbours=2)
    assert [entry.text for entry in hit.before] == []
    assert hit.session.owner == "telegram:7"


async def test_a_long_entry_is_found_once_and_shown_where_it_fits(world: World) -> None:
    text = "needle " + "hay " * 20_000 + "needle thread " + "hay " * 20_000
    await tell(world, text)
    assert await texts(world.store, "needle") == [text]
    (hit,) = await world.store.search.find('"needle thread"', OPERATOR, order=Order.BEST)
    assert marked(hit) == ["needle", "thread"]


# Who sees what, and what is hidden


async def test_nobody_finds_what_is_not_theirs(world: World) -> None:
    await tell(world, "my secret recipe")
    await tell(world, "our secret plan", source=topic("7"))
    await tell(world, "hello", source=topic("8"))
    mine, theirs = Principal.speaking(dm("7")), Principal.speaking(dm("8"))
    assert await texts(world.store, "secret", mine) == ["our secret plan", "my secret recipe"]
    assert await texts(world.store, "secret", theirs) == ["our secret plan"]
    assert await texts(world.store, "secret", Principal.speaking(dm("9"))) == []
    assert await texts(world.store, "secret", Principal()) == []
    (hit,) = await world.store.search.find("secret", theirs, neighbours=5)
    assert [entry.text for entry in (*hit.before, *hit.after)] == ["hello"]


async def test_a_branch_that_somebody_made_alone_is_not_shown_to_those_whose_words_it_copied(world: World) -> None:
    ann, private = topic("7"), dm("7")
    shared = (await world.exchange("a canary", source=ann)).turn.session
    await world.exchange("and a finch", source=topic("8"))
    me = Principal.speaking(private)
    branch = branches.branch(key_of(private), private, me, world.now, by="me", from_session=shared)
    await world.store.transact(branch)
    await world.exchange("my secret", source=private)
    assert await texts(world.store, "secret", me) == ["my secret"]
    assert await texts(world.store, "secret", replace(me, among=shared)) == []


async def test_many_sessions_of_one_person(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """More than can be named in the query."""
    monkeypatch.setattr("palaver.store.search.entries.MAX_SCOPE_SESSIONS", 20)
    for number in range(23):
        await tell(world, f"fig {number}", source=dm("7", thread_id=str(number)))
        await tell(world, "fig of others", source=dm("8", thread_id=str(number % 3)))
    found = await texts(world.store, "fig", Principal.speaking(dm("7")), limit=500)
    assert found == [f"fig {number}" for number in reversed(range(23))]


async def test_undone_is_not_found_until_it_is_back(world: World) -> None:
    await tell(world, "keep the olive")
    await tell(world, "undo the olive", "olive undone")
    key = key_of(dm())
    assert len(await texts(world.store, "olive")) == 3
    await world.store.transact(transcript.undo(key, 1, world.now, principal=OPERATOR))
    assert await texts(world.store, "olive") == ["keep the olive"]
    assert await texts(world.store, "olive", order=Order.BEST) == ["keep the olive"]
    (hit,) = await world.store.search.find("olive", OPERATOR, neighbours=3)
    assert hit.after == ()
    await world.store.transact(history.back(key, world.now, principal=OPERATOR))
    assert len(await texts(world.store, "olive")) == 3


async def test_compacted_is_still_found(world: World) -> None:
    """Hidden from the prompt, still searchable; when it is taken back, the summary goes."""
    for number in range(6):
        await tell(world, f"lemon {number} " + "word " * 60, "fine " * 60)
    key = key_of(dm())
    session = await world.store.read(sessions.open_by_key(key))
    assert session
    plan = plan_compaction(await world.store.read(transcript.load_visible(session.id, OPERATOR)), keep_exchanges=2)
    await world.store.transact(transcript.compact(key, plan, "lemon in short", world.now, by="me"))
    assert len(await texts(world.store, "lemon")) == 7
    await world.store.transact(history.back(key, world.now, principal=OPERATOR))
    assert len(await texts(world.store, "lemon")) == 6
    assert await texts(world.store, "short") == []


async def test_a_branch_is_found_once(world: World) -> None:
    first = await tell(world, "cherry before", "cherry answer")
    me = Principal.speaking(dm())
    await world.store.transact(branches.branch(key_of(dm()), dm(), me, world.now, by="me"))
    await tell(world, "cherry in the branch")
    assert await texts(world.store, "cherry", me) == ["cherry in the branch", "cherry answer", "cherry before"]
    hits = await world.store.search.find("before", me)
    assert [hit.session.id for hit in hits] == [first.turn.session]
    await world.store.search.rebuild()
    assert len(await texts(world.store, "cherry", me)) == 3


async def test_a_copy_is_found_where_the_original_is_not(world: World) -> None:
    """Who came only into the branch finds what was copied into it; so does everybody when the original is gone."""
    first = await tell(world, "mango before", source=topic("7"))
    me, other = Principal.speaking(dm("7")), Principal.speaking(dm("8"))
    key = key_of(topic("7"))
    child = await world.store.transact(branches.branch(key, topic("7"), me, world.now, by="me"))
    await tell(world, "mango too", source=topic("8"))
    assert await texts(world.store, "mango", other) == ["mango too", "mango before"]
    assert await texts(world.store, "mango", me) == ["mango too", "mango before"]
    await world.store.transact(deletion.delete(first.turn.session, OPERATOR, world.now))
    hits = await world.store.search.find("before", me)
    assert [hit.session.id for hit in hits] == [child.id]


async def test_deleted_is_not_found(world: World) -> None:
    gone = await tell(world, "banana of the gone")
    await tell(world, "banana of the other", source=dm("8"))
    assert len(await texts(world.store, "banana")) == 2
    await world.store.transact(deletion.delete(gone.turn.session, OPERATOR, world.now))
    assert await texts(world.store, "banana") == ["banana of the other"]
    assert await texts(world.store, "gone") == []


# Titles


async def test_titles_are_found_before_what_was_said(world: World) -> None:
    first = await tell(world, "where shall we go?", "to the sea", source=dm("1"))
    await tell(world, "the sea is blue", "so is the sky", source=dm("2"))
    await world.store.transact(titles.rename(first.turn.session, "Café by the Sea", OPERATOR))

    async def found(query: str, principal: Principal = OPERATOR, **only: Any) -> list[tuple[str, str]]:
        hits = await world.store.search.find(query, principal, filter=SearchFilter(**only))
        return [(hit.found_in, hit.snippet) for hit in hits]

    title = ("title", "Café by the Sea")
    for query in ("cafe", "caf*", '"by the sea"', "hotel OR cafe", "cafe NOT hotel"):
        assert await found(query) == [title], query
    assert await found("sea") == [title, ("user", "the sea is blue"), ("assistant", "to the sea")]
    assert await found("sea -cafe") == [("user", "the sea is blue"), ("assistant", "to the sea")]
    assert await found("cafe", Principal(identities=frozenset({"telegram:2"}))) == []
    assert await found("cafe", Principal(identities=frozenset({"telegram:1"}))) == [title]
    assert await found("cafe", platform="discord") == []
    assert await found("cafe", roles=frozenset({Role.USER})) == []
    assert await found("cafe", since=world.now + timedelta(days=1)) == []
    hits = await world.store.search.find("cafe", OPERATOR, neighbours=2)
    assert [(marked(hit), hit.entry, hit.at) for hit in hits] == [(["Café"], None, hits[0].session.last_active)]
