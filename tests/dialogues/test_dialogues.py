"""Every dialogue, on every platform it fits, on both databases."""

from pathlib import Path

import pytest

from tests.dialogues.play import play
from tests.dialogues.script import read_dialogues

DIALOGUES = {
    f"{file.stem}: {dialogue.title}": dialogue
    for file in sorted(Path(__file__).parent.glob("*.txt"))
    for dialogue in read_dialogues(file)
}


@pytest.mark.parametrize("name", DIALOGUES)
async def test_on_chat_platforms(name: str, store_url: str) -> None:
    await play(DIALOGUES[name], store_url)


@pytest.mark.parametrize("name", [name for name, dialogue in DIALOGUES.items() if dialogue.fits_a_terminal])
async def test_at_a_terminal(name: str, store_url: str, tmp_path: Path) -> None:
    await play(DIALOGUES[name], store_url, tmp_path / "t.sock")
