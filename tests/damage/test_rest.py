"""What a damaged row does to the rest: nothing. Lists, views, exports, search and erasure go on without it."""

import io
import json
from pathlib import Path

import pytest

from palaver.model.errors import Unreadable
from palaver.model.prompt import Naming
from palaver.model.transcript import UNREADABLE_TEXT, UnreadableEntry
from palaver.model.view import view
from palaver.platforms.plugins import PLATFORMS
from palaver.store.archive.collector import collect_all
from palaver.store.archive.exporter import ExportFormat, write_archive
from palaver.store.archive.importer import ImportOutcome, import_sessions
from palaver.store.archive.reader import LineLimits, Problem, read_archive
from palaver.store.conversations import transcript, visibility
from palaver.store.damage.messages import find_missing_messages
from palaver.store.damage.repair import repair
from palaver.store.opening import open_store
from palaver.store.privacy.person_export import check_export, export_person
from palaver.store.status import session_list
from palaver.store.store import Store
from tests.damage.conftest import failing
from tests.damage.kinds import NO_JSON, entry, run
from tests.damage.template import ANN, deliver_all, exchange
from tests.store.world import OPERATOR, World, group


@pytest.fixture
async def damaged(folder: Path) -> Store:
    store = await open_store(str(folder / "palaver.db"))
    await store.transact(run(("UPDATE entries SET body = ? WHERE id = ?", (NO_JSON, entry(3)))))
    return store


async def session_of(store: Store, number: int) -> str:
    return (await store.read(visibility.get(number))).id


async def archive_of(store: Store, form: ExportFormat = ExportFormat.JSONL) -> bytes:
    return b"".join([piece async for piece in write_archive(collect_all(store.database, OPERATOR), form)])


async def test_a_transcript_has_a_marked_gap(damaged: Store) -> None:
    async with damaged as store:
        entries = await store.read(transcript.load_visible(await session_of(store, 1), OPERATOR))
        assert [each.seq for each in entries] == [1, 2, 3, 4, 5, 6, 7, 10, 11]
        assert isinstance(entries[2], UnreadableEntry)
        assert entries[1].at == entries[2].at
        seen = view(entries, Naming(platform=PLATFORMS["telegram"]))
        assert UNREADABLE_TEXT in "".join(message.text for message in seen)
        await exchange(World(store), ANN, "still here", "so am I")


async def test_an_export_leaves_it_out_and_can_be_imported(damaged: Store, tmp_path: Path) -> None:
    async with damaged as store:
        archive = await archive_of(store)
        lines = [json.loads(line) for line in archive.splitlines()]
        assert [line["entry"]["seq"] for line in lines if "entry" in line][:4] == [1, 2, 4, 5]
        assert UNREADABLE_TEXT in (await archive_of(store, ExportFormat.MARKDOWN)).decode()
        assert UNREADABLE_TEXT in (await archive_of(store, ExportFormat.HTML)).decode()
    async with await open_store(str(tmp_path / "other.db")) as other:
        done = [each async for each in import_sessions(other.database, io.BytesIO(archive))]
        assert {each.outcome for each in done} == {ImportOutcome.IMPORTED}


async def test_an_export_of_a_person_names_it(damaged: Store) -> None:
    async with damaged as store:
        await store.transact(run(("UPDATE inbox SET body = ? WHERE no = 2", (NO_JSON,))))
        await store.transact(run(("UPDATE outbox SET body = ? WHERE id = -1", (NO_JSON,))))
        lines = [line async for line in export_person(store.database, "telegram:7")]
        assert check_export(lines) == len(lines) - 1
        left_out = [json.loads(line)["unreadable"] for line in lines if line.startswith(b'{"unreadable"')]
        named = {(each["table"], str(each["row"]).split()[-1]) for each in left_out}
        assert named == {("entries", "3"), ("inbox", "2"), ("outbox", "-1")}


