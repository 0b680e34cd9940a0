"""Every dialogue once on each database."""

from pathlib import Path

import pytest

from palaver.commands.builtin import builtin_commands
from palaver.store.opening import open_store
from tests.dialogues.play import play
from tests.dialogues.script import Says, read_dialogues

DIALOGUES = {
    f"{file.stem}: {dialogue.title}": dialogue
    for file in sorted(Path(__file__).parent.glob("*.txt"))
    for dialogue in read_dialogues(file)
}


@pytest.mark.parametrize("name", DIALOGUES)
async def test_dialogue(name: str, store_url: str, tmp_path: Path) -> None:
    """On SQLite at a terminal where the dialogue fits one, else on the fake chat platforms."""
    at_terminal = DIALOGUES[name].fits_a_terminal and store_url.startswith("sqlite")
    await play(DIALOGUES[name], store_url, *([tmp_path / "t.sock"] if at_terminal else []))


async def test_every_command_is_shown(tmp_path: Path) -> None:
    said = [step.text for dialogue in DIALOGUES.values() for step in dialogue.steps if isinstance(step, Says)]
    shown = {text.removeprefix("/").partition(" ")[0] for text in said if text.startswith("/")}
    async with await open_store(f"{tmp_path}/palaver.db") as store:
        assert shown >= builtin_commands(store).table.keys()


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
