"""What the catalogue says about each adapter, what the adapters have, and what the documentation shows."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest

import palaver
from palaver.cli.main import main
from palaver.platforms.abilities import Ability, abilities_of
from palaver.platforms.catalog import PLATFORMS
from palaver.platforms.plugins import installed_platforms, load_factory
from palaver.protocols import CommandMenu, Downloading, Drafting, Editing, Typing, Uploading, VoiceMessages

_SOURCE = Path(palaver.__file__).parent / "platforms"
_PAGE = Path(__file__).parents[2] / "docs" / "platforms.md"
_CAPABILITIES = {
    Ability.EDITS: Editing,
    Ability.DRAFTS: Drafting,
    Ability.FILES_IN: Downloading,
    Ability.FILES_OUT: Uploading,
    Ability.VOICE: VoiceMessages,
    Ability.TYPING: Typing,
    Ability.MENU: CommandMenu,
}
OURS = [name for name in installed_platforms() if name in PLATFORMS]


def _has(name: str) -> Iterator[Ability]:
    """Yield what an adapter has. One class or several, as WhatsApp has; buttons are what is made of choices."""
    factory: Any = load_factory(name)
    made = get_type_hints(factory.make)["return"] if hasattr(factory, "make") else factory
    classes = get_args(made) or (made,)
    if factory.platform.has_threads:
        yield Ability.THREADS
    yield from (
        ability
        for ability, capability in _CAPABILITIES.items()
        if any(issubclass(each, capability) for each in classes)
    )
    files = [_SOURCE / "wechat" / "wecom.py"] if name == "wecom" else (_SOURCE / name).glob("*.py")
    texts = [file.read_text() for file in files]
    if any("outbound.choices" in text for text in texts):
        yield Ability.BUTTONS
    if any("reaction=Reaction(" in text or "reaction=reaction" in text for text in texts):
        yield Ability.REACTIONS


@pytest.mark.parametrize("name", OURS)
def test_the_declared_abilities_are_those_of_the_adapter(name: str) -> None:
    assert set(abilities_of(name) or ()) == set(_has(name))


def test_the_table_in_the_documentation_is_made_of_them() -> None:
    rows = [f"| | {' | '.join(Ability)} |", f"|{'---|' * (len(Ability) + 1)}"]
    for name in OURS:
        marks = " | ".join("✓" if each in (abilities_of(name) or ()) else " " for each in Ability)
        rows.append(f"| {PLATFORMS[name].title} | {marks} |")
    assert "\n".join(rows) in _PAGE.read_text(), "the table should be:\n" + "\n".join(rows)


def test_a_plugin_describes_itself() -> None:
    assert abilities_of("pigeon") is None


def test_the_command_line_lists_them(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["platforms", "list", "--json"]) == 0
    found = {each["name"]: each["can"] for each in json.loads(capsys.readouterr().out)["platforms"]}
    assert found["sms"] == ["files in"]
    assert set(OURS) <= set(found)
    assert main(["platforms", "list"]) == 0
    assert "threads, edits, files in, files out, typing" in capsys.readouterr().out
