"""`palaver explain` from the outside: what it prints, and how it refuses."""

import asyncio
import json
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from palaver import __version__
from palaver.cli import shared_options
from palaver.cli.main import main
from palaver.engine.texts import CHAT_GONE
from palaver.model.access import AccessRole, Basis, Grant
from palaver.model.people import MAX_NEW_STRANGERS, Reception
from palaver.model.source import Source
from palaver.model.turn import Inbound, Outbound
from palaver.store.opening import open_store
from palaver.store.people import aliases
from tests.store.world import NOON, World, dm, key_of


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PALAVER_HOME", str(tmp_path))
    monkeypatch.delenv("PALAVER_STORE", raising=False)
    return tmp_path


def test_a_store_that_cannot_be_asked_keeps_nothing_from_being_explained(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (home / "palaver.db").write_bytes(b"no database")
    assert main(["explain", "key", "--platform", "telegram", "--chat", "7"]) == 0
    printed = capsys.readouterr()
    assert printed.out.startswith("agent:main:telegram:dm:7\n")
    assert "The store cannot be read, so this is the result without it: " in printed.err


def explain(capsys: pytest.CaptureFixture[str], *args: str) -> Any:
    assert main(["explain", *args, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def refusal(capsys: pytest.CaptureFixture[str], *args: str) -> str:
    assert main(args) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert len(printed.err.splitlines()) == 1
    return printed.err


def key(capsys: pytest.CaptureFixture[str], *args: str) -> str:
    return explain(capsys, "key", "--platform", "telegram", *args)["key"]


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"palaver {__version__}\n"


def test_no_command_shows_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    assert "explain" in capsys.readouterr().out


def test_key_json_has_key_parts_and_shared(capsys: pytest.CaptureFixture[str]) -> None:
    found = explain(capsys, "key", "--platform", "telegram", "--kind", "group", "--chat", "-100", "--user", "7")
    assert found.keys() == {"key", "parts", "shared", "attached_to", "rules", "then"}
    assert found["attached_to"] is None
    assert found["key"] == "agent:main:telegram:group:-100:user:7"
    assert found["shared"] is False
    assert [part["name"] for part in found["parts"]] == ["profile", "platform", "kind", "chat", "user"]
    assert all(part.keys() == {"name", "value", "rule"} and part["rule"] for part in found["parts"])


def test_every_option_reaches_the_key(capsys: pytest.CaptureFixture[str]) -> None:
    group = ("--kind", "group", "--chat", "-100")
    assert key(capsys, "--chat", "123") == "agent:main:telegram:dm:123"
    assert key(capsys, "--chat", "", "--user", "7") == "agent:main:telegram:dm::user:7"
    assert key(capsys, "--chat", "1", "--thread", "2") == "agent:main:telegram:dm:1:thread:2"
    assert key(capsys, *group, "--user", "7", "--user-alt", "U") == "agent:main:telegram:group:-100:user:alt%3AU"
    assert key(capsys, *group, "--user", "7", "--group-scope", "shared") == "agent:main:telegram:group:-100"
    assert key(capsys, *group, "--thread", "4", "--user", "7", "--thread-scope", "per-user") == (
        "agent:main:telegram:group:-100:thread:4:user:7"
    )
    assert key(capsys, "--chat", "1", "--account", "b", "--profile", "p") == "agent:p:telegram:dm:1:account:b"
    assert key(capsys, "--chat", "1", "--server", "s") == "agent:main:telegram:dm:1:scope:s"
    assert key(capsys, "--chat", "1", "--dm-scope", "shared") == "agent:main:telegram:dm:1"
    owner = explain(capsys, "key", "--platform", "terminal", "--chat", "main", "--dm-scope", "shared")
    assert owner["key"] == "agent:main::dm"


def test_key_for_people_shows_the_rules(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "key", "--platform", "telegram", "--kind", "group", "--chat", "[red]", "--user", "7"]) == 0
    printed = capsys.readouterr().out
    assert "agent:main:telegram:group:%5Bred%5D:user:7" in printed
    assert "[red]" in printed
    assert "group scope per-user: each participant has their own" in printed


def test_platforms_have_no_case(capsys: pytest.CaptureFixture[str]) -> None:
    found = explain(capsys, "key", "--platform", "Telegram", "--chat", "1")
    assert found["key"] == "agent:main:telegram:dm:1"
    assert explain(capsys, "target", "Telegram:1")["targets"][0]["platform"] == "telegram"


def test_ids_that_differ_look_different(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "key", "--platform", "telegram", "--chat", "a\u200bb\u00a0"]) == 0
    assert r" a\u200bb\xa0 " in capsys.readouterr().out
    assert main(["explain", "target", "telegram:a\u200bb"]) == 0
    assert r"chat a\u200bb on telegram" in capsys.readouterr().out
    assert main(["explain", "target", "irc@libera:#dev"]) == 0
    assert "chat #dev on irc, server libera" in capsys.readouterr().out


def test_a_present_before_the_last_word_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    times = ("--last-active", "2026-03-29T09:00Z", "--now", "2026-03-28T09:00Z")
    assert main(["explain", "reset", "--policy", "idle", *times]) == 0
    assert "2026-03-28T09:00:00+00:00, before --last-active" in capsys.readouterr().err
    assert main(["explain", "reset", "--policy", "idle", *times[:2], "--now", times[1], "--at-hour", " 4 "]) == 0
    assert capsys.readouterr().err == ""


def test_reset_json(capsys: pytest.CaptureFixture[str]) -> None:
    night = ("--zone", "Europe/Berlin", "--last-active", "2026-03-29T01:30:00+01:00")
    policy = ("--policy", "both", "--idle-minutes", "1440", "--at-hour", "4")
    assert explain(capsys, "reset", *policy, *night, "--now", "2026-03-29T04:00:00+02:00") == {
        "reset": "daily",
        "boundary": "2026-03-29T04:00:00+02:00",
        "next": "2026-03-30T04:00:00+02:00",
    }
    assert explain(capsys, "reset", *policy, *night, "--now", "2026-03-29T03:59:59+02:00") == {
        "reset": None,
        "boundary": None,
        "next": "2026-03-29T04:00:00+02:00",
    }
    assert explain(capsys, "reset", *night) == {"reset": None, "boundary": None, "next": None}
    idle = explain(capsys, "reset", "--policy", "idle", "--idle-minutes", "60", *night, "--now", "2026-03-29T02:00:00Z")
    assert (idle["reset"], idle["boundary"]) == ("idle", "2026-03-29T03:30:00+02:00")


def test_target_json(capsys: pytest.CaptureFixture[str]) -> None:
    found = explain(capsys, "target", "telegram:-100:42,local,slack,origin,all")["targets"]
    assert [each.pop("places") for each in found] == [[], [{"platform": "local"}], [], [], []]
    assert found == [
        {"kind": "place", "platform": "telegram", "server": None, "chat": "-100", "thread": "42"},
        {"kind": "local"},
        {"kind": "home", "platform": "slack"},
        {"kind": "origin"},
        {"kind": "all"},
    ]


def test_schedule_json_gives_the_next_five(capsys: pytest.CaptureFixture[str]) -> None:
    found = explain(capsys, "schedule", "every 2h", "--zone", "Europe/Berlin", "--now", "2026-03-28T23:30:00Z")
    assert found["next"] == [
        "2026-03-29T03:30:00+02:00",
        "2026-03-29T05:30:00+02:00",
        "2026-03-29T07:30:00+02:00",
        "2026-03-29T09:30:00+02:00",
        "2026-03-29T11:30:00+02:00",
    ]
    once = explain(capsys, "schedule", "30m", "--now", "2026-03-28T23:30:00Z")
    assert once["next"] == ["2026-03-29T00:00:00+00:00"]


@pytest.mark.parametrize(
    ("args", "found", "allowed", "example"),
    [
        (["explain", "key", "--platform", "telegramm"], "'telegramm'", "telegram,", "palaver explain key"),
        (["explain", "key", "--platform", "telegram", "--kind", "x"], "'x'", "dm, group", "palaver explain key"),
        (["explain", "key", "--platform", "web", "--dm-scope", "x"], "'x'", "per-chat", "palaver explain key"),
        (["explain", "key", "--platform", "web", "--profile", ""], "empty profile", "any text", "main"),
        (["explain", "key"], "--platform", "--kind", "palaver explain key"),
        (["explain", "key", "--plat", "web"], "--plat", "--platform", "palaver explain key"),
        (["explain", "reset", "--last-active", "now"], "'now'", "ISO 8601", "+02:00"),
        (["explain", "reset", "--last-active", "2026-01-01T00:00:00"], "2026-01-01", "offset", "+02:00"),
        (["explain", "reset", "--last-active", "2026-01-01T00:00Z", "--policy", "x"], "'x'", "never", "explain reset"),
        (["explain", "reset", "--last-active", "2026-01-01T00:00Z", "--at-hour", "24"], "'24'", "0 to 23", "4"),
        (["explain", "reset", "--last-active", "2026-01-01T00:00Z", "--at-hour", "x"], "'x'", "whole", "explain reset"),
        (["explain", "reset", "--last-active", "2026-01-01T00:00Z", "--zone", "Berlin"], "'Berlin'", "mean", "Europe"),
        (["explain", "reset", "--policy", "both", "--last-active", "9999-12-31T23:59Z"], "9999", "9980", "+02:00"),
        (["explain", "schedule", "30m", "--now", "9999-12-31T23:59Z"], "9999", "9980", "+02:00"),
        (
            ["explain", "reset", "--last-active", "2026-01-01T00:00Z", "--idle-minutes", "5000000000"],
            "'5000000000'",
            "1 to 5256000,",
            "1440",
        ),
        (
            ["explain", "key", "--platform", "telegram", "--kind", "group", "--user", "7"],
            "A group needs a chat id",
            "any text",
            "palaver explain key",
        ),
        (["explain", "schedule", "-5m"], "'-5m'", "every 2h", "* * MON-FRI"),
        (["explain", "target", "-100"], "'-100'", "<platform>", "telegram:-100:42"),
        (["explain", "key", "--platform", "tele\u200bgram"], r"'tele\u200bgram'", "telegram,", "palaver explain key"),
        (["explain", "target", "telegarm:1"], "'telegarm:1'", "<platform>", "telegram:-100:42"),
        (["explain", "target", "telegram:"], "'telegram:'", "telegram:<chat>", "telegram:123"),
        (["explain", "schedule", "often"], "'often'", "every 2h", "* * MON-FRI"),
        (["explain"], "Missing command", "key, reset", "palaver explain"),
        (["bogus"], "'bogus'", "explain", "palaver"),
    ],
)
def test_wrong_input_gets_one_sentence(
    capsys: pytest.CaptureFixture[str], args: list[str], found: str, allowed: str, example: str
) -> None:
    sentence = refusal(capsys, *args)
    problem, _, advice = sentence.partition(". ")
    assert found in problem
    assert allowed in sentence
    assert example in advice


def test_with_json_a_refusal_is_json_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "target", "nowhere", "--json"]) == 2
    printed = capsys.readouterr()
    assert "'nowhere'" in json.loads(printed.out)["error"]
    assert "'nowhere'" in printed.err


