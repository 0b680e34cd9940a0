"""How much of what answers a question search finds: made-up dialogues beside plain FTS5, which stems English only."""

import random
import re
import sqlite3
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import timedelta

from bench.engines import Engine
from bench.measure import Bare, Figure, ratio_at_least
from bench.populate import NOON, key, populate, source
from bench.workshop import Workshop
from palaver.cli.loop import run
from palaver.db.transaction import Statements, transaction
from palaver.model.session import Principal
from palaver.model.transcript import Entry, Role
from palaver.store.conversations import sessions, transcript
from palaver.store.opening import open_store
from palaver.store.records import prepare

__all__ = ["recall"]

AMONG = 10
TURNS = 6_000
_NAMES = ("Caroline", "Melanie", "Anton", "Yusuf", "Ingrid", "Paolo", "Mirela", "Oskar", "Naomi", "Felix")
_PLACES = ("Lisbon", "Bergen", "Kyoto", "Tartu", "Graz", "Cork", "Izmir", "Porto", "Gdansk", "Nantes")
_THINGS = ("guitar", "telescope", "bicycle", "violin", "tent", "kettle", "camera", "canoe", "lamp", "loom")
_GERMAN = ("Gitarre", "Lampe", "Kamera", "Geige", "Tasche", "Trommel", "Leiter", "Pfanne", "Matratze", "Axt")
_STAEDTE = ("Lissabon", "Bergen", "Tartu", "Graz", "Cork", "Izmir", "Porto", "Danzig", "Nantes", "Kiel")
_JAPANESE = ("京都", "大阪", "札幌", "長崎", "沖縄", "名古屋", "仙台", "広島", "神戸", "奈良")
_MONO = ("茶碗", "眼鏡", "時計", "鞄", "自転車", "望遠鏡", "写真機", "提灯", "太鼓", "手袋")
# What was said, and a question for it in other words and forms. The numbers choose name, place and thing.
_FACTS = (
    ("We were camping with {n} near {p}, it rained all night", "When did {n} camp in the rain at {p}?", _PLACES),
    ("{n} bought a second-hand {p} yesterday and loves it", "What did {n} buy, was it a {p}?", _THINGS),
    ("I promised {n} to repair the {p} before the holidays", "Who is repairing the {p} that {n} needs?", _THINGS),
    ("{n} moved to {p} because of a new job at the harbour", "Why is {n} moving away to {p}?", _PLACES),
    ("My sister painted a picture of {p} for {n}", "Which paintings of {p} does {n} have?", _PLACES),
    ("{n} hat gestern die alte {p} verkauft", "Wann wurde die {p} von {n} verkauft?", _GERMAN),
    ("Wir haben mit {n} in {p} gezeltet und viel gelacht", "Wo war {n} als in {p} gelacht wurde?", _STAEDTE),
    ("{n}さんと{p}へ旅行に行って写真を撮りました", "{n}さんはいつ{p}を旅行しましたか", _JAPANESE),
    ("{n}さんは新しい{p}をとても気に入っています", "{n}さんが気に入った{p}は何ですか", _MONO),
)
_CHATTER = (
    "What did you do at the weekend? I was at home with the kids",
    "When is it that we meet, and where was it the last time?",
    "That is why I like the new place, it was nice of you to ask",
    "Wann war das, und wo seid ihr gewesen? Ich weiss es nicht",
    "今日はとても忙しかったです。明日は何をしますか",
)


@dataclass(frozen=True, kw_only=True)
class _Dialogue:
    said: Sequence[str]
    questions: Sequence[tuple[str, str]]
    """Each with the message that answers it."""


def _dialogue() -> _Dialogue:
    chance = random.Random(7)  # noqa: S311 - the same every time
    questions = [
        (ask.format(n=name, p=what), tell.format(n=name, p=what))
        for tell, ask, words in _FACTS
        for name in _NAMES
        for what in chance.sample(words, 5)
    ]
    said = [tell for _, tell in questions]
    said += [f"{chance.choice(_CHATTER)} {number}" for number in range(TURNS - len(said))]
    chance.shuffle(said)
    return _Dialogue(said=said, questions=questions)


@transaction
def _talk(said: Sequence[str]) -> Statements[None]:
    made = yield from sessions.create(key(0), source(0), NOON)
    entries = [
        Entry(seq=0, role=Role.USER, at=NOON + timedelta(minutes=number), text=text) for number, text in enumerate(said)
    ]
    yield from transcript.append(made.number, 1, [prepare(entry) for entry in entries])
    yield "UPDATE sessions SET next_seq = next_seq + ? WHERE no = ?", (len(entries), made.number)


def recall(workshop: Workshop, engine: Engine) -> Iterator[Figure]:
    dialogue = _dialogue()
    path = workshop.folder / f"dialogue-{engine.prefix}.db"
    populate(path, works=[_talk(dialogue.said)])
    plain = max(_recall_of_fts5(dialogue, common) for common in (frozenset[str](), _common_words(dialogue)))
    found = run(_recall(engine.copy(path), dialogue))
    yield Figure(
        name=f"{engine.prefix}.recall",
        value=found,
        unit="",
        bare=Bare(name="FTS5 with porter, the better form of the question", value=plain),
        limit=ratio_at_least(1),
        note=f"of {len(dialogue.questions)} questions as they are, among {AMONG} of {TURNS:,}",
    )


async def _recall(url: str, dialogue: _Dialogue) -> float:
    async with await open_store(url) as store:
        hits = 0
        for question, answer in dialogue.questions:
            found = await store.search.find(question, Principal.operator(), limit=AMONG)
            hits += any(hit.entry and hit.entry.text == answer for hit in found)
    return hits / len(dialogue.questions)


def _common_words(dialogue: _Dialogue) -> frozenset[str]:
    """Those of more than one message in fifty: the other form of a question is without them."""
    counts = Counter(word for text in dialogue.said for word in set(_words(text)))
    return frozenset(word for word, count in counts.items() if count * 50 > len(dialogue.said))


def _words(text: str) -> list[str]:
    return re.findall(r"\w+", text.lower())


def _recall_of_fts5(dialogue: _Dialogue, left_out: frozenset[str]) -> float:
    with closing(sqlite3.connect(":memory:")) as db:
        db.execute("CREATE VIRTUAL TABLE said USING fts5(body, tokenize='porter unicode61')")
        db.executemany("INSERT INTO said VALUES (?)", [(text,) for text in dialogue.said])
        hits = 0
        for question, answer in dialogue.questions:
            match = " OR ".join(f'"{word}"' for word in _words(question) if word not in left_out) or '""'
            rows = db.execute("SELECT body FROM said WHERE said MATCH ? ORDER BY bm25(said) LIMIT ?", (match, AMONG))
            hits += answer in {row[0] for row in rows}
    return hits / len(dialogue.questions)
