"""`palaver file`: describe or save a file of a message or an answer."""

import asyncio
import shutil
from typing import Annotated

import typer

from palaver.cli.export import blob_store, open_output
from palaver.cli.output import pick, print_note, print_result
from palaver.cli.shared_options import OPERATOR, STANDARD_STREAM, Force, Json, StoreOption, ask
from palaver.model.attachment import format_size
from palaver.model.errors import NotFound
from palaver.store.conversations import attachments
from palaver.store.conversations.blob_store import BlobStore

EXAMPLES = {"file": "palaver file 9f86d081884c7d65 -o report.md"}

app = typer.Typer(rich_markup_mode=None)

Id = Annotated[str, typer.Argument(metavar="FILE", help="The file id, as the agent or a chat shows it.")]
Output = Annotated[str, typer.Option("--output", "-o", help="Save to this path; without it, only describe the file.")]


@app.command(help=f"Describe a file from a message or an answer, or save it.\n\n{EXAMPLES['file']}")
def file(name: Id, *, output: Output = "", force: Force = False, store: StoreOption = None, json: Json = False) -> None:
    found = ask(store, lambda opened: opened.read(attachments.find(name, OPERATOR)))
    blobs = blob_store()
    place = blobs.place(found.sha256 or "")
    where = f"at {place}" if place else "not on this machine"
    if output:
        asyncio.run(_copy(name, blobs, found.sha256 or "", output, force=force))
        where = "on standard output" if output == STANDARD_STREAM else f"in {output}"
    described = f"{found.name.plain()}, {found.media_type}, {format_size(found.size)}: {where}"
    if output == STANDARD_STREAM:
        print_note(described)
        return
    fields = pick(found, "id media_type size sha256") | {"name": found.name.stored()}
    print_result(fields | {"path": place, "output": output or None}, described, as_json=json)


async def _copy(name: str, blobs: BlobStore, sha256: str, output: str, *, force: bool) -> None:
    async with blobs.reading(sha256) as place:
        if place is None:
            raise NotFound("file on this machine", name)
        to = "" if output == STANDARD_STREAM else output
        with place.open("rb") as content, open_output(to, force=force, example=EXAMPLES["file"]) as target:
            shutil.copyfileobj(content, target)
