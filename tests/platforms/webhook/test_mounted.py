"""A program calls a gateway as it is started, at the address of its window."""

from datetime import UTC, datetime
from pathlib import Path

import httpx

from palaver.config.model import Config, PlatformChoice
from palaver.config.people import GrantChoice
from palaver.platforms.webhook.signing import Scheme, key_of, signed
from tests.platforms.webhook.loopback import SECRET
from tests.web.conftest import opened

BODY = b'{"build": {"status": "failed"}}'


async def test_a_signed_call_is_answered_and_an_unsigned_one_is_not(tmp_path: Path) -> None:
    accounts = {"ci": {"secret": SECRET, "text": "Build {{ build.status }}"}}
    config = Config(
        data_dir=tmp_path,
        store=str(tmp_path / "palaver.db"),
        platforms={"webhook": PlatformChoice(accounts=accounts)},
        grants=(GrantChoice(platform="webhook", user_id="ci"),),
    )
    headers = signed(key_of(Scheme.STANDARD, SECRET), "msg_1", datetime.now(UTC), BODY)
    async with (
        opened(config) as window,
        httpx.AsyncClient(base_url=window.url, headers={"host": "hooks.example.org"}) as program,
    ):
        answers = [await program.post("/in/webhook/ci", content=BODY, headers=headers) for _ in range(2)]
        assert [answer.status_code for answer in answers] == [200, 200]
        first, again = (answer.json() for answer in answers)
        assert first == {"id": "in:1", "answer": 'You said: Build "failed"'}
        assert again == {**first, "duplicate": True}
        unsigned = await program.post("/in/webhook/ci", content=BODY)
        assert unsigned.status_code == 401
        assert "secret of this account" in unsigned.json()["error"]
