"""The settings page for data: where it is, how long it stays, and a backup of the database at the press of a button."""

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from starlette.exceptions import HTTPException
from starlette.responses import Response

from palaver.model.attachment import format_size
from palaver.model.value import value
from palaver.store.damage.leftovers import copy_database, is_copy
from palaver.store.opening import sqlite_path
from palaver.store.retention.retention import Expired, Retention
from palaver.web.pages.common import answer_action, query_value
from palaver.web.pages.settings import SECTIONS, show_settings
from palaver.web.routes import WebRequest, action, page


@value
class Copy:
    name: str
    at: datetime
    size: int


@page("/settings/data", owner_only=True)
async def data(request: WebRequest) -> Response:
    file = sqlite_path(request.services.config().store)
    copies = await asyncio.to_thread(_list_copies, file) if file else ()
    size = sum(part.stat().st_size for part in _parts(file) if part.exists()) if file else 0
    return await show_settings(
        request,
        SECTIONS["data"],
        "settings/data.html",
        database=str(file or ""),
        size=size,
        copies=copies,
        expired=await _preview(request) if query_value(request, "preview") else None,
    )


async def _preview(request: WebRequest) -> list[Expired]:
    retention = Retention(database=request.store.database, blobs=request.services.shelf)
    return await retention.preview(request.services.config().retention.rules(), request.now)


@action("/settings/data/backup", owner_only=True)
async def back_up(request: WebRequest) -> Response:
    """Copy the database beside itself while the gateway runs, for its user alone to read."""
    if request.caller.csrf is None:
        raise HTTPException(403, "Make backups in a browser, not with a token.")
    file = sqlite_path(request.services.config().store)
    if file is None:
        raise HTTPException(409, "This store is on PostgreSQL. Use pg_dump.")
    copy = file.with_name(f"{file.name}.backup-{request.now.astimezone(UTC):%Y%m%dT%H%M%S}")
    await asyncio.to_thread(copy_database, file, copy)
    size = format_size(copy.stat().st_size)
    return answer_action(request, f"Copied the database to {copy.name} ({size}).", "/settings/data")


def _parts(file: Path) -> Sequence[Path]:
    """Return the database and its log, which has the newest commits."""
    return (file, file.with_name(f"{file.name}-wal"))


def _list_copies(file: Path) -> Sequence[Copy]:
    """Return the copies beside the database, the newest first."""
    found = [(each, each.stat()) for each in file.parent.iterdir() if is_copy(each, file)]
    copies = [
        Copy(name=each.name, at=datetime.fromtimestamp(facts.st_mtime, UTC), size=facts.st_size)
        for each, facts in found
    ]
    return sorted(copies, key=lambda copy: copy.at, reverse=True)


ROUTES = (data, back_up)