@pytest.mark.parametrize("hostile", ["\x1b[31mred", "a\nb", "\u202eevil", "x" * 100_000, "\ud800", "[bold]"])
def test_hostile_input_is_harmless(capsys: pytest.CaptureFixture[str], hostile: str) -> None:
    for args in (("target", hostile), ("schedule", hostile), ("key", "--platform", hostile)):
        sentence = refusal(capsys, "explain", *args)
        assert "\x1b" not in sentence
        assert len(sentence) < 1000
    assert main(["explain", "key", "--platform", "web", "--chat", hostile]) == (2 if len(hostile) > 2048 else 0)
    printed = capsys.readouterr()
    assert "\x1b" not in printed.out
    assert len(printed.err) < 1000


def test_the_rules_of_the_configuration_choose_the_profile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "palaver.yaml").write_text("profiles: {work: {serves: [{platform: telegram, account: office}]}}")
    monkeypatch.setenv("PALAVER_CONFIG", str(tmp_path / "palaver.yaml"))
    asked = ["explain", "key", "--platform", "telegram", "--chat", "7"]
    for more, profile in (
        (["--account", "office"], "work"),
        (["--account", "helper"], "main"),
        (["--account", "office", "--profile", "main"], "work"),
        (["--account", "office", "--profile", "own"], "own"),
    ):
        assert main([*asked, *more]) == 0
        out = capsys.readouterr().out
        assert out.startswith(f"agent:{profile}:telegram")
        assert ("the sender asked for it, which wins over the configuration" in out) == (profile == "own")
        overruled = [line for line in out.splitlines() if line.startswith("overruled profile")]
        assert [("work" in line, "palaver.yaml" in line) for line in overruled] == [(True, True)] * (profile == "own")


