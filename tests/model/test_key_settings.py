from collections.abc import Mapping
from typing import Any

import pytest

from palaver.model.key import ChatSelector, ScopedSetting
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
ORDER: tuple[Mapping[str, Any], ...] = (  # narrowest first
    {"chats": {ChatSelector("discord", "c1", "g1", "t1"): "the parent's for this thread, on this server"}},
    {"chats": {ChatSelector("discord", "c1", None, "t1"): "the parent's for this thread"}},
    {"chats": {ChatSelector("discord", "t1", "g1"): "thread's own on this server"}},
    {"chats": {ChatSelector("discord", "t1"): "thread's own"}},
    {"chats": {ChatSelector("discord", "c1", "g1"): "parent's on this server"}},
    {"chats": {ChatSelector("discord", "c1"): "parent's"}},
    {"platforms": {"discord": "platform's"}},
    {"kinds": {"thread": "kind's"}},
    {"profiles": {"work": "profile's"}},
)


def layers(*given: Mapping[str, Any]) -> ScopedSetting[str]:
    merged: dict[str, Any] = {}
    for settings in given:
        for name, values in settings.items():
            merged.setdefault(name, {}).update(values)
    return ScopedSetting(default="default's", **merged)


@pytest.mark.parametrize("narrowest", range(len(ORDER)))
def test_the_narrowest_setting_wins(narrowest: int) -> None:
    (values,) = ORDER[narrowest].values()
    assert layers(*ORDER[narrowest:]).find(SOURCE) == next(iter(values.values()))


def test_values_that_add_up_come_from_wide_to_narrow() -> None:
    others = {"chats": {ChatSelector("discord", "c1", "g1", "t2"): "another thread's"}}
    found = layers(*ORDER, others).matching(SOURCE)
    named = [next(iter(next(iter(values.values())).values())) for values in ORDER]
    assert [value for _, value in found] == ["default's", *reversed(named)]
    assert found[-1][0] == ("platforms", "discord", "servers", "g1", "chats", "c1", "threads", "t1")


def test_without_a_setting_it_is_the_default() -> None:
    assert layers().find(SOURCE) == "default's"
    assert ScopedSetting(default=1, chats={ChatSelector("telegram", "t1"): 2}).find(SOURCE) == 1


def test_a_chat_of_another_server_has_nothing_to_say() -> None:
    settings = ScopedSetting(default=1, chats={ChatSelector("irc", "#dev", "one"): 2})
    on_one, on_two, nowhere = (
        Source(platform="irc", chat_kind="channel", chat_id="#dev", scope_id=server) for server in ("one", "two", None)
    )
    assert [settings.find(source) for source in (on_one, on_two, nowhere)] == [2, 1, 1]


def test_a_false_or_missing_value_is_a_value() -> None:
    settings = ScopedSetting[bool | None](default=True, platforms={"discord": None}, kinds={"thread": False})
    assert settings.find(SOURCE) is None


def test_a_source_without_chat_finds_no_chat_setting() -> None:
    nowhere = Source(platform="telegram")
    assert ScopedSetting(default=1, chats={ChatSelector("telegram", ""): 2}).find(nowhere) == 1
