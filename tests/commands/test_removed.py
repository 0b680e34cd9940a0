"""A conversation that is deleted takes along what commands told of it, wherever they were said."""

from pathlib import Path

from palaver.model.session import Principal
from palaver.store.conversations import deletion
from palaver.store.conversations.blob_store import BlobStore
from tests.commands.talk import talking

OPERATOR = Principal.operator()
HERE = ("/title canary business", "/undo", "/redo", "/export", "/search canary", "/sessions", "/help")
ELSEWHERE = (
    "/whoami",
    "/search canary",
    "/sessions",
    "/resume",
    "/export md canary business",
    "/attach canary business",
)


async def test_no_answer_of_a_command_outlives_it(store_url: str, tmp_path: Path) -> None:
    async with talking(store_url, shelf=BlobStore(tmp_path / "files")) as alice:
        await alice.say("the canary is yellow")
        session = await alice.session()
        other = alice.elsewhere()
        await other.say("about the weather")
        for talk, said in ((alice, HERE), (other, ELSEWHERE)):
            for command in said:
                await talk.ask(command)
                await alice.here.settled()
        await alice.here.store.transact(deletion.delete(session.id, OPERATOR, session.started))
        bodies = await alice.here.rows("SELECT body FROM outbox UNION ALL SELECT body FROM inbox")
        assert not [body for (body,) in bodies if b"canary" in body]
        assert await alice.here.rows("SELECT * FROM attachments") == []
        kept = [body for (body,) in bodies if b"weather" in body or b"/whoami" in body]
        assert len(kept) == 3, "what is not of it stays"


async def test_nor_does_a_refusal_that_names_it(store_url: str) -> None:
    async with talking(store_url) as alice:
        await alice.say("the canary is yellow")
        await alice.ask("/title canary business")
        session = await alice.session()
        await alice.ask("/new Other")
        other = alice.elsewhere()
        refused = [await other.ask("/attach canary business")]
        await other.ask("/attach Other")
        refused += [await other.ask("/resume canary business")]
        assert all("canary business" in answer for answer in refused), refused
        assert "Use " in refused[0]
        assert "Send /detach first." in refused[1]
        await alice.here.settled()
        await alice.here.store.transact(deletion.delete(session.id, OPERATOR, session.started))
        bodies = await alice.here.rows("SELECT body FROM outbox UNION ALL SELECT body FROM inbox")
        assert not [body for (body,) in bodies if b"canary" in body]
