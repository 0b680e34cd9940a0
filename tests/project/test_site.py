"""The site shows what the pages say, sorted by task, and the commands of the troubleshooting page exist."""

import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

from palaver.cli.main import main
from tests.project.test_docs import ROOT

COMMAND = re.compile(r"`palaver ((?:[a-z]+ ?)+)([^`]*)`")
SUBCOMMANDS = {"pair", "web", "explain", "config", "platforms"}
STRUCTURE = re.compile(r"<(ol|ul|li|table|pre)\b")
LOADED = re.compile(
    r"""<(?:script|img|link rel="(?:stylesheet|icon|preconnect)")[^>]*(?:src|href)="((?:https?:)?//[^"]*)"""
)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built as `make site` does."""
    if not (ROOT / "build/mermaid.min.js").exists():
        subprocess.run([sys.executable, ROOT / ".ci/fetch_mermaid.py"], check=True)
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    subprocess.run(command, cwd=ROOT, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"}, check=True)
    return folder


def test_lists_and_tables_are_built_as_they_are_written(site: Path) -> None:
    """The renderer of the site wants four columns where CommonMark, and so everybody's editor, takes three."""
    commonmark = MarkdownIt("commonmark").enable("table")
    pages = sorted((ROOT / "docs").glob("*.md"))
    assert len(pages) > 50
    for page in pages:
        built = site / ("" if page.stem == "index" else page.stem) / "index.html"
        article = built.read_text().partition("<article")[2].partition("</article")[0]
        written = Counter(STRUCTURE.findall(commonmark.render(page.read_text())))
        assert Counter(STRUCTURE.findall(article)) == written, page.name


def test_the_site_loads_nothing_from_elsewhere(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    drawn = [page for page in pages if 'class="mermaid"' in page.read_text()]
    assert drawn
    for page in pages:
        text = page.read_text()
        assert LOADED.findall(text) == [], page
        script = re.search(r'src="([^"]*mermaid[^"]*)"', text)
        assert bool(script) == (page in drawn)
        assert not script or (page.parent / script[1]).resolve().is_file()


def test_every_platform_page_says_what_its_tests_run_against() -> None:
    table = (ROOT / "docs/platforms.md").read_text().partition("\n\n")[2].partition("\n## ")[0]
    pages = set(re.findall(r"\(([\w-]+\.md)\)", table)) - {"terminal.md", "web.md", "api.md", "relay.md", "adapters.md"}
    assert len(pages) > 20
    for page in pages:
        text = " ".join((ROOT / "docs" / page).read_text().split())
        assert "The tests run against" in text or "## How it is tested" in text, page


def test_every_page_is_in_the_navigation_or_left_out_on_purpose() -> None:
    navigation = (ROOT / "mkdocs.yml").read_text().partition("\nnav:")[2]
    for page in ROOT.glob("docs/*.md"):
        assert len(re.findall(rf"(?<![\w-]){page.name}\b", navigation)) == 1, page.name


def test_the_first_page_leads_to_every_part_of_the_navigation() -> None:
    links = set(re.findall(r"\(([\w-]+\.md)\)", (ROOT / "docs/index.md").read_text()))
    navigation = (ROOT / "mkdocs.yml").read_text().partition("\nnav:")[2].partition("\nnot_in_nav")[0]
    for part in re.split(r"^  - ", navigation, flags=re.MULTILINE)[2:]:
        assert links & set(re.findall(r"[\w-]+\.md", part)), part


def test_commands_of_the_troubleshooting_page_exist(capsys: pytest.CaptureFixture[str]) -> None:
    page = (ROOT / "docs/troubleshooting.md").read_text()
    found = COMMAND.findall(page)
    assert len(found) > 20
    for words, rest in found:
        name, *others = words.split()
        command = [name, *others[:1]] if name in SUBCOMMANDS and others else [name]
        assert main([*command, "--help"]) == 0, command
        help_text = capsys.readouterr().out
        for option in re.findall(r"--[a-z]+", rest):
            assert option in help_text, (command, option)


def test_actions_of_the_troubleshooting_page_are_logged() -> None:
    actions = set(re.findall(r"`([a-z_.]+)`", (ROOT / "docs/logs.md").read_text().partition("## What is logged")[2]))
    page = (ROOT / "docs/troubleshooting.md").read_text()
    for wanted in re.findall(r"--action ([a-z_.]+)", page):
        assert any(action == wanted or action.startswith(f"{wanted}.") for action in actions), wanted
