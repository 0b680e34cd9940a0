"""What the configuration says about a chat holds when the chat has another id."""

from dataclasses import fields, replace
from pathlib import Path

from palaver.agents.echo import EchoAgent
from palaver.engine.settings import Agents, ChatMoves, Settings, follow_moves
from palaver.model.access import Effect, Grant
from palaver.model.addressing import AddressingRules, AnswerMode
from palaver.model.key import ChatSelector, GroupScope, ProfileRule, Scope, ScopedSetting
from palaver.testkit.platform import FakePlatform
from palaver.testkit.updates import Person
from tests.engine.gateway import running, settings, until

MOVED: ChatMoves = {("telegram:bot", None): {"-1": "-1001", "-2": "-1001"}}
OLD, NEW = ChatSelector("telegram", "-1"), ChatSelector("telegram", "-1001")


def scopes(*chats: ChatSelector, group: GroupScope = GroupScope.SHARED) -> ScopedSetting[Scope]:
    return ScopedSetting(default=Scope(), chats={chat: Scope(group=group) for chat in chats})


def test_settings_rules_and_grants_name_both_ids() -> None:
    rule = ProfileRule(profile="work", platform="telegram", account="bot", chat_id="-1")
    block = Grant(platform="telegram", chat_id="-1", effect=Effect.BLOCK)
    given = Settings(scopes=scopes(OLD), profiles=(rule,), grants=(block,))
    led = follow_moves(given, MOVED)
    assert led.scopes == scopes(OLD, NEW)
    topics = [chat._replace(thread_id="42") for chat in (OLD, NEW)]
    assert follow_moves(Settings(scopes=scopes(topics[0])), MOVED).scopes == scopes(*topics)
    assert [each.chat_id for each in (*led.profiles, *led.grants)] == ["-1", "-1001"] * 2
    assert follow_moves(led, MOVED) == led


def test_what_is_set_for_the_new_id_stays_and_other_chats_are_others() -> None:
    here = Settings(scopes=ScopedSetting(default=Scope(), chats={OLD: Scope(group=GroupScope.SHARED), NEW: Scope()}))
    assert follow_moves(here, MOVED) == here
    others = Settings(
        scopes=scopes(ChatSelector("matrix", "-1"), ChatSelector("telegram", "-10")),
        grants=(Grant(platform="telegram", account="second", chat_id="-1"), Grant(platform="telegram", user_id="-1")),
    )
    assert follow_moves(others, MOVED) == others
    assert follow_moves(here, {}) is here


def test_settings_follow_a_chat_of_one_server_and_hold_there_alone() -> None:
    moves: ChatMoves = {("irc:bot", "libera"): {"#dev": "#lab"}}
    general, there = ChatSelector("irc", "#dev"), ChatSelector("irc", "#dev", "libera")
    elsewhere = ChatSelector("irc", "#dev", "oftc")
    new = ChatSelector("irc", "#lab", "libera")
    block = Grant(platform="irc", chat_id="#dev", effect=Effect.BLOCK)
    rules = ProfileRule(profile="work", scope_id="libera", chat_id="#dev"), ProfileRule(profile="x", scope_id="oftc")
    given = Settings(scopes=scopes(general, elsewhere), grants=(block,), profiles=rules)
    led = follow_moves(given, moves)
    assert led.scopes == scopes(general, elsewhere, new)
    assert led.grants == (block, replace(block, scope_id="libera", chat_id="#lab"))
    assert led.profiles == (*rules, replace(rules[0], chat_id="#lab"))
    assert follow_moves(led, moves) == led
    both = {general: Scope(group=GroupScope.SHARED), there: Scope()}
    led = follow_moves(Settings(scopes=ScopedSetting(default=Scope(), chats=both)), moves)
    assert led.scopes.chats[new] == Scope(), "the narrower one"
    own = Settings(scopes=scopes(general, ChatSelector("irc", "#lab")))
    assert follow_moves(own, moves) == own


async def test_a_chat_keeps_its_settings_when_it_gets_another_id(tmp_path: Path) -> None:
    world = FakePlatform()
    alice, eve = world.person("alice"), world.person("eve")
    chat, blocked = world.group("Dev", alice, eve), world.group("Spam", eve)
    given = settings(
        scopes=scopes(ChatSelector("fake", chat.id)),
        attention=ScopedSetting(
            default=AddressingRules(),
            chats={ChatSelector("fake", chat.id): AddressingRules(answers=AnswerMode.EVERYTHING)},
        ),
        grants=(Grant(), Grant(platform="fake", chat_id=blocked.id, effect=Effect.BLOCK)),
    )

    async def is_as_before(person: Person, text: str) -> None:
        await chat.say(person, text)
        await chat.hears(f"You said: {text}")
        await blocked.say(eve, "hello", mentions=("bot",))
        await until(lambda: not world.unacknowledged())
        assert await here.rows("SELECT DISTINCT state FROM inbox WHERE key LIKE ?", f"%{blocked.id}%") == [("refused",)]

    async with running(tmp_path / "p.db", world) as here:
        here.engine.reload(given, Agents(EchoAgent()))
        await is_as_before(alice, "one")
        await chat.move()
        await blocked.move()
        await is_as_before(eve, "two")
        here.engine.reload(given, Agents(EchoAgent()))
        await is_as_before(alice, "three")
    changed = {each.name: getattr(given, each.name) for each in fields(given)}
    async with running(tmp_path / "p.db", world, worker="w2", **changed) as here:
        await until(lambda: ChatSelector("fake", chat.id) in here.engine.settings.scopes.chats)
        await is_as_before(eve, "four")
        assert len(await here.rows("SELECT 1 FROM sessions")) == 1
