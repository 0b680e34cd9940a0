"""`palaver platforms`: beside a running gateway, after one, and where none ever was."""

import asyncio
import json
import logging
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from palaver.cli.main import main
from palaver.gateway import probe
from palaver.platforms.plugins import load_factory
from palaver.protocols.installation import MissingLibrary
from palaver.store import accounts
from palaver.store.opening import open_store
from tests.packages import bring
from tests.pigeon import install


@pytest.fixture(autouse=True)
def configured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path / "site", monkeypatch)
    file = tmp_path / "own.yaml"
    file.write_text("platforms: {pigeon: {accounts: {home: {folder: /a}, work: {folder: /b}}}}")
    monkeypatch.setenv("PALAVER_CONFIG", str(file))


async def serve(url: str) -> None:
    """As a gateway would: the terminal is connected, one account has trouble, another is yet to come."""
    now, lease = datetime.now(UTC), timedelta(hours=1)
    async with await open_store(url) as store:
        fence = await store.transact(accounts.acquire("terminal", None, "w1", now, lease))
        await store.transact(accounts.mark_connected("terminal", None, fence or 0, now - timedelta(hours=2)))
        fence = await store.transact(accounts.acquire("pigeon", "home", "w1", now, lease))
        await store.transact(accounts.mark_down("pigeon", "home", fence or 0, now, "a cat \x1b[31m"))


async def leave(url: str) -> None:
    async with await open_store(url) as store:
        await store.transact(accounts.release("pigeon", "home", "w1"))


