"""`palaver pair`, `palaver grants` and `palaver explain access` from the outside."""

import asyncio
import io
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from palaver.cli import shared_options
from palaver.cli.main import main
from palaver.model.label import Label
from palaver.model.source import Labels
from palaver.model.turn import Inbound
from palaver.store.opening import open_store
from palaver.store.people import links, pairing
from palaver.web.tokens import qr_code
from tests.store.world import NOON, dm, key_of

CODE = "ACDEFGHJ"
Call = Callable[..., Any]


@pytest.fixture
def call(store_url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Call:
    """What a command prints: with `--json` as a value, else as text; what it refuses as a sentence."""
    monkeypatch.setattr(shared_options, "now", lambda: NOON)

    def called(*args: str, code: int = 0, plain: bool = False) -> Any:
        assert main([*args, "--store", store_url, *(() if plain else ("--json",))]) == code
        printed = capsys.readouterr()
        return printed.out if plain else json.loads(printed.out)

    return called


@pytest.fixture
def stranger(store_url: str) -> str:
    """Somebody who waits to be let in."""
    asyncio.run(_ask(store_url))
    return "telegram:7"


async def _ask(url: str) -> None:
    async with await open_store(url) as store:
        source = dm("7", message_id="m1")
        labels = Labels(user=Label("mal\u202elory\n[red]x"))
        inbound = Inbound(source=source, text="xylophone", at=NOON, labels=labels)
        await store.transact(pairing.request(inbound, key_of(source), NOON, code=CODE, answer=()))


def test_who_waits_is_listed_and_let_in_by_the_code(call: Call, stranger: str) -> None:
    (waiting,) = call("pair", "list")["waiting"]
    assert (waiting["identity"], waiting["name"], waiting["messages"]) == (stranger, "mallory [red]x", 1)
    listed = call("pair", "list", plain=True)
    assert "xylophone" not in listed
    assert CODE not in listed
    let_in = call("pair", "approve", "acde-fghj", "--role", "owner")
    assert (let_in["approved"]["identity"], let_in["role"]) == (stranger, "owner")
    assert call("pair", "list") == {"waiting": []}
    assert [each["role"] for each in call("grants", "list")["grants"]] == ["owner"]
    kinds = [each["kind"] for each in call("grants", "log")["changes"]]
    assert kinds == ["asked", "granted", "approved"]


def test_who_waits_is_let_in_by_name_without_the_code(call: Call, stranger: str) -> None:
    for _ in range(5):
        assert "Nobody is asking" in call("pair", "approve", "KMNPQRTU", code=2)["error"]
        assert "Nobody is asking for access as 'telegram:8'" in call("pair", "approve", "telegram:8", code=2)["error"]
    assert [each["kind"] for each in call("grants", "log")["changes"]] == ["asked", *["wrong-code"] * 5]
    assert call("pair", "approve", stranger)["approved"]["identity"] == stranger
    assert call("pair", "list") == {"waiting": []}
    assert [each["role"] for each in call("grants", "list")["grants"]] == ["member"]


def test_the_log_names_both_accounts_of_a_link(call: Call, store_url: str) -> None:
    async def link_and_unlink() -> None:
        async with await open_store(store_url) as store:
            await store.transact(links.link("telegram:7", "matrix:9", NOON, by="telegram:7"))
            await store.transact(links.unlink_last("telegram:7", NOON, by="telegram:7"))

    asyncio.run(link_and_unlink())
    shown = call("grants", "log", plain=True).splitlines()[1:3]
    assert all(line.endswith("telegram:7 and matrix:9") for line in map(str.rstrip, shown)), shown


def test_the_owner_is_named_in_the_list_of_people(call: Call, store_url: str) -> None:
    async def link_owner() -> None:
        async with await open_store(store_url) as store:
            await store.transact(links.link("terminal:owner", "web:owner", NOON, by="gateway"))

    asyncio.run(link_owner())
    assert "the owner  terminal:owner, web:owner" in call("people", "list", plain=True)


def test_wrong_codes_are_refused_in_words_and_then_not_looked_at(call: Call, stranger: str) -> None:
    assert "8 of the characters" in call("pair", "approve", "nonsense", code=2)["error"]
    for _ in range(5):
        assert "Nobody is asking for access as 'KMNPQRTU'" in call("pair", "approve", "KMNPQRTU", code=2)["error"]
    assert "Too many wrong codes" in call("pair", "approve", CODE, code=1)["error"]
    assert "Unknown role 'king'" in call("pair", "approve", CODE, "--role", "king", code=2)["error"]
    assert call("pair", "deny", stranger)["denied"]["identity"] == stranger


def test_someone_who_is_blocked_stays_out(call: Call, stranger: str) -> None:
    assert call("pair", "deny", CODE, "--block")["blocked"] is True
    explained = call("grants", "explain", stranger)
    assert (explained["verdict"], explained["grant"]["effect"]) == ("refuse", "block")


def test_a_grant_is_added_explained_changed_and_taken_back(call: Call) -> None:
    assert call("explain", "access", "telegram:7")["verdict"] == "pair"
    number = call("grants", "add", "telegram:7", "--role", "admin")["number"]
    explained = call("explain", "access", "telegram:7", "--kind", "group", "--chat", "-100")
    assert (explained["verdict"], explained["role"], explained["heard"]) == ("allow", "admin", "ignored")
    mentioned = call("grants", "explain", "telegram:7", "--kind", "group", "--chat", "-100", "--mention")
    assert mentioned["heard"] == "addressed"
    lowered = call("grants", "add", "telegram:7", "--role", "guest")["number"]
    assert [each["number"] for each in call("grants", "list")["grants"]] == [lowered]
    assert call("grants", "remove", str(lowered))["removed"] == lowered
    assert "Use a number from palaver grants list" in call("grants", "remove", str(number), code=2)["error"]
    assert [each["kind"] for each in call("grants", "log")["changes"]] == ["granted", "granted", "revoked"]


def test_a_grant_for_groups_only_holds_in_groups_and_is_explained(call: Call) -> None:
    added = call("grants", "add", "telegram", "--kind", "group", "--role", "guest", plain=True)
    assert added == "Grant 1: everybody, telegram, in groups only, as guest.\n"
    assert call("explain", "access", "telegram:7")["verdict"] == "pair"
    explained = call("explain", "access", "telegram:7", "--kind", "group", "--chat", "-100")
    assert (explained["verdict"], explained["role"], explained["grant"]["kind"]) == ("allow", "guest", "group")
    assert explained["rules"][0]["value"] == "everybody, telegram, in groups only, as guest"
    assert [each["kind"] for each in call("grants", "list")["grants"]] == ["group"]


@pytest.mark.parametrize("option", ["--chat", "--server", "--account"])
def test_an_empty_place_is_refused_instead_of_granting_access_everywhere(call: Call, option: str) -> None:
    error = call("grants", "add", "telegram:7", option, "", code=2)["error"]
    assert error == f"{option} cannot be ''. Give it a value, or leave it out."
    assert call("grants", "list")["grants"] == []


def test_the_last_owner_is_kept_unless_it_is_forced(call: Call) -> None:
    number = call("grants", "add", "telegram:7", "--role", "owner")["number"]
    assert "the last owner of the gateway" in call("grants", "remove", str(number), code=1)["error"]
    assert call("grants", "remove", str(number), "--force")["removed"] == number


@pytest.mark.parametrize("who", ["everybody", "telegram"])
def test_a_token_acts_for_one_account_and_nothing_else_is_offered(call: Call, who: str) -> None:
    error = call("web", "tokens", "create", "x", "--as", who, code=2)["error"]
    assert "a whole platform" not in error
    assert "for example telegram:7" in error


@pytest.mark.parametrize(
    "args",
    [
        ("web", "tokens", "revoke"),
        ("people", "receipts"),
        ("memory", "list", "--after"),
    ],
)
def test_a_number_beyond_the_database_is_refused(call: Call, args: tuple[str, ...]) -> None:
    assert "cannot be '99999999999999999999'. Use a whole number from " in call(*args, "9" * 20, code=2)["error"]


@pytest.mark.parametrize("who", ["", "telegarm:7", "telegram:", "person:", "\x00\u202e", "x" * 100_000])
def test_someone_who_cannot_be_meant_is_refused_in_one_sentence(call: Call, who: str) -> None:
    error = call("grants", "add", who, code=2)["error"]
    assert "Use " in error
    assert "for example " in error
    assert len(error) < 1000


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_high_role_for_everybody_is_confirmed(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    for who in ("everybody", "telegram"):
        owners = ("grants", "add", who, "--role", "owner")
        assert f"for example palaver grants add {who} --role owner --yes" in call(*owners, code=2)["error"]
        assert call(*owners, "--yes")["role"] == "owner"
    monkeypatch.setattr(sys, "stdin", _Terminal("n\n"))
    assert call("grants", "add", "everybody", "--role", "admin", code=1, plain=True) == ""
    assert call("grants", "add", "everybody", "--role", "member")["role"] == "member"


def test_everybody_a_platform_and_a_person_can_be_named(call: Call) -> None:
    assert call("grants", "add", "everybody", "--role", "guest")["role"] == "guest"
    assert call("grants", "add", "discord", "--basis", "platform-role")["basis"] == "platform-role"
    assert call("grants", "add", "person:01abc")["person"] == "01abc"
    assert call("grants", "add", "matrix:@ann:example.org")["user_id"] == "@ann:example.org"
    assert call("grants", "add", "matrix:%40bea%3Aexample.org")["user_id"] == "@bea:example.org"


@pytest.mark.parametrize(
    ("command", "nothing"),
    [
        ("people list", "There are no people yet."),
        ("people receipts", "No person has been deleted yet."),
        ("pair list", "Nobody is asking for access."),
        ("grants list", "No grants have been added. Grants without a number come from the configuration."),
        ("grants log", "Nothing has changed yet."),
        ("usage", "No usage in this period."),
        ("sessions list", "There are no such sessions."),
    ],
)
def test_where_there_is_no_store_each_command_says_what_it_has_none_of(
    tmp_path: Path, command: str, nothing: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "none.db"
    assert main([*command.split(), "--store", str(file)]) == 0
    made = f"There is no store yet. The first conversation or an import creates {file}."
    assert capsys.readouterr().err == f"{nothing} {made}\n"
    assert not file.exists()


def test_a_login_link_is_also_a_code_for_the_phone(
    call: Call, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setenv("PALAVER_HOME", str(tmp_path / "home"))
    assert list(call("web", "link", "--qr")) == ["link"]
    printed = call("web", "link", "--qr", plain=True)
    *code, link = printed.splitlines()
    assert {*"".join(code)} <= {*"█▀▄ "}
    assert link.startswith("http://127.0.0.1:")
    drawn = io.StringIO()
    qr_code(link).terminal(drawn, compact=True, border=2)
    assert drawn.getvalue().splitlines() == code
    monkeypatch.setenv("PALAVER_WEB__PUBLIC_URL", "https://palaver.example.org")
    assert call("web", "link", "--qr", plain=True).splitlines()[-1].startswith("https://palaver.example.org/login#")
    capsys.readouterr()
    assert main(["web", "link", "--qr"]) == 0
    assert "Only this machine" not in capsys.readouterr().err
