"""A program calls a gateway as it is started, at the address of its window."""

import asyncio
import json
import os
import re
from datetime import UTC, datetime
from pathlib import Path

import httpx
import pytest

from palaver.config.model import Config, PlatformConfig
from palaver.platforms.webhook.signature import Scheme, decode_secret, sign
from palaver.settings.quotas import GrantConfig
from tests.platforms.webhook.loopback import SECRET
from tests.web.conftest import opened

BODY = b'{"build": {"status": "failed"}}'
PAGE = Path(__file__).parents[3] / "docs/webhooks.md"


def _config(folder: Path, scheme: str = "standard") -> Config:
    accounts = {"ci": {"secret": SECRET, "scheme": scheme, "text": "Build {{ build.status }}"}}
    return Config(
        data_dir=folder,
        store=str(folder / "palaver.db"),
        platforms={"webhook": PlatformConfig(accounts=accounts)},
        grants=(GrantConfig(platform="webhook", user_id="ci"),),
    )


async def test_a_signed_call_is_answered_and_an_unsigned_one_is_not(tmp_path: Path) -> None:
    config = _config(tmp_path)
    headers = sign(decode_secret(Scheme.STANDARD, SECRET), "msg_1", datetime.now(UTC), BODY)
    async with (
        opened(config) as window,
        httpx.AsyncClient(timeout=60, base_url=window.url, headers={"host": "hooks.example.org"}) as program,
    ):
        answers = [await program.post("/in/webhook/ci", content=BODY, headers=headers) for _ in range(2)]
        assert [answer.status_code for answer in answers] == [200, 200]
        first, again = (answer.json() for answer in answers)
        assert re.fullmatch("in:1-[0-9a-f]{6}", first["id"])
        assert first == {"id": first["id"], "answer": 'You said: Build "failed"'}
        assert again == {**first, "duplicate": True}
        unsigned = await program.post("/in/webhook/ci", content=BODY)
        assert unsigned.status_code == 401
        assert "secret of this account" in unsigned.json()["error"]


@pytest.mark.needs("curl")
@pytest.mark.parametrize("scheme", ["standard", "token"])
async def test_the_calls_of_the_page_are_answered(tmp_path: Path, scheme: str) -> None:
    (tmp_path / ".secrets").mkdir()
    (tmp_path / ".secrets/ci").write_text(f"{SECRET}\n")
    script = re.findall(rf"`{scheme}`[^`]*:\n\n```sh\n(.*?)```", PAGE.read_text(), re.DOTALL)[0]
    async with opened(_config(tmp_path, scheme)) as window:
        calling = await asyncio.create_subprocess_exec(
            "sh",
            "-c",
            script.replace("https://agent.example.org", window.url),
            env={**os.environ, "HOME": str(tmp_path), "no_proxy": "*"},
            stdout=asyncio.subprocess.PIPE,
        )
        said, _ = await calling.communicate()
    assert json.loads(said)["answer"] == 'You said: Build "failed"'
    assert json.loads(said)["id"].startswith("in:1-")
