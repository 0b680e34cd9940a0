"""Export everything about a person as JSONL: the same bytes as long as nothing changes.

{"format":"palaver-person","version":1,"identities":["telegram:7"]}
{"session":{…}}, {"entry":{…}}, {"end":{…}}         sessions without other participants
{"said":{"session":"01…","seq":4,"at":…,"text":…}}  what they said in shared sessions
{"message":{…}}, {"send":{…}}, {"row":{"table":…}}
{"process":{"name":"p3","command":…,"output":[…]}}  what they ran, with the output that this machine keeps
{"unreadable":{"table":"inbox","row":42}}           a damaged row of theirs, which is left out
{"file":{"sha256":"9f…","content":"aGVsbG8="}}      contents of all files that are named above
{"whole":{"lines":42,"sha256":"…"}}                 number and digest of all lines above
"""

import base64
import hashlib
import json
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from typing import Any

from palaver.db.transaction import Database, Row, Statements, transaction
from palaver.model.attachment import Attachment
from palaver.model.errors import BadArgument, Unreadable
from palaver.model.process import Process
from palaver.model.session import Principal
from palaver.model.transcript import Entry, UnreadableEntry
from palaver.model.turn import Delivery, Received
from palaver.store.archive.collector import collect
from palaver.store.archive.file_contents import FileContents
from palaver.store.archive.format import session_lines
from palaver.store.conversations.visibility import get
from palaver.store.people.usage import rows_of
from palaver.store.privacy.eraser import PersonData, deliveries_of, find_person_data, message_pages
from palaver.store.privacy.footprint import Footprint, find_footprint, find_share
from palaver.store.privacy.names import columns_naming
from palaver.store.processes import list_where
from palaver.store.records import json_text, placeholders

FORMAT = "palaver-person"
_OPERATOR = Principal.operator()
_EXPORTED_OTHERWISE = frozenset(
    {"sessions", "entries", "inbox", "outbox", "turns", "usage", "processes", "search_documents", "meta", "erasures"}
)
"""Tables that are exported in another form, or hold no data of their own."""
Outputs = Callable[[str], Iterable[tuple[int, bytes]]]
"""Returns the kept output of a process by its id, in pieces with their offsets."""


async def export_person(
    database: Database, name: str, contents: FileContents | None = None, outputs: Outputs = lambda _: ()
) -> AsyncIterator[bytes]:
    """Yield the lines, one session in memory at a time. Raises NotFound, BadArgument."""
    footprint = await database.read(find_footprint(name))
    if not await has_data(database, footprint):
        raise no_data_error(name)
    digest, count = hashlib.sha256(), 0
    async for line in _lines(database, footprint, contents, outputs):
        digest.update(line)
        count += 1
        yield line
    yield _line("whole", {"lines": count, "sha256": digest.hexdigest()})


async def has_data(database: Database, footprint: Footprint) -> bool:
    """Return whether an export would have more than its header."""
    lines = _lines(database, footprint)
    await anext(lines)
    return await anext(lines, None) is not None


def no_data_error(name: str) -> BadArgument:
    return BadArgument(
        "Nothing is stored about",
        found=name,
        allowed="",
        example="",
        fix="Run palaver people list to see who is known.",
    )


async def _lines(
    database: Database, footprint: Footprint, contents: FileContents | None = None, outputs: Outputs = lambda _: ()
) -> AsyncIterator[bytes]:
    header = {
        "format": FORMAT,
        "version": 1,
        "identities": sorted(footprint.identities),
        "people": sorted(footprint.people),
    }
    yield json_text(header).encode() + b"\n"
    data, files = await find_person_data(database, footprint), list[Attachment]()
    async for line in _own_sessions(database, data, files):
        yield line
    async for line in _said(database, data, files):
        yield line
    async for line in _messages(database, footprint, files):
        yield line
    for number, send in (await deliveries_of(database, data)).items():
        files += [send.outbound.file] if send and send.outbound.file else []
        yield _line("send", _send(send)) if send else _unreadable("outbox", number)
    for process in await database.read(list_where(footprint.identifies("p.identity"))):
        yield _line("process", _process(process, outputs(process.id)))
    for line in await database.read(_rows(footprint)):
        yield line
    if contents:
        async for line in contents.lines(files):
            yield line


def _unreadable(table: str, row: int | str) -> bytes:
    return _line("unreadable", {"table": table, "row": row})


def _unreadable_entries(session: str, entries: Iterable[Entry]) -> Iterator[bytes]:
    return (_unreadable("entries", f"{session} {each.seq}") for each in entries if isinstance(each, UnreadableEntry))


async def _own_sessions(database: Database, data: PersonData, files: list[Attachment]) -> AsyncIterator[bytes]:
    for session in reversed(data.sessions):
        try:
            record = await database.read(collect(session, _OPERATOR))
        except Unreadable:
            yield _unreadable("sessions", session)
            continue
        files += [file for entry in record.entries for file in entry.files]
        for line in (*session_lines(record), *_unreadable_entries(session, record.entries)):
            yield line


