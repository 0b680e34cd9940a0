"""What is deleted is gone from the file, and not only from the tables."""

from pathlib import Path

from palaver.store.conversations import deletion
from palaver.store.opening import open_store
from tests.store.world import NOON, OPERATOR, World

_WORD = b"xylographer"


async def test_a_deleted_session_leaves_no_words_in_the_file(tmp_path: Path) -> None:
    path = tmp_path / "palaver.db"
    async with await open_store(str(path)) as store:
        world = World(store)
        begun = await world.exchange("a secret " + f"{_WORD.decode()} " * 900)
        await world.exchange("something else")
    assert _holding(_WORD, tmp_path) == ["palaver.db"]
    async with await open_store(str(path)) as store:
        await store.transact(deletion.delete(begun.turn.session, OPERATOR, NOON))
        await store.search.catch_up()
    assert _holding(_WORD, tmp_path) == []


def _holding(word: bytes, folder: Path) -> list[str]:
    return [file.name for file in folder.iterdir() if word in file.read_bytes()]
