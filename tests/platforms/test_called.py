"""The platforms that share one harness, together: their options, their setup, and one gateway that all of them call."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest
from pydantic import ValidationError

from palaver.cli.main import main
from palaver.config.model import Config, PlatformConfig
from palaver.platforms.plugins import load_factory, make_adapter
from palaver.settings.quotas import GrantConfig
from tests.engine.gateway import until
from tests.platforms.called import ACCOUNT, CalledChat, Loopback, serve
from tests.platforms.dingtalk import fakes as dingtalk
from tests.platforms.feishu import fakes as feishu
from tests.platforms.line import fakes as line
from tests.platforms.qq import fakes as qq
from tests.platforms.wechat import fakes as wechat
from tests.platforms.yuanbao import fakes as yuanbao
from tests.web.conftest import opened


class Case(NamedTuple):
    server: type[Loopback]
    chat: type[CalledChat]
    options: dict[str, Any]
    """What it needs, without the addresses of its servers."""
    urls: tuple[str, ...] = ("api_url",)


CASES = {
    "feishu": Case(
        feishu.Feishu,
        feishu.FakeFeishu,
        {"app_id": feishu.APP_ID, "app_secret": feishu.SECRET, "encrypt_key": feishu.KEY},
    ),
    "wechat": Case(
        wechat.WeChat,
        wechat.FakeWeChat,
        {
            "app_id": wechat.APP_ID,
            "app_secret": wechat.SECRET,
            "token": wechat.TOKEN,
            "encoding_aes_key": wechat.KEY,
        },
    ),
    "wecom": Case(
        wechat.WeCom,
        wechat.FakeWeCom,
        {
            "corp_id": wechat.CORP_ID,
            "agent_id": wechat.AGENT,
            "secret": wechat.SECRET,
            "token": wechat.TOKEN,
            "encoding_aes_key": wechat.KEY,
        },
    ),
    "dingtalk": Case(
        dingtalk.DingTalk,
        dingtalk.FakeDingTalk,
        {"client_id": dingtalk.CLIENT, "client_secret": dingtalk.SECRET, "mode": "http"},
        ("api_url", "media_url"),
    ),
    "qq": Case(qq.Qq, qq.FakeQq, {"app_id": qq.APP_ID, "app_secret": qq.SECRET}, ("api_url", "token_url")),
    "line": Case(
        line.Line, line.FakeLine, {"channel_secret": line.SECRET, "token": line.TOKEN}, ("api_url", "data_url")
    ),
    "yuanbao": Case(yuanbao.Yuanbao, yuanbao.FakeYuanbao, {"app_key": yuanbao.KEY, "app_secret": yuanbao.SECRET}),
}
CALLED = [name for name in CASES if name != "yuanbao"]


@asynccontextmanager
async def serving(names: list[str]) -> AsyncGenerator[dict[str, Loopback]]:
    async with AsyncExitStack() as stack:
        yield {name: await stack.enter_async_context(serve(CASES[name].server())) for name in names}


def options_of(name: str, url: str) -> dict[str, Any]:
    case = CASES[name]
    return {**case.options, **dict.fromkeys(case.urls, url)}


@pytest.mark.parametrize("name", CASES)
def test_options_are_checked_and_asked_for(name: str) -> None:
    factory, given = load_factory(name), CASES[name].options
    assert make_adapter(name, "shop", given).account == "shop"
    model = factory.options
    with pytest.raises(ValidationError, match="Extra inputs"):
        model.model_validate({**given, "colour": "green"})
    with pytest.raises(ValidationError, match="a URL, like https://"):
        model.model_validate({**given, "api_url": "example.org"})
    for option in given:
        with pytest.raises(ValidationError):
            model.model_validate({**given, option: ""})
    shown = repr(model.model_validate(given))
    secrets = [
        text
        for option, text in given.items()
        if option not in {"app_id", "corp_id", "agent_id", "client_id", "app_key", "mode"}
    ]
    assert not any(secret in shown for secret in secrets)
    guide = factory.platform.guide
    assert guide
    asked = {question.option for question in guide.questions}
    assert set(given) <= asked <= set(model.model_fields)
    assert name == "yuanbao" or f"/in/{name}/{{account}}" in " ".join(guide.after)


async def test_accounts_are_set_up_and_checked_at_the_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PALAVER_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PALAVER_CONFIG", str(own := tmp_path / "own.yaml"))
    monkeypatch.delenv("PALAVER_STORE", raising=False)
    async with serving(list(CASES)) as servers:
        for name, server in servers.items():
            given: list[str] = []
            for option, text in options_of(name, server.url).items():
                variable = f"{name}_{option}".upper()
                monkeypatch.setenv(variable, str(text))
                is_secret = option != "app_key" and ("secret" in option or "key" in option or option == "token")
                given += ["--set", f"{option}=${{{variable}}}" if is_secret else f"{option}={text}"]
            if name == "wechat":
                given += ["--set", "passive=false"]
            assert await asyncio.to_thread(main, ["setup", name, *given]) == 0, capsys.readouterr()
            server.trouble = server.wrong
            assert await asyncio.to_thread(main, ["platforms", "check", name]) == 1
            said = capsys.readouterr()
            assert "Copy both" in said.out + said.err or "Copy the Secret" in said.out or "Issue another" in said.out
            assert not any(str(text) in said.out for option, text in CASES[name].options.items() if "secret" in option)
    assert "s3cret" not in own.read_text()


async def test_one_gateway_is_called_by_all_of_them_at_its_real_address(tmp_path: Path) -> None:
    async with serving(CALLED) as servers:
        accounts = {name: PlatformConfig(accounts={ACCOUNT: options_of(name, servers[name].url)}) for name in CALLED}
        config = Config(
            data_dir=tmp_path,
            store=str(tmp_path / "palaver.db"),
            platforms=accounts,
            grants=tuple(GrantConfig(platform=name) for name in CALLED),
        )
        async with (
            opened(config) as window,
            httpx.AsyncClient(timeout=60, base_url=window.url, headers={"host": "chat.example.org"}) as caller,
        ):
            for name, server in servers.items():
                chat = CASES[name].chat(server)
                await chat.say("hello")
                call = server.queue.pop()
                path, headers = f"/in/{name}/{ACCOUNT}", dict(call.headers)
                query = {**call.query, "msg_signature": "x"} if call.query else {}
                forged = await caller.post(path, params=query, content=call.body)
                assert forged.status_code == 401, name
                for _ in range(2):
                    taken = await caller.post(path, params=dict(call.query), headers=headers, content=call.body)
                    assert taken.status_code == 200, name
            for name, server in servers.items():
                await until(lambda server=server: any("You said: hello" in each.text for each in server.sent))
                assert sum("You said: hello" in each.text for each in server.sent) == 1, name
