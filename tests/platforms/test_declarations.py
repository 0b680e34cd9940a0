"""What each platform declares, what its adapter has, and what the command line shows of it."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest

import palaver
from palaver.cli.main import main
from palaver.model.errors import BadArgument
from palaver.model.platform import RESERVED_NAMES, Ability, Platform, PlatformNote
from palaver.platforms.plugins import BUILT_IN, PLATFORMS, installed_platforms, load_factory
from palaver.protocols import CommandMenu, Downloading, Drafting, Editing, Typing, Uploading, VoiceMessages

_SOURCE = Path(palaver.__file__).parents[1]
_CAPABILITIES = {
    Ability.EDITS: Editing,
    Ability.DRAFTS: Drafting,
    Ability.FILES_IN: Downloading,
    Ability.FILES_OUT: Uploading,
    Ability.VOICE: VoiceMessages,
    Ability.TYPING: Typing,
    Ability.MENU: CommandMenu,
}
# SPEC PLT-3, in its order.
PROMISED = (
    "terminal",
    "web",
    "api",
    "webhook",
    "telegram",
    "discord",
    "slack",
    "whatsapp",
    "signal",
    "matrix",
    "imessage",
    "feishu",
    "wechat",
    "wecom",
    "yuanbao",
    "email",
    "mattermost",
    "teams",
    "line",
    "irc",
    "xmpp",
    "sms",
    "ntfy",
    "dingtalk",
    "qq",
)


@pytest.mark.parametrize("name", PROMISED)
def test_every_promised_platform_is_there_under_its_name(name: str) -> None:
    assert PLATFORMS[name].name == name
    assert PLATFORMS[name].title


def test_ids_are_hidden_where_the_agent_needs_none() -> None:
    assert {name for name, platform in PLATFORMS.items() if platform.hides_ids} == {
        "whatsapp",
        "signal",
        "telegram",
        "imessage",
    }


def test_people_are_mentioned_by_id_where_ids_are_not_hidden() -> None:
    assert {name for name, platform in PLATFORMS.items() if platform.mentions_by_id} == {"discord", "slack", "yuanbao"}
    assert not any(platform.mentions_by_id and platform.hides_ids for platform in PLATFORMS.values())


def test_nobody_reads_notices_on_an_api_or_a_webhook() -> None:
    assert {name for name, platform in PLATFORMS.items() if not platform.for_people} == {"api", "webhook"}


@pytest.mark.parametrize("name", ["slack", "discord"])
def test_a_note_promises_tools_only_to_an_agent_that_has_them(name: str) -> None:
    tools = f"{PLATFORMS[name].title} tools"
    for other in (frozenset[str](), frozenset({"slack", "discord"} - {name})):
        note = PLATFORMS[name].note_for(other)
        assert "cannot" in note
        assert tools not in note
    note = PLATFORMS[name].note_for(frozenset({name}))
    assert tools in note
    assert "cannot" not in note


def test_discord_with_its_tools_learns_of_the_ids_they_need() -> None:
    assert "ids" in PLATFORMS["discord"].note_for(frozenset({"discord"}))
    for name in ("discord", "slack"):
        assert "<@id>" in PLATFORMS[name].note_for(frozenset())


def test_the_other_notes() -> None:
    assert "blank lines" in PLATFORMS["imessage"].note_for(frozenset())
    assert "this room" in PLATFORMS["matrix"].note_for(frozenset())
    yuanbao = PLATFORMS["yuanbao"]
    alone, with_tool = yuanbao.note_for(frozenset()), yuanbao.note_for(frozenset({"send_message"}))
    assert "Private messages" in alone
    assert "send_message" not in alone
    assert "yuanbao:ID" in with_tool
    assert not PLATFORMS["telegram"].note_for(frozenset())


def test_a_note_with_nothing_else_to_say_is_left_out() -> None:
    tooled = Platform(
        name="x", title="X", notes=(PlatformNote(text="a", needs=frozenset({"t", "u"})), PlatformNote(text="b"))
    )
    assert tooled.note_for(frozenset({"t"})) == "b"
    assert tooled.note_for(frozenset({"t", "u", "v"})) == "a b"


@pytest.mark.parametrize(
    "name", ["", "Telegram", "a:b", "a b", "a-b", "é", "1a", "a\n", "x" * 33, *sorted(RESERVED_NAMES)]
)
def test_a_platform_needs_a_plain_name_that_means_nothing_else(name: str) -> None:
    with pytest.raises(BadArgument, match="cannot be named"):
        Platform(name=name, title="X")


def _shown_by(platform: Platform) -> Iterator[Ability]:
    """Yield what an adapter has. One class or several, as WhatsApp has; buttons are what is made of choices."""
    factory: Any = load_factory(platform.name)
    made = get_type_hints(factory.make)["return"] if hasattr(factory, "make") else factory
    classes = get_args(made) or (made,)
    yield from (
        ability
        for ability, capability in _CAPABILITIES.items()
        if any(issubclass(each, capability) for each in classes)
    )
    module = _SOURCE / f"{platform.adapter.partition(':')[0].replace('.', '/')}.py"
    files = module.parent.glob("*.py") if module.stem == "adapter" else [module]
    texts = [file.read_text() for file in files]
    if any("outbound.choices" in text for text in texts):
        yield Ability.BUTTONS
    if any("reaction=Reaction(" in text or "reaction=reaction" in text for text in texts):
        yield Ability.REACTIONS


@pytest.mark.parametrize("name", sorted(PLATFORMS.keys() - BUILT_IN))
def test_the_declared_abilities_are_those_of_the_adapter(name: str) -> None:
    platform = PLATFORMS[name]
    assert load_factory(name).platform is platform
    assert platform.abilities - {Ability.THREADS} == set(_shown_by(platform))


def test_every_gateway_serves_three_platforms_and_the_others_are_installed() -> None:
    assert {"terminal", "web", "api"} == BUILT_IN
    assert PLATFORMS.keys() - BUILT_IN <= set(installed_platforms())


def test_the_command_line_lists_what_they_can_do(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["platforms", "list", "--json"]) == 0
    found = {each["name"]: each["can"] for each in json.loads(capsys.readouterr().out)["platforms"]}
    assert found["sms"] == ["files in"]
    assert PLATFORMS.keys() - BUILT_IN <= set(found)
    assert main(["platforms", "list"]) == 0
    assert "threads, edits, files in, files out, typing" in capsys.readouterr().out
