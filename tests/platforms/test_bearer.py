"""Bearer tokens: only those of the issuer, for us, valid now, and signed with a key of the platform."""

import asyncio
import base64

import jwt
import pytest

from palaver.protocols import PlatformDown
from palaver.protocols.bearer import BearerTokens
from tests.engine.gateway import until
from tests.platforms.jwts import other_key, private_key, public_keys, signed

CLAIMS = {"iss": "platform", "aud": "us"}


class Keys:
    def __init__(self) -> None:
        self.name, self.fetched, self.now = "k1", 0, 0.0
        self.answers = asyncio.Event()
        self.answers.set()
        self.problem: Exception | None = None

    async def fetch(self) -> list[dict[str, object]]:
        self.fetched += 1
        await self.answers.wait()
        if self.problem:
            raise self.problem
        return public_keys(self.name)

    def tokens(self) -> BearerTokens:
        return BearerTokens(self.fetch, issuer="platform", audience="us", clock=lambda: self.now)


async def test_a_valid_token_is_read() -> None:
    token = await Keys().tokens().read(f"Bearer {signed({**CLAIMS, 'x': 1})}")
    assert token
    assert (token.claims["x"], token.key["kid"]) == (1, "k1")


async def test_any_other_token_is_refused() -> None:
    unsigned = jwt.encode({**CLAIMS, "exp": 9e9}, "", algorithm="none", headers={"kid": "k1"})
    head = base64.urlsafe_b64encode(b'{"alg":"HS256","kid":"k1"}').decode().rstrip("=")
    wrong = [
        signed({**CLAIMS, "iss": "somebody"}),
        signed({**CLAIMS, "aud": "others"}),
        signed({"iss": "platform"}),
        signed(CLAIMS, valid=-301),
        jwt.encode(CLAIMS, private_key(), algorithm="RS256", headers={"kid": "k1"}),
        signed({**CLAIMS, "nbf": 9e9}),
        signed(CLAIMS, key=other_key()),
        signed(CLAIMS, name="k2"),
        jwt.encode({**CLAIMS, "exp": 9e9}, str(public_keys()[0]["n"]), algorithm="HS256", headers={"kid": "k1"}),
        unsigned,
        f"{head}.e30.x",
        signed(CLAIMS)[:-9],
        "a.b.c",
        "",
        "é",
        "x" * 99_999,
    ]
    tokens = Keys().tokens()
    for text in wrong:
        assert await tokens.read(f"Bearer {text}") is None, text[:60]
    assert await tokens.read(signed(CLAIMS)) is None
    assert await tokens.read(f"Basic {signed(CLAIMS)}") is None


async def test_keys_are_fetched_once_a_day_and_for_unknown_ones_not_too_often() -> None:
    keys = Keys()
    tokens, good = keys.tokens(), f"Bearer {signed(CLAIMS)}"
    assert all(await asyncio.gather(*(tokens.read(good) for _ in range(5))))
    for _ in range(5):
        assert not await tokens.read(f"Bearer {signed(CLAIMS, name='k2')}")
    assert keys.fetched == 1
    keys.now, keys.name = 301.0, "k2"
    assert await tokens.read(f"Bearer {signed(CLAIMS, name='k2')}")
    assert keys.fetched == 2
    keys.now += 86_401.0
    assert await tokens.read(f"Bearer {signed(CLAIMS, name='k2')}")
    await until(lambda: keys.fetched == 3)


async def test_a_known_key_waits_neither_for_an_unknown_one_nor_for_its_successor() -> None:
    keys = Keys()
    tokens = keys.tokens()
    assert await tokens.read(f"Bearer {signed(CLAIMS)}")
    for keys.now in (301.0, 86_401.0):
        fetched = keys.fetched
        keys.answers.clear()
        forged = asyncio.create_task(tokens.read(f"Bearer {signed(CLAIMS, name='k2')}"))
        await until(lambda: keys.fetched > fetched)  # noqa: B023 - it is called at once
        assert await asyncio.wait_for(tokens.read(f"Bearer {signed(CLAIMS)}"), 60)
        keys.answers.set()
        assert await forged is None


async def test_an_outage_is_asked_once_in_a_while_and_known_keys_stay_valid() -> None:
    keys = Keys()
    keys.problem = PlatformDown("no")
    tokens, valid = keys.tokens(), f"Bearer {signed(CLAIMS)}"
    keys.answers.clear()
    asked = [asyncio.create_task(tokens.read(valid)) for _ in range(5)]
    await until(lambda: keys.fetched == 1)
    asked[0].cancel()
    keys.answers.set()
    results = await asyncio.gather(*asked, return_exceptions=True)
    assert [type(each) for each in results] == [asyncio.CancelledError, *[PlatformDown] * 4]
    with pytest.raises(PlatformDown):
        await tokens.read(valid)
    assert keys.fetched == 1
    keys.now, keys.problem = 5.0, None
    assert await tokens.read(valid)
    keys.now, keys.problem = 90_000.0, PlatformDown("no")
    for _ in range(3):
        assert await tokens.read(valid), "its key is known"
        await until(lambda: keys.fetched == 3)
    with pytest.raises(PlatformDown):
        await tokens.read(f"Bearer {signed(CLAIMS, name='k2')}")
    assert keys.fetched == 3


@pytest.mark.parametrize("problem", [PlatformDown("no"), KeyError("keys"), TypeError(), ValueError()])
async def test_without_keys_nothing_is_decided(problem: Exception) -> None:
    keys = Keys()
    keys.problem = problem
    with pytest.raises(PlatformDown):
        await keys.tokens().read(f"Bearer {signed(CLAIMS)}")


async def test_an_answer_without_keys_takes_none_away() -> None:
    keys = Keys()
    tokens, valid = keys.tokens(), f"Bearer {signed(CLAIMS)}"
    assert await tokens.read(valid)
    keys.now, keys.name = 301.0, ""
    with pytest.raises(PlatformDown):
        await tokens.read(f"Bearer {signed(CLAIMS, name='k2')}")
    assert await tokens.read(valid)