async def _messages(database: Database, footprint: Footprint, files: list[Attachment]) -> AsyncIterator[bytes]:
    async for page in message_pages(database, footprint):
        for message in page.found:
            files += message.inbound.files
            yield _line("message", _message(message))
        for number in page.unreadable:
            yield _unreadable("inbox", number)


async def _said(database: Database, data: PersonData, files: list[Attachment]) -> AsyncIterator[bytes]:
    for number in data.shared:
        share = await database.read(find_share(number, data.footprint))
        data.turns |= share.turns
        try:
            session = (await database.read(get(number))).id
        except Unreadable:
            yield _unreadable("sessions", number)
            continue
        for line in _unreadable_entries(session, share.unreadable):
            yield line
        for entry in share.said:
            files += entry.files
            said = {"session": session, "seq": entry.seq, "at": entry.at.isoformat(), "text": entry.text}
            yield _line("said", said | {"files": _files(entry.files)})


def _files(files: Iterable[Attachment]) -> list[dict[str, Any]] | None:
    return [
        {"name": file.name.stored(), "media_type": file.media_type, "size": file.size, "sha256": file.sha256}
        for file in files
    ] or None


def _line(kind: str, fields: Mapping[str, Any]) -> bytes:
    return json_text({kind: {name: value for name, value in fields.items() if value is not None}}).encode() + b"\n"


def _message(message: Received) -> dict[str, Any]:
    inbound = message.inbound
    return {
        "number": message.number,
        "at": inbound.at.isoformat(),
        "key": message.key.text,
        "source": inbound.source.to_json(),
        "labels": inbound.labels.to_json(),
        "text": inbound.text,
        "files": _files(inbound.files),
        "state": message.state.value,
        "reason": message.reason,
    }


def _send(send: Delivery) -> dict[str, Any]:
    outbound = send.outbound
    return {
        "number": send.number,
        "at": send.created.isoformat(),
        "platform": outbound.platform,
        "chat": outbound.chat_id,
        "text": outbound.text,
        "files": _files([outbound.file] if outbound.file else []),
        "state": send.state.value,
    }


def _process(process: Process, output: Iterable[tuple[int, bytes]]) -> dict[str, Any]:
    times = {"started": process.started, "exited": process.exited, "ended": process.ended}
    return {
        "name": process.name,
        "session": process.session,
        "command": process.command,
        "backend": process.backend,
        "folder": process.folder,
        "host": process.host,
        **{name: moment and moment.isoformat() for name, moment in times.items()},
        "exit_code": process.exit_code,
        "problem": process.problem,
        "output": [{"offset": offset, "content": base64.b64encode(data).decode()} for offset, data in output] or None,
    }


@transaction
def _rows(footprint: Footprint) -> Statements[list[bytes]]:
    """Return every other row that names them: grants, links, operations, settings, usage."""
    names = footprint.names
    found: dict[str, None] = {}
    by_table: dict[str, list[str]] = {}
    for table, column in (yield from columns_naming(footprint)):
        if table not in _EXPORTED_OTHERWISE:
            by_table.setdefault(table, []).append(column)
    for table, columns in sorted(by_table.items()):
        where = " OR ".join(f"{column} IN ({placeholders(names)})" for column in columns)
        rows = yield f"SELECT * FROM {table} WHERE {where}", names * len(columns)
        found.update(dict.fromkeys(sorted(_row(table, row) for row in rows)))
    found.update(dict.fromkeys(_row("usage", row) for row in (yield from rows_of(names))))
    theirs = footprint.identifies("owner")
    rows = yield (
        f"SELECT * FROM firings WHERE schedule_no IN (SELECT no FROM schedules WHERE {theirs.sql}) ORDER BY 1, 2",
        theirs.values,
    )
    found.update(dict.fromkeys(_row("firings", row) for row in rows))
    for table in ("grants", "aliases"):
        rows = yield f"SELECT * FROM {table} ORDER BY 1, 2", ()
        found.update(dict.fromkeys(_row(table, row) for row in rows if _platform_and_id(row) & footprint.identities))
    return [line.encode() for line in found]


def _platform_and_id(row: Row) -> set[str]:
    """Return `telegram:7` for every pair of texts in a row; one of them is the identity it is about."""
    texts = [value for value in row if isinstance(value, str)]
    return {f"{platform}:{id_}" for platform in texts for id_ in texts}


def _row(table: str, row: Iterable[object]) -> str:
    values = [value.hex() if isinstance(value, bytes) else value for value in row]
    return json_text({"row": {"table": table, "values": values}}) + "\n"


def check_export(written: Iterable[bytes]) -> int:
    """Return the number of lines. Raises BadArgument if the file is incomplete or was changed."""
    digest, count, last = hashlib.sha256(), 0, b""
    for line in written:
        if last:
            digest.update(last)
            count += 1
        last = line
    try:
        whole = json.loads(last)["whole"]
        is_complete = (whole["lines"], whole["sha256"]) == (count, digest.hexdigest())
    except (ValueError, TypeError, KeyError, RecursionError):
        is_complete = False
    if not is_complete:
        raise BadArgument(
            "This export is incomplete or was changed.",
            found="cut off or changed",
            allowed="a file that palaver people export wrote",
            example="palaver people export telegram:7 -o ann.jsonl",
        )
    return count
