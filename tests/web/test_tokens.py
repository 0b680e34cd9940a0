"""Keys of the window: made, used, ended, listed and taken back; kept as digests, and gone with their person."""

import json
import re
from datetime import timedelta
from pathlib import Path

import httpx
import pytest
from pydantic import ValidationError

from palaver.cli.main import main
from palaver.config.model import Config
from palaver.db.transaction import Statements, transaction
from palaver.model.errors import InvalidInput
from palaver.model.session import Principal
from palaver.settings.web import WebConfig
from palaver.store.people import api_tokens
from palaver.store.people.api_tokens import ALL_RIGHTS, CredentialKind, Right
from palaver.store.status import journal_feed
from palaver.store.status.journal_feed import START
from palaver.store.store import Store
from palaver.web.caller import Caller
from palaver.web.tokens import (
    LINK_LIFETIME,
    LOGIN_IDLE_TIMEOUT,
    LOGIN_LIFETIME,
    Authenticator,
    hash_secret,
    issue_link,
    issue_token,
)
from tests.store.world import NOON, World, dm
from tests.web.conftest import opened


class Clock:
    moment = NOON

    def now(self):  # noqa: ANN201 - a datetime
        return self.moment


async def test_a_link_becomes_a_login_once_and_both_end(store: Store) -> None:
    clock = Clock()
    auth = Authenticator(store=store, clock=clock)
    code = (await issue_link(store, "http://x", NOON, identity="web:alice")).partition("#")[2]
    made = await auth.log_in(code, "a browser")
    assert made
    secret, caller = made
    assert (caller.identity, caller.web_user, caller.key.rights) == ("web:alice", "alice", ALL_RIGHTS)
    assert await auth.log_in(code, "another") is None
    found = await auth.by_login(secret)
    assert found
    assert found.csrf == caller.csrf
    other = await auth.log_in((await issue_link(store, "http://x", NOON)).partition("#")[2], "another")
    assert other
    assert other[1].csrf != caller.csrf, "what one login sees on its pages is of no use with another"
    assert await auth.by_token(secret) is None, "a login is no token"
    token, _ = await issue_token(store, NOON, name="t")
    assert [await auth.log_in(wrong, "another") for wrong in (secret, token)] == [None, None], "nor are these links"
    assert await auth.by_login(secret)
    assert await auth.by_token(token)
    clock.moment = NOON + LOGIN_IDLE_TIMEOUT + timedelta(seconds=1)
    assert await auth.by_login(secret) is None, "nobody has used it for a week"
    late = (await issue_link(store, "http://x", NOON)).partition("#")[2]
    clock.moment = NOON + LINK_LIFETIME
    assert await auth.log_in(late, "late") is None


async def test_a_login_that_is_used_lives_on_but_not_for_ever(store: Store) -> None:
    clock = Clock()
    auth = Authenticator(store=store, clock=clock)
    made = await auth.log_in((await issue_link(store, "http://x", NOON)).partition("#")[2], "a browser")
    assert made
    while clock.moment + timedelta(days=6) < NOON + LOGIN_LIFETIME:
        clock.moment += timedelta(days=6)
        assert await auth.by_login(made[0])
    clock.moment = NOON + LOGIN_LIFETIME
    assert await auth.by_login(made[0]) is None
    assert not await auth.is_valid(made[1])


@pytest.mark.parametrize("nobody", ["", "telegram:", ":7", "7"])
async def test_a_key_for_nobody_is_no_key_of_the_owners(store: Store, nobody: str) -> None:
    with pytest.raises(InvalidInput, match="A login or token cannot be for"):
        await issue_link(store, "http://x", NOON, identity=nobody)
    with pytest.raises(InvalidInput, match="A login or token cannot be for"):
        await issue_token(store, NOON, name="x", identity=nobody)
    made = await store.transact(store.api_tokens.add(hash_secret("old"), CredentialKind.TOKEN, NOON, identity=nobody))
    caller = Caller(key=made)
    assert (caller.identity, caller.is_owner) == (nobody, False)


async def test_a_token_has_a_name(store: Store) -> None:
    for name in ("", " \u200b\n"):
        with pytest.raises(InvalidInput, match="The token has no name"):
            await issue_token(store, NOON, name=name)


@transaction
def every_text() -> Statements[list[str]]:
    rows = yield "SELECT digest, name, rights FROM api_tokens", ()
    return [text for row in rows for text in row]


async def test_secrets_are_not_kept(store: Store) -> None:
    token, _ = await issue_token(store, NOON, name="backup", rights={Right.READ})
    assert token.startswith("pal_")
    assert await store.read(every_text()) == [hash_secret(token), "backup", "read"]