CONFIGURATION = """
scope: {group: shared}
timezone: Asia/Tokyo
reset:
  mode: idle
  idle_minutes: 60
platforms:
  telegram:
    accounts: {main: {token: "1:a"}}
    scope:
      dm: shared
    chats:
      "-100":
        scope:
          group: per-user
        attention: {answers: everything}
        pairing: false
profiles:
  work:
    serves:
      - {platform: telegram, chat_id: "-200"}
grants:
  - {platform: telegram, user_id: "7", role: owner}
"""


@pytest.fixture
def configured(home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A configuration, and a store in which user 7 had an answer in session `answered` at noon."""
    file = home / "mine.yaml"
    file.write_text(CONFIGURATION.lstrip())
    monkeypatch.setenv("PALAVER_CONFIG", str(file))
    monkeypatch.setattr(shared_options, "now", lambda: NOON + timedelta(minutes=30))
    asyncio.run(_fill(home / "palaver.db"))
    return file


async def _fill(file: Path) -> None:
    async with await open_store(str(file)) as store:
        await World(store).exchange("hello", source=replace(dm("7"), account="main"))
        await store.transact(aliases.learn("telegram", "+7", "7", NOON))
        home = Source(platform="telegram", account="main", chat_kind="group", chat_id="-300")
        await store.transact(store.accounts.set_home("main", home, NOON, by="test"))


def at(file: Path, text: str) -> str:
    lines = file.read_text().splitlines()
    return f"{file}:{next(number for number, line in enumerate(lines, 1) if text in line)}"


def rules(found: Any) -> dict[str, tuple[str, str]]:
    return {rule["name"]: (rule["value"], rule["where"]) for rule in found["rules"]}


def test_scope_profile_and_alias_come_from_configuration_and_store(
    configured: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ("key", "--platform", "telegram", "--user", "8", "--kind", "group", "--chat")
    own = explain(capsys, *asked, "-100")
    assert own["key"] == "agent:main:telegram:group:-100:user:8:account:main"
    assert rules(own) == {
        "profile": ("main", "default"),
        "scope.group": ("per-user", at(configured, "group: per-user")),
    }
    routed = explain(capsys, *asked, "-200")
    assert routed["key"] == "agent:work:telegram:group:-200:account:main"
    assert rules(routed)["profile"] == ("work", at(configured, "-200"))
    assert rules(routed)["scope.group"] == ("shared", at(configured, "{group: shared}"))
    owner = explain(capsys, "key", "--platform", "telegram", "--user", "+7", "--chat", "+7")
    assert owner["key"] == "agent:main::dm"
    assert rules(owner)["scope.dm"] == ("shared", at(configured, "dm: shared"))
    assert explain(capsys, "route", "--platform", "telegram", "--kind", "group", "--chat", "-200")["profile"] == "work"


def test_access_is_what_the_gateway_decides(configured: Path, capsys: pytest.CaptureFixture[str]) -> None:
    group = ("--kind", "group", "--chat")
    owner = explain(capsys, "access", "telegram:+7", *group, "-100")
    assert (owner["verdict"], owner["role"], owner["heard"]) == ("allow", "owner", "addressed")
    assert rules(owner)["grant"] == ("user 7, telegram, as owner", at(configured, "role: owner"))
    assert rules(owner)["attention.answers"] == ("everything", at(configured, "answers:"))
    assert explain(capsys, "access", "telegram:7", *group, "-5")["heard"] == "ignored"
    assert explain(capsys, "access", "telegram:8")["verdict"] == "pair"
    refused = explain(capsys, "access", "telegram:8", "--chat", "-100")
    assert (refused["verdict"], rules(refused)["pairing"]) == ("refuse", ("no", at(configured, "pairing: false")))
    # Nobody reads what is sent to the API, so nobody there gets a code.
    unreached = explain(capsys, "access", "api:8")
    assert (unreached["verdict"], rules(unreached)) == ("refuse", {})
    assert unreached["reason"] == "no grant matches and pairing is only for chats with people"


def test_strangers_learn_what_they_would_get(configured: Path, capsys: pytest.CaptureFixture[str]) -> None:
    told = {"telegram:8": ("pair", Reception.WAITS), "telegram:99": ("refuse", Reception.TOO_MANY)}
    asyncio.run(_ask_for_access(configured.parent / "palaver.db", MAX_NEW_STRANGERS))
    for who, (verdict, reason) in told.items():
        found = explain(capsys, "access", who)
        assert (found["verdict"], found["reason"]) == (verdict, reason)
        assert main(["explain", "access", who]) == 0
        assert "gets a pairing code" not in capsys.readouterr().out


def test_a_stored_message_is_judged_by_what_admitted_it(configured: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asyncio.run(_admit_a_bot(configured.parent / "palaver.db"))
    found = explain(capsys, "access", "in:2")
    assert (found["verdict"], found["grant"]["basis"]) == ("allow", "bot")


async def _admit_a_bot(file: Path) -> None:
    robot = replace(dm("55"), account="main", message_id="beep")
    async with await open_store(str(file)) as store:
        grant = Grant(platform="telegram", user_id="55", basis=Basis.BOT)
        await store.transact(store.grants.add(grant, NOON, by="owner"))
        message = Inbound(source=robot, text="beep", at=NOON)
        await store.transact(store.inbox.accept(message, key_of(robot), NOON, role=AccessRole.MEMBER, basis=Basis.BOT))


async def _ask_for_access(file: Path, count: int) -> None:
    async with await open_store(str(file)) as store:
        for user in map(str, range(8, 8 + count)):
            source = replace(dm(user), account="main", user_id=user, message_id=f"m{user}")
            message = Inbound(source=source, text="hello", at=shared_options.now())
            await store.transact(
                store.pairing.request(message, key_of(source), message.at, code=f"CODE{user}", answer=[])
            )


def test_a_block_and_people_who_joined_are_named_as_they_are(
    configured: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with configured.open("a") as file:
        file.write('  - {platform: telegram, user_id: "9", effect: block}\n')
    blocked = explain(capsys, "access", "telegram:9")
    assert (blocked["verdict"], rules(blocked)["grant"][0]) == ("refuse", "user 9, telegram (blocked)")
    alone = ("key", "--platform", "telegram", "--user", "8", "--chat", "8")
    assert explain(capsys, *alone)["shared"] is False
    asyncio.run(_two_people(configured.parent / "palaver.db"))
    assert explain(capsys, *alone)["shared"] is True
    assert main(["explain", *alone]) == 0
    assert "yes (several people take part)" in capsys.readouterr().out
    assert "'nope'" in refusal(capsys, "explain", "target", "telegram", "--profile", "nope")


async def _two_people(file: Path) -> None:
    async with await open_store(str(file)) as store:
        direct = replace(dm("8"), account="main")
        session = (await World(store).exchange("hello", source=direct)).opened.session
        await store.transact(store.sessions.join(session.number, replace(direct, user_id="9")))


@pytest.mark.usefixtures("configured")
def test_a_message_and_a_session_are_explained(capsys: pytest.CaptureFixture[str]) -> None:
    found = explain(capsys, "key", "in:1")
    assert (found["key"], found["then"]["key"]) == ("agent:main::dm", "agent:main:telegram:dm:7:account:main")
    session = found["then"]["session"]
    for name in ("m1", session):
        assert explain(capsys, "key", name)["key"] == found["key"]
    assert explain(capsys, "access", "in:1")["role"] == "owner"
    assert main(["explain", "access", session]) == 0
    assert "Stored for in:1" in capsys.readouterr().out
    assert main(["explain", "key", "in:99"]) == 1
    assert "in:99" in capsys.readouterr().err


def test_a_reset_is_explained_from_policy_zone_and_store(configured: Path, capsys: pytest.CaptureFixture[str]) -> None:
    configured.write_text(configured.read_text().replace("      dm: shared", "      dm: per-chat"))
    asked = ("reset", "--platform", "telegram", "--chat", "7", "--user", "7")
    found = explain(capsys, *asked)
    assert (found["reset"], found["opening"], found["next"]) == (None, "reused", "2026-03-01T22:00:00+09:00")
    assert rules(found)["reset.idle_minutes"] == ("60", at(configured, "idle_minutes"))
    later = explain(capsys, *asked, "--now", "2026-03-01T13:00:00Z")
    assert (later["reset"], later["opening"]) == ("idle", "reset")
    assert explain(capsys, "reset", "in:1", "--now", "2026-03-01T13:00:00Z")["reset"] == "idle"
    held = explain(capsys, *asked, "--now", "2026-03-01T13:00:00Z", "--policy", "never")
    assert (held["reset"], rules(held)["reset.mode"]) == (None, ("never", "this command"))
    spoken = ("--last-active", "2026-03-01T12:00:00Z", "--now", "2026-03-01T13:00:00Z")
    assert explain(capsys, "reset", *spoken)["boundary"] == "2026-03-01T22:00:00+09:00"


def test_targets_lead_to_home_channels_and_accounts_that_exist(
    configured: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = explain(capsys, "target", "telegram,telegram:5,slack:C1,origin,all", "--message", "in:1")["targets"]
    chats = [[place["chat_id"] for place in each["places"]] for each in found]
    assert chats == [["-300"], ["5"], [], ["7"], ["-300"]]
    assert found[1]["places"][0]["account"] == "main"
    configured.write_text(configured.read_text().replace("accounts: {main:", "accounts: {second:"))
    assert explain(capsys, "target", "telegram")["targets"][0]["places"] == []
    assert main(["explain", "target", "telegram"]) == 0
    assert "the home channel is at an account that is not configured" in capsys.readouterr().out


def test_a_dead_chat_is_named_dead(configured: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async def kick_out() -> None:
        async with await open_store(str(configured.parent / "palaver.db")) as store:
            dead = Outbound(platform="telegram", account="main", chat_id="-300", text="hello")
            await store.transact(store.accounts.mark_chat_gone(dead, NOON, "kicked"))

    asyncio.run(kick_out())
    home, other = explain(capsys, "target", "telegram,telegram:5")["targets"]
    assert (home["places"][0]["problem"], other["places"][0]["problem"]) == (CHAT_GONE, None)
    assert main(["explain", "target", "telegram"]) == 0
    assert f"telegram chat -300 by main ({CHAT_GONE})" in " ".join(capsys.readouterr().out.split())


def test_a_route_names_the_instructions_from_general_to_specific(
    home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (home / "cook.md").write_text("You are a cook.")
    file = home / "own.yaml"
    file.write_text(
        "instructions: Be brief.\n"
        "agent: {name: local, instructions: You are kind.}\n"
        "platforms:\n  telegram:\n    chats:\n      -100:\n        threads:\n          42:\n"
        "            instructions_file: cook.md\n"
    )
    monkeypatch.setenv("PALAVER_CONFIG", str(file))
    place = ("--platform", "telegram", "--kind", "group", "--chat", "-100", "--user", "7")
    named = {"general": ("route", *place), "topic": ("route", *place, "--thread", "42")}
    found = {name: explain(capsys, *args)["rules"] for name, args in named.items()}
    lines = [(rule["name"], rule["value"], rule["where"].rpartition(":")[2]) for rule in found["topic"][1:]]
    assert lines == [
        ("agent.instructions", "those of the agent", "2"),
        ("instructions", "Be brief.", "1"),
        ("instructions_file", "You are a cook.", "9"),
    ]
    assert found["topic"][3]["field"] == "platforms.telegram.chats.-100.threads.42.instructions_file"
    assert [rule["name"] for rule in found["general"]] == ["profile", "agent.instructions", "instructions"]
    (home / "cook.md").unlink()
    assert main(["config", "check"]) == 2
    assert "own.yaml:9" in capsys.readouterr().out
