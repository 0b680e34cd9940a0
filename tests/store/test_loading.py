"""What is known of a session saves decoding, and never changes what is loaded."""

import asyncio
from datetime import timedelta
from random import Random

import pytest

from palaver.db.transaction import Statements, Value, keyed, transaction
from palaver.model.view import estimate_tokens
from palaver.store.conversations import transcript
from palaver.store.conversations.transcript import NOTHING_LOADED, LoadedEntries
from palaver.store.records import SEQS, prepare
from palaver.store.store import Store
from tests.store.world import NOON, World, answer, dm

SESSIONS = (1, 2)
MOST = 6
"""How many entries a session has at most: few, so that the same ones are often changed and put back."""
TEXTS = ("yes", "no", "\U0001f600" * 9, "x" * 5_000)
READABLE = tuple(prepare(answer(text, at=NOON + timedelta(hours=n))) for n, text in enumerate(TEXTS))
Change = tuple[str, tuple[Value, ...]]
# One after the other, these two read as two entries: the first of them has all the text.
CUT = (prepare(answer("x,y")).placed(1) + b"," + READABLE[0].placed(2)).split(b",y")
DAMAGED = (b"", b"null", CUT[0], b"y" + CUT[1], b"[1,2]", b"],[", b"\xff\x00")


def change(random: Random) -> Change:
    """Return a change of one entry, or of where its session begins, as a command, a repair or damage makes it."""
    session, seq = random.choice(SESSIONS), random.randint(1, MOST)
    id_ = session * SEQS + seq
    body = random.choice(DAMAGED) if random.random() < 0.3 else random.choice(READABLE).placed(seq)
    return random.choice(
        (
            ("INSERT INTO entries (id, role, body) VALUES (?, 'user', ?) ON CONFLICT DO NOTHING", (id_, body)),
            ("INSERT INTO entries (id, role, body) VALUES (?, 'user', ?) ON CONFLICT DO NOTHING", (id_, body)),
            ("UPDATE entries SET body = ? WHERE id = ?", (body, id_)),
            ("DELETE FROM entries WHERE id = ?", (id_,)),
            ("UPDATE entries SET hidden_by = ? WHERE id = ?", (random.choice((None, None, 7)), id_)),
            ("UPDATE sessions SET shown_from = ? WHERE no = ?", (random.choice((1, 1, seq)), session)),
        )
    )


@transaction
def apply(sql: str, values: tuple[Value, ...]) -> Statements[None]:
    yield sql, values


def parts(loaded: LoadedEntries) -> object:
    """An entry that cannot be read equals one that says so: compare their types, too."""
    return loaded, [tuple(row) for row in loaded.rows], list(map(type, loaded.entries))


@pytest.mark.parametrize("seed", range(3))
async def test_what_is_known_never_changes_what_is_loaded(store: Store, seed: int) -> None:
    world, random = World(store), Random(seed)  # noqa: S311
    for user in ("7", "8"):
        await world.exchange("hello", source=dm(user))
    known = [NOTHING_LOADED]
    for _ in range(300):
        session = random.choice(SESSIONS)
        for _ in range(random.randint(0, 2)):
            await store.transact(apply(*change(random)))
        fresh = await store.read(transcript.load_again(session, NOTHING_LOADED))
        assert fresh.entries == await store.read(transcript.load_shown(session))
        assert fresh.tokens == estimate_tokens(*fresh.entries)
        for each in known:
            assert parts(await store.read(transcript.load_again(session, each))) == parts(fresh)
        known = [fresh, *known[:5]]


async def test_only_what_is_new_is_decoded(store: Store) -> None:
    world = World(store)
    session = (await world.exchange("one")).turn.session_number
    elsewhere = (await world.exchange("hello", source=dm("8"))).turn.session_number
    known = await store.read(transcript.load_again(session, NOTHING_LOADED))
    await world.exchange("two")
    loads = [transcript.load_again(session, known), keyed("b", transcript.load_again(session, known))]
    # Together with those of another session, PostgreSQL returns rows of another type.
    both = (store.transact(keyed(f"{each}", transcript.load_again(each, known))) for each in (session, elsewhere))
    for loaded in (*[await store.transact(each) for each in loads], (await asyncio.gather(*both))[0]):
        assert [entry.text for entry in loaded.entries] == ["one", "yes", "two", "yes"]
        assert loaded.entries[0] is known.entries[0]
        again = await store.read(transcript.load_again(session, loaded))
        assert list(map(id, again.entries)) == list(map(id, loaded.entries))
