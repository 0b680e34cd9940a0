"""Every dialogue, on every platform it fits, on both databases."""

from pathlib import Path

import pytest

from palaver.commands.builtin import standard_commands
from palaver.store.opening import open_store
from tests.dialogues.play import play
from tests.dialogues.script import Says, read_dialogues

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


async def test_every_command_is_shown(tmp_path: Path) -> None:
    said = [step.text for dialogue in DIALOGUES.values() for step in dialogue.steps if isinstance(step, Says)]
    shown = {text.removeprefix("/").partition(" ")[0] for text in said if text.startswith("/")}
    async with await open_store(f"{tmp_path}/palaver.db") as store:
        assert shown >= standard_commands(store).table.keys()


@pytest.mark.parametrize(
    ("lines", "why"),
    [
        ("alice: hello\n  Palaver: You said: bye", "line 2: wanted 'You said: bye', heard 'You said: hello'"),
        ("alice: hello", "more was heard than stands there"),
        ("(the sun rises)", "what is 'the sun rises'"),
    ],
)
async def test_what_is_not_so_is_found(tmp_path: Path, lines: str, why: str) -> None:
    file = tmp_path / "wrong.txt"
    file.write_text(f"# Wrong\n{lines}\n")
    with pytest.raises(AssertionError, match=why):
        await play(next(read_dialogues(file)), f"sqlite:///{tmp_path}/palaver.db")