async def test_positions_give_what_came_after_them_and_only_what_can_be_seen(store: Store) -> None:
    world = World(store)
    await world.exchange("hello", source=dm("1"))
    position = await store.read(journal_feed.latest_position())
    other = (await world.exchange("hello", source=dm("2"))).turn.session
    everything = await store.read(journal_feed.read_changes(START, Principal.operator(), 100))
    later = await store.read(journal_feed.read_changes(position, Principal.operator(), 100))
    assert {each.session for each in later.changes} == {other}
    assert everything.changes[-len(later.changes) :] == later.changes
    nobody = await store.read(journal_feed.read_changes(START, Principal(identities=frozenset({"irc:x"})), 100))
    assert (nobody.changes, nobody.position, nobody.is_complete) == ((), everything.position, True)
    first = await store.read(journal_feed.read_changes(START, Principal.operator(), 1))
    assert (len(first.changes), first.is_complete) == (1, False)
    with pytest.raises(InvalidInput, match="A position cannot be"):
        await store.read(journal_feed.read_changes("x", Principal.operator(), 1))


async def test_what_opens_the_window_for_somebody_goes_with_them(store: Store) -> None:
    world = World(store)
    await world.exchange("hello", source=dm("7"))
    await issue_token(store, NOON, name="theirs", identity="telegram:7")
    await issue_token(store, NOON, name="mine")
    await store.transact(store.erasures.request("telegram:7", NOON, by="operator"))
    left = await store.read(api_tokens.list_valid(CredentialKind.TOKEN, NOON))
    assert [key.name for key in left] == ["mine"]


def test_an_address_that_others_reach_needs_to_say_how() -> None:
    with pytest.raises(ValidationError, match="refused"):
        WebConfig(host="0.0.0.0")  # noqa: S104 - that is the point
    public = WebConfig(host="0.0.0.0", public_url="https://Palaver.example.org/")  # noqa: S104
    assert public.url == "https://palaver.example.org"
    assert WebConfig(host="::1", port=9).url == "http://[::1]:9"
    for wrong in ("ftp://x", "https://u:p@x", "https://x/path", "x"):
        with pytest.raises(ValidationError):
            WebConfig(public_url=wrong)


@pytest.mark.parametrize("proxies", [frozenset({"127.0.0.1"}), frozenset[str]()])
async def test_over_tls_the_cookie_is_bound_to_the_host(config: Config, proxies: frozenset[str]) -> None:
    behind = WebConfig(public_url="https://palaver.example.org", trusted_proxies=proxies)
    async with opened(config.model_copy(update={"web": behind})) as window:
        here = f"http://127.0.0.1:{window.config.web.port}"
        told = {"x-forwarded-proto": "https", "host": "palaver.example.org", "x-forwarded-for": "203.0.113.7"}
        async with httpx.AsyncClient(timeout=60, base_url=here, headers=told) as client:
            code = (await window.link()).partition("#")[2]
            answer = await client.post("/login", data={"code": code}, headers={"origin": "https://palaver.example.org"})
            cookie = answer.headers["set-cookie"]
            shown = await client.get("/", headers={"cookie": cookie.partition(";")[0]})
    assert shown.status_code == 200
    assert cookie.startswith("__Host-palaver-")
    assert "Secure" in cookie
    assert "Domain" not in cookie


def test_links_and_tokens_on_the_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PALAVER_HOME", str(tmp_path))
    assert main(["web", "link"]) == 0
    assert re.fullmatch(r"http://127\.0\.0\.1:8787/login#[\w-]{43}\n", capsys.readouterr().out)
    assert main(["web", "tokens", "create", "backup", "--scopes", "read,chat", "--as", "telegram:7", "--json"]) == 0
    made = json.loads(capsys.readouterr().out)
    assert made["token"].startswith("pal_")
    assert main(["web", "tokens", "list", "--json"]) == 0
    (listed,) = json.loads(capsys.readouterr().out)["tokens"]
    assert (listed["name"], listed["scopes"], listed["identity"]) == ("backup", ["chat", "read"], "telegram:7")
    assert "token" not in listed
    for nobody in ("", "telegram:", ":7", "7", "nowhere:7"):
        for command in (["link"], ["tokens", "create", "x"]):
            assert main(["web", *command, "--as", nobody]) == 2, "an empty name would be the owner's"
    capsys.readouterr()
    assert main(["web", "tokens", "create", "x", "--profile", "work"]) == 2
    (tmp_path / "own.yaml").write_text("profiles: {work: {}}")
    monkeypatch.setenv("PALAVER_CONFIG", str(tmp_path / "own.yaml"))
    assert main(["web", "tokens", "create", "x", "--profile", "work", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["profile"] == "work"
    assert main(["web", "tokens", "create", "x", "--scopes", "all"]) == 2
    assert "Use chat, manage, read" in capsys.readouterr().err
    assert main(["web", "tokens", "revoke", str(listed["number"])]) == 0
    assert main(["web", "tokens", "revoke", str(listed["number"])]) == 2
    assert "Use a number from palaver web tokens list" in capsys.readouterr().err