async def test_an_erasure_deletes_what_it_cannot_read(damaged: Store) -> None:
    async with damaged as store:
        await store.transact(run(("UPDATE entries SET body = ? WHERE id = ?", (NO_JSON, entry(2, 5)))))
        await store.transact(run(("UPDATE inbox SET body = ? WHERE no IN (2, 4)", (NO_JSON,))))
        await store.transact(run(("UPDATE outbox SET body = ? WHERE id = -1", (NO_JSON,))))
        number = await store.transact(store.erasures.request("telegram:7", World(store).now, by="operator"))
        assert (await store.erasures.run(number, World(store).now)).done
        for table in ("entries", "inbox", "outbox"):
            left = await store.read(run((f"SELECT count(*) FROM {table} WHERE body = ?", (NO_JSON,))))  # noqa: S608
            assert left[0][0] == 0, table


async def test_an_erasure_waits_for_a_session_that_cannot_be_read(damaged: Store) -> None:
    async with damaged as store:
        await store.transact(run("UPDATE sessions SET origin = '{' WHERE no = 1"))
        number = await store.transact(store.erasures.request("telegram:7", World(store).now, by="operator"))
        progress = await store.erasures.run(number, World(store).now)
        assert not progress.done
        assert progress.busy
        assert progress.counts["entries"], "everything else of theirs is erased"


async def test_a_session_that_cannot_be_read_is_named_where_it_is_needed(damaged: Store) -> None:
    async with damaged as store:
        before = len((await store.read(session_list.list_sessions(OPERATOR))).previews)
        await store.transact(run("UPDATE sessions SET origin = '{' WHERE no = 1"))
        assert len((await store.read(session_list.list_sessions(OPERATOR))).previews) == before - 1
        with pytest.raises(Unreadable, match="palaver doctor --repair"):
            await store.read(visibility.get(1))
        with pytest.raises(Unreadable, match="palaver doctor --repair"):
            await World(store).begin(ANN)
        left_out: list[str] = []
        async for _ in collect_all(store.database, OPERATOR, report=lambda error: left_out.append(error.name)):
            pass
        assert len(left_out) == 1


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE outbox SET chat = '8' WHERE id = 11264",
        "UPDATE outbox SET account = 'telegram:other' WHERE id = 11264",
        "UPDATE outbox SET server = 'x' WHERE id = 11264",
        "UPDATE outbox SET checksum = checksum + 1 WHERE id = 11264",
        """UPDATE outbox SET body = CAST(replace(CAST(body AS TEXT), '"7"', '"8"') AS BLOB) WHERE id = 11264""",
    ],
)
async def test_nothing_is_sent_that_is_not_as_it_was_written(damaged: Store, damage: str) -> None:
    async with damaged as store:
        await store.transact(run(damage))
        await deliver_all(World(store, now=World(store).now.replace(year=2027)))
        rows = await store.read(run("SELECT state, worker FROM outbox WHERE id = 11264"))
        assert tuple(rows[0]) == ("unclear", None)


async def test_a_chat_that_moved_is_still_written_to(damaged: Store) -> None:
    async with damaged as store:
        await store.transact(store.chat_migration.move("telegram", None, "7", "700", World(store).now))
        sent = await deliver_all(World(store, now=World(store).now.replace(year=2027)))
        assert sent >= 1
        rows = await store.read(run("SELECT state, chat FROM outbox WHERE id = 11264"))
        assert tuple(rows[0]) == ("delivered", "700")


# Archives


