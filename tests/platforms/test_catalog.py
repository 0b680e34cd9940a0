import pytest

from palaver.model.errors import BadArgument
from palaver.model.platform import RESERVED_NAMES, Platform, PlatformNote
from palaver.platforms.catalog import PLATFORMS

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
