"""The pages are sorted by task, and the commands of the troubleshooting page exist."""

import re

import pytest

from palaver.cli.main import main
from tests.project.test_docs import ROOT

COMMAND = re.compile(r"`palaver ((?:[a-z]+ ?)+)([^`]*)`")
SUBCOMMANDS = {"pair", "web", "explain", "config", "platforms"}


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
    actions = set(
        re.findall(r"`([a-z_.]+)`", (ROOT / "docs/operating.md").read_text().partition("## What is logged")[2])
    )
    page = (ROOT / "docs/troubleshooting.md").read_text()
    for wanted in re.findall(r"--action ([a-z_.]+)", page):
        assert any(action == wanted or action.startswith(f"{wanted}.") for action in actions), wanted
