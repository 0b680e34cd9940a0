"""Contents of files that nobody needs any more, which the transcript still names, and files that jobs wrote."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from palaver.db.transaction import Row, Statements, transaction
from palaver.model.attachment import Attachment
from palaver.model.retention import RetentionLimit, latest_cutoff
from palaver.store.conversations.attachment_refs import drop_refs, kept_aside
from palaver.store.conversations.blob_store import StoredFile
from palaver.store.conversations.visibility import Filter
from palaver.store.queue.inbox import rewrite
from palaver.store.records import INBOX_COLUMNS, SEQS, SET_BODY, entry_of, micros, prepare, readable, received_of
from palaver.store.scrub import owe_scrub

GONE = "it was deleted because it was old"
"""Why a file is not there, in words for the agent."""


def find_cutoff(limit: RetentionLimit, files: Sequence[StoredFile], now: datetime) -> datetime | None:
    """Return the time before which files go; `files` are the newest first."""
    by_count = by_size = None
    if limit.count is not None and len(files) > limit.count:
        by_count = files[limit.count - 1].at if limit.count else now
    if limit.size is not None:
        used = 0
        for number, file in enumerate(files):
            used += file.size
            if used > limit.size:
                by_size = files[number - 1].at if number else now
                break
    return latest_cutoff(limit, now, by_count, by_size)


@transaction
def is_needed(name: str, cutoff: datetime, gone: Sequence[Filter] = ()) -> Statements[bool]:
    """Return whether a message that waits, an unsent answer, or something said since the cutoff has this file.

    So has a conversation that is busy or pinned, and a reference that a repair set aside. The `sessions s` that go
    before need none.
    """
    moment = micros(cutoff)
    stays = Filter.all(Filter(f"NOT ({each.sql})", each.values) for each in gone)
    rows = yield (
        "SELECT 1 FROM attachments a WHERE a.sha256 = ? AND CASE a.kind"
        " WHEN 'out' THEN EXISTS (SELECT 1 FROM outbox o WHERE o.id = a.holder"
        "  AND o.state NOT IN ('delivered', 'dead'))"
        " WHEN 'in' THEN EXISTS (SELECT 1 FROM inbox i LEFT JOIN turns t ON t.no = i.turn_no WHERE i.no = a.holder"
        "  AND (i.received >= ? OR i.state IN ('waiting', 'relay') OR (t.no IS NOT NULL AND t.ended IS NULL))"
        f"  AND (t.no IS NULL OR EXISTS (SELECT 1 FROM sessions s WHERE s.no = t.session_no AND {stays.sql})))"
        " ELSE EXISTS (SELECT 1 FROM entries e LEFT JOIN turns t ON t.no = e.turn_no"
        f"  JOIN sessions s ON s.no = e.id / {SEQS} WHERE e.id = a.holder AND {stays.sql}"
        "  AND (coalesce(t.started, s.last_active) >= ?"
        "   OR EXISTS (SELECT 1 FROM turns r WHERE r.session_no = s.no AND r.ended IS NULL)"
        "   OR EXISTS (SELECT 1 FROM session_marks m WHERE m.session_no IN (s.no, coalesce(s.version_root, s.no))"
        "    AND m.pinned IS NOT NULL))) END LIMIT 1",
        (name, moment, *stays.values, *stays.values, moment),
    )
    return bool(rows) or name in (yield from kept_aside())


@transaction
def release(names: Sequence[str], cutoff: datetime) -> Statements[list[str]]:
    """Drop the references to files that nobody needs, and say so where they were. Return these files."""
    released: list[str] = []
    for name in names:
        if (yield from is_needed(name, cutoff)):
            continue
        yield from _rewrite_entries(name)
        yield from _rewrite_messages(name)
        yield from drop_refs("sha256 = ?", name)
        released.append(name)
    if released:
        yield from owe_scrub()
    return released


def _rewrite_entries(name: str) -> Statements[None]:
    rows: list[Row] = yield (
        "SELECT e.id, e.body FROM attachments a JOIN entries e ON e.id = a.holder"
        " WHERE a.sha256 = ? AND a.kind = 'entry'",
        (name,),
    )
    for row in rows:
        for entry in readable(entry_of, [row]):
            changed = prepare(entry._replace(files=_without(entry.files, name)))
            yield f"UPDATE entries SET {SET_BODY} WHERE id = ?", (*changed.values(row[0] // SEQS, entry.seq), row[0])


def _rewrite_messages(name: str) -> Statements[None]:
    rows = yield (
        f"SELECT {INBOX_COLUMNS} FROM attachments a JOIN inbox i ON i.no = a.holder"
        " LEFT JOIN turns t ON t.no = i.turn_no WHERE a.sha256 = ? AND a.kind = 'in' AND length(i.body) > 0",
        (name,),
    )
    for received in readable(received_of, rows):
        yield from rewrite(received, replace(received.inbound, files=_without(received.inbound.files, name)))


def _without(files: Sequence[Attachment], name: str) -> tuple[Attachment, ...]:
    return tuple(file._replace(sha256=None, problem=GONE) if file.sha256 == name else file for file in files)


# What jobs wrote: files in folders, named in no table


def list_outputs(folder: Path) -> list[StoredFile]:
    """Return the files that the target `local` made, the newest first."""
    found: list[StoredFile] = []
    for path in folder.rglob("*"):
        with suppress(FileNotFoundError):
            facts = path.lstat()
            if not path.is_dir():
                at = datetime.fromtimestamp(facts.st_mtime, UTC)
                found.append(StoredFile(str(path.relative_to(folder)), at, facts.st_size))
    return sorted(found, key=lambda file: file.at, reverse=True)


def remove_outputs(folder: Path, cutoff: datetime) -> int:
    """Delete what was written before the cutoff, and folders that are empty then. Return how many files.

    Raises OSError for the first file that cannot be deleted, after all others are gone.
    """
    old = [folder / file.name for file in list_outputs(folder) if file.at < cutoff]
    problems: list[OSError] = []
    for path in old:
        try:
            # A message that is sent again writes its file again.
            if path.lstat().st_mtime < cutoff.timestamp():
                path.unlink()
        except FileNotFoundError:
            continue
        except OSError as error:
            problems.append(error)
    above = {each for path in old for each in path.relative_to(folder).parents} - {Path()}
    for name in sorted(above, key=lambda each: len(each.parts), reverse=True):
        with suppress(OSError):  # something is in it
            (folder / name).rmdir()
    for problem in problems:
        raise problem
    return len(old)
