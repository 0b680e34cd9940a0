"""`palaver memory`: list, edit and delete the notes that agents keep about people and chats."""

from typing import Annotated

import typer

from palaver.cli import shared_options
from palaver.cli.output import pick, print_found, print_note, print_result
from palaver.cli.shared_options import LARGEST_NUMBER, OPERATOR, Json, Limit, Person, StoreOption, ask
from palaver.commands.formatting import ago, deleted_note
from palaver.config.loader import load
from palaver.db.transaction import Statements, transaction
from palaver.model.memory import Note
from palaver.model.source import readable_identity
from palaver.store.store import Store

EXAMPLES = {
    "list": "palaver memory list --person telegram:7",
    "edit": 'palaver memory edit 3 "Prefers tea"',
    "forget": "palaver memory forget 3",
}

app = typer.Typer(help="List, edit and delete what agents remember.", rich_markup_mode=None)

_Which = Annotated[int, typer.Argument(metavar="NOTE", min=1, max=LARGEST_NUMBER, help="The number of a note.")]


@app.command("list", help=f"List notes about people and chats.\n\n{EXAMPLES['list']}")
def list_notes(
    *,
    person: Person = "",
    limit: Limit = 100,
    after: Annotated[int, typer.Option("--after", min=0, max=LARGEST_NUMBER, help="Continue after this note.")] = 0,
    store: StoreOption = None,
    json: Json = False,
) -> None:
    @transaction
    def read(opened: Store) -> Statements[list[Note]]:
        reader = (yield from opened.people.principal_of(person)) if person else OPERATOR
        return (yield from opened.memory.list_visible(reader, after=after, limit=limit))

    found = ask(store, lambda opened: opened.read(read(opened)), [], nothing="There are no notes.")
    follows = found[-1].number if len(found) == limit else None
    now = shared_options.now()
    rows = [
        (str(note.number), _about(note), note.text, ago(note.edited or note.created, now), note.session or "")
        for note in (each for newest in found for each in (newest, *newest.replaced))
    ]
    fields = {"notes": [_fields(note) for note in found], "after": follows}
    print_found(fields, ("note", "about", "text", "since", "from"), rows, as_json=json)
    if follows and not json:
        print_note(f"For more, use --after {follows}")


@app.command("edit", help=f"Change a note.\n\n{EXAMPLES['edit']}")
def edit_note(
    note: _Which,
    text: Annotated[str, typer.Argument(help="The new text.")],
    *,
    store: StoreOption = None,
    json: Json = False,
) -> None:
    limits, now = load().limits.memory, shared_options.now()
    changed = ask(store, lambda opened: opened.transact(opened.memory.edit(note, text, OPERATOR, limits, now)))
    print_result(_fields(changed), f"Note {changed.number} is now: {changed.text}", as_json=json)


@app.command("forget", help=f"Delete a note and what it replaced for good.\n\n{EXAMPLES['forget']}")
def forget_note(note: _Which, *, store: StoreOption = None, json: Json = False) -> None:
    deleted = ask(store, lambda opened: opened.transact(opened.memory.delete(note, OPERATOR)))
    print_result(_fields(deleted), deleted_note(deleted), as_json=json)


def _about(note: Note) -> str:
    if note.replaced_by is not None:
        return f"replaced by {note.replaced_by}"
    if note.place:
        return note.place.text
    return readable_identity(note.identity) if note.identity else ""


def _fields(note: Note) -> dict[str, object]:
    place = note.place.text if note.place else None
    known = pick(note, "number profile identity text created edited session seq replaced_by")
    return known | {"chat": place, "replaced": [_fields(old) for old in note.replaced]}