def test_what_is_connected_is_seen_beside_a_gateway(store_url: str, capsys: pytest.CaptureFixture[str]) -> None:
    asyncio.run(serve(store_url))
    assert main(["platforms", "--store", store_url]) == 0
    printed = [line.split(maxsplit=3) for line in capsys.readouterr().out.splitlines()]
    assert printed[1:] == [
        ["pigeon:home", "connecting", "just", "now: a cat [31m"],
        ["pigeon:work", "not", "served"],
        ["terminal", "connected", "2", "hours ago"],
    ]
    assert main(["platforms", "--store", store_url, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["accounts"]
    assert [each["state"] for each in found] == ["connecting", "not served", "connected"]
    assert found[0]["last_error"] == "a cat [31m"
    assert found[2]["worker"] == "w1"


@pytest.mark.parametrize(
    ("name", "code", "words"),
    [
        ("terminal", 0, "connected 2 hours ago"),
        ("pigeon", 1, "the gateway w1 retries; last error just now: a cat"),
        ("pigeon:work", 1, "no gateway serves it. Run palaver up"),
        ("pigeon:nobody", 1, "run palaver setup pigeon"),
        ("api", 1, "install an adapter for api. Installed: broken, "),
        ("nonsense", 2, "Unknown platform 'nonsense'"),
    ],
)
def test_a_check_says_what_is_the_matter(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, code: int, words: str
) -> None:
    url = str(tmp_path / "p.db")
    asyncio.run(serve(url))
    assert main(["platforms", "check", name, "--store", url]) == code
    printed = capsys.readouterr()
    assert words in " ".join((printed.out + printed.err).split())
    assert main(["platforms", "check", name, "--store", url, "--json"]) == code
    assert json.loads(capsys.readouterr().out).get("ok", False) is (code == 0)


DOVES = """
web: {{enabled: {window}}}
platforms:
  dove:
    accounts:
      well: {{token: coo}}
      shy: {{token: coo, mood: refused}}
      wild: {{token: coo, mood: broken}}
      slow: {{token: coo, mood: slow}}
      called: {{token: coo, mood: called}}
  pigeon: {{accounts: {{only: {{folder: /a}}}}}}
"""


@pytest.fixture
def doves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    adapters = {"dove": "tests.cli.doves:DOVE", "gone": "tests.cli.doves:GONE"}
    bring(tmp_path / "doves", monkeypatch, adapters, extras=["gone"])
    monkeypatch.setattr(probe, "_CHECK_TIMEOUT_S", 0.05)
    file = tmp_path / "doves.yaml"
    monkeypatch.setenv("PALAVER_CONFIG", str(file))
    file.write_text(DOVES.format(window="true"))
    return file


def test_every_account_is_asked_at_once_and_says_what_to_do(
    tmp_path: Path, doves: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    url = ["--store", str(tmp_path / "p.db")]
    assert main(["platforms", "check", *url]) == 1
    printed = capsys.readouterr().out
    assert "ok    dove:well: @dove[31m; not served" in printed
    assert "error dove:shy: the loft does not know this ring: ask for another" in printed
    assert "error dove:wild: the adapter failed: RuntimeError" in printed
    assert "error dove:slow: no answer in 0 seconds" in printed
    assert "error pigeon:only: not served; its adapter cannot check it without serving it" in printed
    assert main(["platforms", "check", "dove:well", *url]) == 0
    capsys.readouterr()
    assert main(["platforms", "check", "dove:shy", "--json", *url]) == 1
    [account] = json.loads(capsys.readouterr().out)["accounts"]
    assert (account["ok"], account["found"]) == (False, "the loft does not know this ring: ask for another")
    doves.write_text(DOVES.format(window="false"))
    assert main(["platforms", "check", "dove:called", *url]) == 1
    assert "the web server is off" in capsys.readouterr().out
    assert main(["platforms", "check", "dove:well", *url]) == 0


def test_a_client_that_lacks_a_library_of_the_system_names_its_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bring(tmp_path / "sunk", monkeypatch, {"sunk": "tests.cli.doves:SUNK"})
    says = "libnest.so.3: cannot open shared object file: No such file or directory"
    (tmp_path / "sunk/sunk_client.py").write_text(f"raise ImportError({says!r})\n")
    with pytest.raises(MissingLibrary, match=r"Sunk needs libnest\.so\.3.* apt-get install libnest3$"):
        load_factory("sunk")


@pytest.mark.usefixtures("doves")
def test_what_libraries_log_is_not_printed_between_the_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(logging.getLogger(), "handlers", [])
        assert main(["platforms", "check", "dove:shy", "--store", str(tmp_path / "p.db")]) == 1
        assert logging.getLogger().handlers == []
    assert "a ring that nobody knows" not in capsys.readouterr().err


@pytest.mark.usefixtures("doves")
def test_what_was_refused_and_works_by_now_is_tried_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    url, now = str(tmp_path / "p.db"), datetime.now(UTC)

    async def refuse() -> None:
        async with await open_store(url) as store:
            fence = await store.transact(accounts.acquire("dove", "well", "w1", now, timedelta(hours=1)))
            await store.transact(accounts.mark_down("dove", "well", fence or 0, now, "no such ring", refused=True))

    asyncio.run(refuse())
    assert main(["platforms", "check", "dove:well", "--store", url]) == 0
    assert "SIGHUP retries at once" in " ".join(capsys.readouterr().out.split())


def test_what_is_not_installed_can_be(tmp_path: Path, doves: Path, capsys: pytest.CaptureFixture[str]) -> None:
    doves.write_text("platforms: {gone: {accounts: {home: {}}}}")
    assert main(["platforms", "check", "gone", "--store", str(tmp_path / "p.db")]) == 2
    assert "/constraints.txt 'brought[gone]'" in capsys.readouterr().err


def test_what_was_taken_out_of_the_configuration_is_not_asked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    url = ["--store", str(tmp_path / "p.db")]
    asyncio.run(serve(url[1]))
    (tmp_path / "own.yaml").write_text("{}")
    assert main(["platforms", "check", "pigeon", *url]) == 1
    assert "error pigeon:home: connecting" in capsys.readouterr().out, "while a gateway serves it"
    asyncio.run(leave(url[1]))
    assert main(["platforms", *url]) == 0
    assert "pigeon:home  no longer configured" in capsys.readouterr().out
    assert main(["platforms", "check", "pigeon", *url]) == 1
    assert "error pigeon: there is no such account" in capsys.readouterr().out
    assert main(["platforms", "check", "pigeon", "--json", *url]) == 1
    found = json.loads(capsys.readouterr().out)
    assert (found["accounts"], found["ok"]) == ([], False)
    assert found["error"].startswith("pigeon: there is no such account. To add one, ")
    assert main(["platforms", "check", *url]) == 1
    assert "error accounts: none is configured\n      run palaver setup NAME" in capsys.readouterr().out


def test_looking_makes_no_store(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    url = tmp_path / "none.db"
    assert main(["platforms", "--store", str(url)]) == 0
    assert "pigeon:home" in capsys.readouterr().out
    assert not url.exists()