def test_a_line_that_is_too_long_costs_its_session_and_little_memory() -> None:
    header = b'{"format":"palaver-sessions","version":1}\n'
    limits = LineLimits(line=100, file=200)
    long_line = b'{"entry":"' + b"x" * 1000 + b'"}\n'
    found = list(read_archive(io.BytesIO(header + long_line + b"{}\n"), limits))
    problems = [each for each in found if isinstance(each, Problem)]
    assert problems == found
    assert "longer than 100 bytes" in problems[0].reason
    file_line = b'{"file":{"sha256":"' + b"0" * 64 + b'","content":"' + b"A" * 60 + b'"}}\n'
    assert 100 < len(file_line) < 200
    (other,) = read_archive(io.BytesIO(header + file_line), limits)
    assert isinstance(other, Problem)
    assert "does not match its hash" in other.reason, "it was read, since files can be longer"
    (cut,) = read_archive(io.BytesIO(header + file_line[:-4] + b"A" * 400 + b'"}}\n'), limits)
    assert isinstance(cut, Problem)
    assert "longer than 200 bytes" in cut.reason


async def test_markdown_shows_html_as_text(tmp_path: Path) -> None:
    said = "<script>alert(1)</script> a < b <b>bold</b> <!-- note --> <?php ```<i>```"
    async with await open_store(str(tmp_path / "palaver.db")) as store:
        await exchange(World(store), ANN, said, "fine")
        text = (await archive_of(store, ExportFormat.MARKDOWN)).decode()
    assert "&lt;script>alert(1)&lt;/script> a < b &lt;b>bold&lt;/b> &lt;!-- note --> &lt;?php ```&lt;i>```" in text


async def test_what_was_undone_or_summarised_stays_hidden_when_it_is_restored(folder: Path) -> None:
    async with await open_store(str(folder / "palaver.db"), exclusive=True, repairs=True) as store:
        await store.transact(run(("DELETE FROM entries WHERE id IN (?, ?)", (entry(8), entry(9)))))
        await store.transact(run(("DELETE FROM entries WHERE id = ?", (entry(1, 2),))))
        await store.transact(run(("UPDATE entries SET id = ? WHERE id = ?", (entry(900, 2), entry(4, 2)))))
        await repair(store, World(store).now)
        assert await failing(store) == {}
        ids = (entry(8), entry(9), entry(1, 2), entry(4, 2))
        rows = await store.read(run(("SELECT hidden_by FROM entries WHERE id IN (?, ?, ?, ?) ORDER BY id", ids)))
        assert [row[0] for row in rows] == [1, 1, 2, 2]


async def test_a_message_that_is_not_missing_is_not_named(folder: Path) -> None:
    async with await open_store(str(folder / "palaver.db")) as store:
        await store.transact(run("DELETE FROM inbox WHERE no = 3"))
        (missing,) = await store.read(find_missing_messages())
        assert missing.name == "the message of entry 5 in turn:3"
        await store.transact(run("UPDATE inbox SET turn_no = NULL, state = 'done' WHERE no = 2"))
        assert await store.read(find_missing_messages()) == [missing], "it is there, in no turn"
        await store.transact(run("UPDATE sqlite_sequence SET seq = seq + 5 WHERE name = 'inbox'"))
        await exchange(World(store), ANN, "after a gap", "yes")
        assert await store.read(find_missing_messages()) == [missing]
        number = await store.transact(store.erasures.request("telegram:8", World(store).now, by="operator"))
        world = World(store)
        world.later(days=1)
        assert (await store.erasures.run(number, world.now)).done
        assert await store.read(find_missing_messages()) == [], "an erasure deletes messages"


async def test_a_message_of_an_unknown_conversation_is_moved_to_no_other(tmp_path: Path) -> None:
    async with await open_store(str(tmp_path / "palaver.db"), exclusive=True) as store:
        await World(store).say("hello", group("7"))
        await store.transact(run("UPDATE inbox SET key = 'nonsense'"))
        await store.transact(run("UPDATE ready_queue SET key = 'nonsense'"))
        await repair(store, World(store).now)
        assert await failing(store) == {}
        rows = await store.read(run("SELECT state, reason FROM inbox"))
        assert [tuple(row) for row in rows] == [("failed", "its conversation is unknown")]
        assert not await store.read(run("SELECT key FROM ready_queue"))
