"""A person is forgotten in what others learned about them, even after their conversations were deleted."""

from collections.abc import Awaitable, Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from palaver.engine import maintenance
from palaver.model.access import AccessRole, Grant
from palaver.model.errors import StoreError
from palaver.model.session import Principal
from palaver.store.conversations import deletion
from palaver.store.conversations.blob_store import BlobStore
from palaver.store.status.invariants import violations
from palaver.testkit.platform import LoopClock
from tests.engine.gateway import Bench, running, until
from tests.engine.places import between
from tests.engine.test_links import code_of

OWNER = (Grant(platform="other", role=AccessRole.OWNER),)
NAME = "Annabel Lee"


async def bodies(here: Bench) -> list[bytes]:
    return [bytes(body) for (body,) in await here.rows("SELECT body FROM outbox UNION ALL SELECT body FROM entries")]


async def test_no_notice_names_somebody_whose_conversation_was_deleted(store_url: str) -> None:
    async with between(store_url, grants=OWNER) as two:
        ann, bob, other = two.fake.person(NAME), two.other.person("bob"), two.fake.person("fake")
        hers, his, near = two.fake.dm(ann), two.other.dm(bob), two.fake.dm(other)
        here, clock = two.here, LoopClock()
        await two.set_home(his, bob)
        await near.say(other, "me too")
        await his.hears("fake:p2")
        await hers.say(ann, "hello")
        await his.hears(f'fake:p1 ("{NAME}") asks')
        await two.ask(his, bob, "/pair approve fake:p1")
        await hers.hears("You said: hello")
        code = await code_of(two, hers, ann)
        await two.ask(his, bob, f"/link {code}")
        await two.ask(hers, ann, "/link yes")
        assert NAME in await two.ask(his, bob, "/link yes")
        assert NAME in await two.ask(his, bob, "/whoami")
        await two.ask(his, bob, "/unlink")
        hers.gone = True
        await hers.say(ann, "still there?")
        await his.hears(f"Messages to fake:{hers.id} can no longer be delivered")
        await here.settled()
        for (session,) in await here.rows("SELECT id FROM sessions WHERE owner = 'fake:p1'"):
            await here.store.transact(deletion.delete(session, Principal.operator(), clock.now()))
        words = (NAME.encode(), b"fake:p1", f"fake:{hers.id}".encode())
        told = await bodies(here)
        assert all(any(word in body for body in told) for word in words)
        number = await here.store.transact(here.store.erasures.request("fake:p1", clock.now(), by="operator"))
        assert (await here.store.erasures.run(number, clock.now())).done
        left = await bodies(here)
        assert not [body for body in left if any(word in body for word in words)]
        assert [body for body in left if b"fake:p2" in body], "what others were told about others stays"
        assert await here.rows("SELECT 1 FROM inbox WHERE platform = 'fake' AND chat = ?", hers.id) == []
        assert await here.rows("SELECT 1 FROM outbox WHERE account = 'fake:bot' AND chat = ?", hers.id) == []
        assert await here.store.read(violations()) == []


class Broken:
    """Raises until it is mended, then does what it stands for."""

    def __init__(self, error: Exception, then: Callable[..., Awaitable[object]]) -> None:
        self.calls, self.is_mended, self._error, self._then = 0, False, error, then

    async def __call__(self, *args: Any) -> Any:
        self.calls += 1
        if not self.is_mended:
            raise self._error
        return await self._then(*args)


async def test_a_clean_up_that_fails_is_tried_again(
    store_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(maintenance, "SCRUB_PAUSE_SECONDS", 0.02)
    often, shelf = timedelta(milliseconds=20), BlobStore(tmp_path / "files")
    async with running(store_url, sweep_every=often, shelf=shelf) as here:
        ann, store = here.world.person(NAME), here.store
        chat = here.world.dm(ann)
        await chat.say(ann, "hello")
        await chat.hears("You said: hello")
        await here.settled()
        index = Broken(StoreError("the index is damaged"), store.search.catch_up)
        files = Broken(PermissionError("no"), shelf.remove)
        log = Broken(StoreError("disk I/O error"), store.database.scrub)
        for place, name, broken in ((store.search, "catch_up", index), (shelf, "remove", files)):
            monkeypatch.setattr(place, name, broken)
        monkeypatch.setattr(store.database, "scrub", log)
        await chat.say(ann, "/forget --yes")
        for broken in (index, files):
            await until(lambda broken=broken: broken.calls >= 2)
            assert await here.rows("SELECT 1 FROM erasures WHERE ended IS NULL")
            broken.is_mended = True
        await until(lambda: _has_none(here, "SELECT 1 FROM erasures WHERE ended IS NULL"))
        tried = log.calls
        await until(lambda: log.calls > tried + 1)
        log.is_mended = True
        await until(lambda: _has_none(here, "SELECT 1 FROM meta WHERE name = 'scrub owed'"))
        await chat.say(ann, "me again")
        await chat.hears("You said: me again")


async def _has_none(here: Bench, sql: str) -> bool:
    return not await here.rows(sql)
