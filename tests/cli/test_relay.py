"""`palaver relay`: a code, a gateway that joins with it, another key, and a tenant that is locked out."""

import asyncio
import json
import stat
from pathlib import Path

import pytest

from palaver.cli.main import main
from palaver.platforms.plugins import make_adapter
from palaver.platforms.relayed.adapter import RelayedAdapter, join, open_line
from palaver.protocols.adapter import PlatformRefused
from palaver.protocols.relay import new_secret, read_enrolment
from palaver.store.people import api_tokens
from palaver.testkit.platform import BOT, LoopClock
from tests.relay.world import connector

CONNECTOR = """\
relay:
  port: 8788
  tenants:
    acme:
      serves:
        - {platform: telegram, account: bot}
"""


@pytest.fixture
def homes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PALAVER_HOME", str(tmp_path / "home"))
    (tmp_path / "connector.yaml").write_text(CONNECTOR)
    (tmp_path / "gateway.yaml").write_text("# mine\nbusy: queue\n")
    return tmp_path


async def test_a_gateway_joins_changes_its_key_and_is_locked_out(
    homes: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    store = f"sqlite:///{homes / 'connector.db'}"

    async def run(side: str, *words: str) -> tuple[int, str, str]:
        monkeypatch.setenv("PALAVER_CONFIG", str(homes / f"{side}.yaml"))
        code = await asyncio.to_thread(main, ["relay", *words])
        out, err = capsys.readouterr()
        return code, out, err

    async with connector(homes) as there:
        code, _, err = await run("connector", "invite", "globex", "--store", store)
        assert code == 2
        assert "There is no tenant 'globex'" in err
        _, out, _ = await run("connector", "invite", "acme", "--store", store, "--json")
        code, _, err = await run("gateway", "join", "ws://192.0.2.7", "x")
        assert code == 2
        assert "wss://" in err
        code, out, err = await run("gateway", "join", there.url, json.loads(out)["code"])
        assert (code, err) == (0, "")
        kept = homes / "relay-acme.json"
        assert stat.S_IMODE(kept.stat().st_mode) == 0o600
        assert f"Added fake:{BOT} to" in out
        assert (homes / "gateway.yaml").read_text().startswith("# mine\nbusy: queue\n")

        before = read_enrolment(kept)
        code, out, _ = await run("gateway", "rotate")
        assert code == 0
        assert read_enrolment(kept).keys != before.keys
        with pytest.raises(PlatformRefused):
            await open_line(before, "")
        line, _ = await open_line(read_enrolment(kept), "")
        await line.close()

        _, out, _ = await run("connector", "tenants", "--store", store, "--json")
        assert json.loads(out)["tenants"][0]["waiting"] == 0
        keys = there.here.store
        await keys.transact(api_tokens.add_relay_key("globex", "digest", LoopClock().now()))
        invitation = await there.invite("acme")
        code, out, _ = await run("connector", "revoke", "acme", "--store", store)
        assert code == 0
        with pytest.raises(PlatformRefused):
            await open_line(read_enrolment(kept), "")
        with pytest.raises(PlatformRefused):
            await join(there.url, invitation, new_secret())
        assert await keys.read(api_tokens.relay_keys("globex")) == ["digest"], "the key of another tenant"
        code, _, err = await run("gateway", "rotate")
        assert code != 0
        assert "palaver relay join" in err


def test_an_account_of_a_connector_needs_no_package_of_its_platform(homes: Path) -> None:
    kept = homes / "relay-acme.json"
    kept.write_text('{"url": "ws://127.0.0.1:1", "tenant": "acme", "keys": ["k"], "accounts": {}}')
    adapter = make_adapter("telegram", "helper", {"relay_file": str(kept)})
    assert isinstance(adapter, RelayedAdapter)
    assert adapter.platform.name == "telegram"


@pytest.mark.usefixtures("homes")
def test_a_key_that_is_nowhere_is_not_changed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["relay", "rotate", "--json"]) == 2
    error = json.loads(capsys.readouterr().out)["error"]
    assert error.startswith("This gateway has joined no connector: there is no '")
    assert error.endswith("Use palaver relay join first, for example palaver relay join wss://relay.example.org CODE")


def test_a_file_that_is_not_there_is_an_error_in_json_too(homes: Path, capsys: pytest.CaptureFixture[str]) -> None:
    missing = str(homes / "re\x1b[31md.json")
    assert main(["relay", "rotate", missing, "--json"]) == 1
    printed = capsys.readouterr()
    assert json.loads(printed.out) == {"error": f"No such file or directory: {missing}"}
    assert r"re\x1b[31md.json" in printed.err, "nothing that a terminal obeys"
