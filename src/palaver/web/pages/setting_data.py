"""The settings page for data: where it is, how long it stays, and a backup at the press of a button."""

import asyncio
from pathlib import Path

from starlette.exceptions import HTTPException
from starlette.responses import Response

from palaver.model.attachment import format_size
from palaver.platforms.local.adapter import output_folder
from palaver.store.opening import sqlite_path
from palaver.store.retention.retention import Expired, Retention
from palaver.web.pages.common import answer_action, query_value
from palaver.web.pages.settings import SECTIONS, show_settings
from palaver.web.routes import WebRequest, action, page


@page("/settings/data", owner_only=True)
async def data(request: WebRequest) -> Response:
    file = sqlite_path(request.services.config().store)
    return await show_settings(
        request,
        SECTIONS["data"],
        "settings/data.html",
        database=str(file or ""),
        size=_size(file) if file else 0,
        backups=await asyncio.to_thread(request.services.list_backups) if file else (),
        expired=await _preview(request) if query_value(request, "preview") else None,
    )


async def _preview(request: WebRequest) -> list[Expired]:
    config = request.services.config()
    outputs = output_folder(config.data_dir)
    retention = Retention(database=request.store.database, blobs=request.services.shelf, outputs=outputs)
    return await retention.preview(config.retention.rules(), request.now)


@action("/settings/data/backup", owner_only=True)
async def back_up(request: WebRequest) -> Response:
    """Back up while the gateway runs, for its user alone to read."""
    if request.caller.csrf is None:
        raise HTTPException(403, "Make backups in a browser, not with a token.")
    if sqlite_path(request.services.config().store) is None:
        raise HTTPException(409, "This store is on PostgreSQL. Use pg_dump.")
    made = await request.services.back_up(request.now)
    return answer_action(request, f"Made the backup {made.path.name} ({format_size(made.size)}).", "/settings/data")


def _size(file: Path) -> int:
    """Return the size of the database with its log, which has the newest commits."""
    parts = (file, file.with_name(f"{file.name}-wal"))
    return sum(part.stat().st_size for part in parts if part.exists())


ROUTES = (data, back_up)
