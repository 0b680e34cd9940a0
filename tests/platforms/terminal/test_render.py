"""Answers in a terminal: rendered Markdown, whole words, and nothing that could change the terminal."""

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from palaver.platforms.terminal.files import save_file
from palaver.platforms.terminal.render import render_markdown, wrap
from palaver.platforms.terminal.wire import File

STYLES = re.compile(r"\x1b\[[0-9;]*m")
ANSWER = """\
# Plan

Buy **red** tulips and `water` them <b>daily</b>.
Then wait.

1. dig
2. plant
Done.

| what | when |
|---|---|
| dig | May |

```python
print("hello   world")
```
"""


def test_markdown_is_rendered_and_nothing_is_lost() -> None:
    lines = render_markdown(ANSWER, 60, is_plain=True).split("\n")
    assert lines[0] == "Plan"
    assert "Buy red tulips and water them <b>daily</b>." in lines
    assert "Then wait." in lines, "a line break is kept"
    assert "1. dig" in lines
    assert "Done." in lines, "the list has ended"
    assert ' print("hello   world")' in lines
    assert ["", ""] not in [lines[at : at + 2] for at in range(len(lines))]


def test_styles_follow_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert "\x1b[36mwater" in render_markdown(ANSWER, 60)
    monkeypatch.setenv("NO_COLOR", "1")
    colours = {code for style in STYLES.findall(render_markdown(ANSWER, 60)) for code in style[2:-1].split(";")}
    assert colours <= {"0", "1", "3", "4", "9", "2"}
    assert "\x1b" not in render_markdown(ANSWER, 60, is_plain=True)


@given(st.text(max_size=200), st.sampled_from((20, 40, 80)))
def test_an_answer_fits_and_cannot_change_the_terminal(text: str, width: int) -> None:
    shown = render_markdown(text, width)
    assert "\x1b" not in STYLES.sub("", shown)
    assert all(cell_len(STYLES.sub("", line)) <= width for line in shown.split("\n"))


@given(st.lists(st.text("abc", min_size=1, max_size=20), min_size=1, max_size=30))
def test_no_word_is_broken(words: list[str]) -> None:
    for lines in (wrap(" ".join(words), 20), render_markdown(" ".join(words), 20, is_plain=True).split("\n")):
        assert " ".join(lines).split() == words


def test_a_file_is_saved_beside_others_and_never_outside(tmp_path: Path) -> None:
    (tmp_path / "content").write_bytes(b"tulips")
    folder = tmp_path / "here"
    folder.mkdir()
    for name in ("plan.md", "plan.md", "../../.bashrc", ""):
        assert save_file(File(name=name, path=str(tmp_path / "content"), id="7"), folder).startswith("Saved ")
    assert sorted(each.name for each in folder.iterdir()) == ["_.._.bashrc", "file", "plan (2).md", "plan.md"]
    told = save_file(File(name="plan.md", path=str(tmp_path / "gone"), id="7"), folder)
    assert told == "plan.md could not be saved here: No such file or directory. Get it with: palaver file 7"
