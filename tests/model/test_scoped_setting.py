from collections.abc import Mapping
from typing import Any

import pytest

from palaver.model.key import ChatSelector, ResolvedSetting, ScopedSetting
from palaver.model.source import Source

SOURCE = Source(
    platform="discord",
    chat_kind="thread",
    chat_id="t1",
    thread_id="t1",
    parent_chat_id="c1",
    scope_id="g1",
    profile="work",
)
# Strongest first: where it is set, what `Found.layer` calls it.
ORDER: tuple[tuple[Mapping[str, Any], str], ...] = (
    ({"chats": {ChatSelector("discord", "t1", "g1"): "thread's own on this server"}}, "chat discord:t1 on g1"),
    ({"chats": {ChatSelector("discord", "t1"): "thread's own"}}, "chat discord:t1"),
    ({"chats": {ChatSelector("discord", "c1", "g1"): "parent's on this server"}}, "chat discord:c1 on g1"),
    ({"chats": {ChatSelector("discord", "c1"): "parent's"}}, "chat discord:c1"),
    ({"platforms": {"discord": "platform's"}}, "platform discord"),
    ({"kinds": {"thread": "kind's"}}, "kind thread"),
    ({"profiles": {"work": "profile's"}}, "profile work"),
    ({}, "default"),
)


def layers(*given: Mapping[str, Any]) -> ScopedSetting[str]:
    merged: dict[str, dict[Any, str]] = {}
    for settings in given:
        for name, values in settings.items():
            merged.setdefault(name, {}).update(values)
    return ScopedSetting(default="default's", **merged)


@pytest.mark.parametrize("strongest", range(len(ORDER)))
def test_the_narrowest_setting_wins(strongest: int) -> None:
    found = layers(*(settings for settings, _ in ORDER[strongest:])).find(SOURCE)
    assert found.layer == ORDER[strongest][1]


def test_the_value_comes_from_the_layer_that_is_named() -> None:
    assert layers(ORDER[3][0], ORDER[5][0]).find(SOURCE) == ResolvedSetting("parent's", "chat discord:c1")


def test_a_chat_of_another_platform_has_nothing_to_say() -> None:
    assert ScopedSetting(default=1, chats={ChatSelector("telegram", "t1"): 2}).find(SOURCE) == ResolvedSetting(
        1, "default"
    )


def test_a_chat_of_another_server_has_nothing_to_say() -> None:
    settings = ScopedSetting(default=1, chats={ChatSelector("irc", "#dev", "one"): 2})
    on_one, on_two, nowhere = (
        Source(platform="irc", chat_kind="channel", chat_id="#dev", scope_id=server) for server in ("one", "two", None)
    )
    assert [settings.find(source).value for source in (on_one, on_two, nowhere)] == [2, 1, 1]


def test_a_false_or_missing_value_is_a_value() -> None:
    assert ScopedSetting[bool | None](default=True, platforms={"discord": None}, kinds={"thread": False}).find(
        SOURCE
    ) == (
        None,
        "platform discord",
    )


def test_a_source_without_chat_finds_no_chat_setting() -> None:
    nowhere = Source(platform="telegram")
    assert ScopedSetting(default=1, chats={ChatSelector("telegram", ""): 2}).find(nowhere).value == 1
