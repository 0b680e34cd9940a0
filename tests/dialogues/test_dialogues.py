"""Every dialogue on SQLite; on PostgreSQL as many as show every command and everything that can happen."""

import os
import re
from pathlib import Path

import pytest

from palaver.commands.builtin import builtin_commands
from palaver.store.opening import open_store
from tests.dialogues.play import play
from tests.dialogues.script import Dialogue, Happens, Says, read_dialogues
from tests.store.conftest import fresh_store

DIALOGUES = {
    f"{file.stem}: {dialogue.title}": dialogue
    for file in sorted(Path(__file__).parent.glob("*.txt"))
    for dialogue in read_dialogues(file)
}


def _shows(dialogue: Dialogue) -> set[str]:
    """Return the commands and tools of a dialogue, and what happens in it."""
    said = [step.text.split() for step in dialogue.steps if isinstance(step, Says)]
    words = {" ".join(text[: 2 if text[0] == "!use" else 1]) for text in said if text[0].startswith(("/", "!"))}
    return words | {re.sub(r"\d+ \w+|\".*?\"", "…", step.what) for step in dialogue.steps if isinstance(step, Happens)}


def _showing_everything() -> list[str]:
    """Return the names of few dialogues that show together what all show. The store's own tests run every statement."""
    shown, left, chosen = set[str](), {name: _shows(dialogue) for name, dialogue in DIALOGUES.items()}, list[str]()
    while any(left[name] - shown for name in left):
        chosen.append(max(left, key=lambda name: len(left[name] - shown)))
        shown |= left.pop(chosen[-1])
    return chosen


@pytest.mark.parametrize("name", DIALOGUES)
async def test_dialogue(name: str, tmp_path: Path) -> None:
    """At a terminal where the dialogue fits one, else on the fake chat platforms."""
    terminal = [tmp_path / "t.sock"] if DIALOGUES[name].fits_a_terminal else []
    await play(DIALOGUES[name], f"sqlite:///{tmp_path}/palaver.db", *terminal)


@pytest.mark.parametrize("name", DIALOGUES if os.environ.get("PALAVER_ENGINES") == "all" else _showing_everything())
async def test_dialogue_on_postgres(name: str, postgres_server: str) -> None:
    await play(DIALOGUES[name], await fresh_store(postgres_server))


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
