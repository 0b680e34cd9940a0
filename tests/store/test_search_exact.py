"""Search against a plain look at everything: both find the same."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaver.model.errors import NotFound
from palaver.model.query import Clause, parse_query
from palaver.model.session import Principal
from palaver.model.source import Source, identity_of
from palaver.model.tokenizer import split_pages, tokenize
from palaver.store.conversations import history, sessions, transcript
from palaver.store.search.ranking import make_snippet
from palaver.store.search.search import Order
from palaver.store.store import Store
from tests.store.speech import tell, texts, topic
from tests.store.world import OPERATOR, World, dm, key_of


@pytest.fixture
def world(store: Store) -> World:
    return World(store)


_WORDS = ("red", "Red", "reduce", "rédo", "get", "getRed", "red_hat", "天", "天气", "好天气", "気", "🦊", "x1", "1")
_QUERIES = (
    "red",
    "re*",
    "redhat",
    "red.hat",
    "getred",
    "ge*",
    "天",
    "天气",
    "好天气",
    "气好",
    "🦊",
    "x1",
    '"red get"',
    "1",
)


def _fits(word: str, wanted: str, clause: Clause) -> bool:
    return word.startswith(wanted) if clause.prefix else word == wanted


def _is_run(word: str) -> bool:
    return ord(word[0]) > 0x2000


def _stands(clause: Clause, words: list[str], at: int) -> bool:
    if at + len(clause.words) > len(words):
        return False
    last = len(clause.words) - 1
    for index, wanted in enumerate(clause.words):
        word = words[at + index]
        if _is_run(wanted):
            starts, ends = word.startswith(wanted), word.endswith(wanted)
            fits = {(True, True): wanted in word, (True, False): ends, (False, True): starts}.get(
                (index == 0, index == last), word == wanted
            )
        else:
            fits = _fits(word, wanted, clause) if index == last else word == wanted
        if not fits:
            return False
    return True


def _naive(query: str, text: str, order: Order = Order.NEWEST) -> bool:
    def holds(clause: Clause, page: str) -> bool:
        line = tokenize(page)
        words = line.text.split()
        single = clause.whole or (clause.words[0] if len(clause.words) == 1 else None)
        if single and any(_fits(word, single, clause) for word in (*words, *line.wholes)):
            return True
        return any(_stands(clause, words, at) for at in range(len(words)))

    parsed = parse_query(query)
    pages = [text[start:end] for start, end in split_pages(text)]
    if any(holds(clause, page) for clause in parsed.excluded for page in pages):
        return False
    groups = parsed.any_clause().groups if parsed.is_question and order is Order.BEST else parsed.groups
    return any(all(any(holds(clause, page) for clause in group) for group in groups) for page in pages)


@pytest.mark.parametrize("seed", range(2))
async def test_finds_exactly_what_a_plain_look_finds(world: World, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    if seed % 2:  # the ways of large stores, in a small one
        monkeypatch.setattr("palaver.store.search.sqlite_index.NEWEST_WINDOW", 7)
        monkeypatch.setattr("palaver.store.search.postgres_index.NEWEST_WINDOW", 7)
        monkeypatch.setattr("palaver.store.search.entries.MAX_SCOPE_SESSIONS", 1)
        monkeypatch.setattr("palaver.store.search.search.SPARE_CANDIDATES", 1)
        monkeypatch.setattr("palaver.store.search.search.RANKED_CANDIDATES", 9)
        monkeypatch.setattr("palaver.store.search.search.SCANNED_CANDIDATES", 12)
        monkeypatch.setattr("palaver.store.search.postgres_index.ANALYZE_AFTER_ENTRIES", 1)
    chance = random.Random(seed)  # noqa: S311 - the same every time
    sources = [dm("1"), dm("2"), topic("1"), topic("2"), dm("1", platform="discord")]
    for step in range(50):
        said = " ".join(chance.choices(_WORDS, k=chance.randint(1, 5))) + chance.choice(("", ".", "!"))
        source = chance.choice(sources)
        await tell(world, said, chance.choice(_WORDS), source=source)
        if step % 7 == 3:
            await world.store.transact(transcript.undo(key_of(source), 1, world.now, principal=OPERATOR))
        if step % 13 == 8:
            await world.store.transact(history.back(key_of(source), world.now, principal=OPERATOR))
        if step % 17 == 5:
            await world.store.search.catch_up()
    seen = {principal: await _seen_by(world.store, principal) for principal in (OPERATOR, *map(_of, sources))}
    for _ in range(40):
        operator = chance.choice((" ", " ", " OR ", " NOT ", " -"))
        query = operator.join(chance.choices(_QUERIES, k=chance.choice((1, 1, 2, 3))))
        principal = chance.choice([OPERATOR, *map(_of, sources)])
        for order in Order:
            expected = sorted([text for text in seen[principal] if _naive(query, text, order)])
            assert sorted(await texts(world.store, query, principal, order=order, limit=1000)) == expected, query
            few = await texts(world.store, query, principal, order=order, limit=3)
            assert len(few) == min(3, len(expected)), query


def _of(source: Source) -> Principal:
    return Principal(identities=frozenset({identity_of(source) or ""}))


async def _seen_by(store: Store, principal: Principal) -> list[str]:
    """All that is shown of all sessions the principal may see, read from the transcripts."""
    found: list[str] = []
    for number in range(1, 30):
        try:
            session = await store.read(sessions.get(number))
            entries = await store.read(transcript.load_visible(session.id, principal))
        except (NotFound, IndexError):
            continue
        found += [entry.text for entry in entries]
    return found


@given(
    st.text(st.sampled_from("a b\n\t中👍\u0301\u200d\x00ab🇩") | st.characters(), max_size=400), st.sampled_from("ab中")
)
def test_a_snippet_is_one_line_with_its_marks_inside(text: str, word: str) -> None:
    marks = parse_query(word).find_spans(text)
    snippet, shown = make_snippet(text, marks)
    assert len(snippet) <= 170
    assert len(snippet.splitlines()) <= 1
    assert all(0 <= start < end <= len(snippet) for start, end in shown)
    assert bool(shown) == bool(marks)
    assert [span for span in shown if snippet[span[0] : span[1]].isspace()] == []
