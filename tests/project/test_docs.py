"""The documentation is executed: commands and Python print what the page says, links lead somewhere."""

import doctest
import re
import shlex
from datetime import UTC, datetime
from pathlib import Path

import pytest

from palaver.cli import shared_options
from palaver.cli.main import main
from palaver.gateway.gateway import FIXED_SETTINGS
from tests.echo import guided
from tests.project import platform_tables

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
BLOCK = re.compile(r"^```console\n(.*?)^```", re.DOTALL | re.MULTILINE)
PYTHON = re.compile(r"^(`{3,})pycon\n(.*?)^\1$", re.DOTALL | re.MULTILINE)
NOON = datetime(2026, 3, 29, 12, tzinfo=UTC)
LINK = re.compile(r"\[[^\]]+\]\((?!https?:)([^)#\s]*)(?:#([^)\s]*))?\)")


def page_id(page: Path) -> str:
    return str(page.relative_to(ROOT))


def shown_commands(page: Path) -> list[tuple[str, str]]:
    """The commands of a page in order, each with the output that is promised."""
    found: list[tuple[str, str]] = []
    for block in BLOCK.findall(page.read_text()):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, output = part.partition("\n")
            found.append((command, output))
    return found


def shown_python(page: Path) -> list[doctest.Example]:
    """The statements of a page in order, each with the output that is promised."""
    text = "\n".join(block for _, block in PYTHON.findall(page.read_text()))
    return doctest.DocTestParser().get_examples(text, page_id(page))


def without_padding(text: str) -> str:
    return "\n".join(line.rstrip() for line in text.strip().splitlines())


@pytest.fixture
def _fresh_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A page begins with an empty data directory, in the folder of the project, at noon of a certain day."""
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("PALAVER_HOME", str(tmp_path))
    monkeypatch.delenv("PALAVER_STORE", raising=False)
    monkeypatch.setattr(shared_options, "now", lambda: NOON)


@pytest.mark.usefixtures("_fresh_place")
@pytest.mark.parametrize("page", [page for page in PAGES if shown_commands(page)], ids=page_id)
def test_commands_print_what_the_page_says(page: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for command, promised in shown_commands(page):
        program, *args = shlex.split(command)
        assert program == "palaver", f"{page_id(page)} shows a command this test does not run: {command}"
        with guided():
            main(args)
        printed = capsys.readouterr()
        assert without_padding(printed.out + printed.err) == without_padding(promised), command


@pytest.mark.parametrize("page", [page for page in PAGES if shown_python(page)], ids=page_id)
def test_python_prints_what_the_page_says(page: Path) -> None:
    """Names given in one block are known in the next, as in one sitting."""
    sitting = doctest.DocTest(shown_python(page), {}, page_id(page), str(page), 0, None)
    complaints: list[str] = []
    doctest.DocTestRunner(verbose=False).run(sitting, out=complaints.append)
    assert not complaints, "".join(complaints)


def test_no_page_shows_python_that_is_not_run() -> None:
    for page in PAGES:
        assert not re.search(r"^`{3,}py|^>>> ", PYTHON.sub("", page.read_text()), re.MULTILINE), page


def test_the_pages_show_commands_and_python() -> None:
    commands = {page_id(page) for page in PAGES if shown_commands(page)}
    assert {"README.md", "docs/conversations.md", "docs/sessions.md", "docs/scheduled-work.md"} <= commands
    python = {page_id(page) for page in PAGES if shown_python(page)}
    assert {"docs/access.md", "docs/conversations.md", "docs/messages.md", "docs/privacy.md"} <= python


def test_make_targets_in_pages_exist() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for page in PAGES:
        assert set(re.findall(r"(?:^|`)make ([a-z]+)\b", page.read_text(), re.MULTILINE)) <= targets, page


def anchors(page: Path) -> set[str]:
    """The headings of a page, as a link names them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-") for heading in headings}


def test_links_lead_somewhere() -> None:
    for source, (path, anchor) in ((page, link) for page in PAGES for link in LINK.findall(page.read_text())):
        target = source.parent / path if path else source
        assert target.exists(), f"{page_id(source)} links to {path}"
        assert not anchor or anchor in anchors(target), f"{page_id(source)} links to {path}#{anchor}"


def test_the_tables_of_platforms_show_what_each_declares() -> None:
    page = platform_tables.PAGE.read_text()
    assert page.count("| ✓ |") > 1
    assert platform_tables.filled(page) == page, "run python -m tests.project.platform_tables"


def test_what_waits_for_a_restart_is_documented() -> None:
    (row,) = [line for line in (ROOT / "docs/terminal.md").read_text().splitlines() if line.startswith("| SIGHUP |")]
    assert [name for name in (*FIXED_SETTINGS, "tools.terminal", "voice") if f"`{name}`" not in row] == []


def test_the_readme_begins_with_the_two_commands() -> None:
    commands = re.findall(r"^(?:\$ )?(make \w+)", (ROOT / "README.md").read_text(), re.MULTILINE)
    assert commands[:2] == ["make run", "make test"]
