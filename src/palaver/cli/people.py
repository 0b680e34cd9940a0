"""`palaver people`: the people who talk to the agent, their accounts and grants."""

from collections.abc import Mapping
from typing import Annotated

import typer

from palaver.cli import privacy, shared_options
from palaver.cli.output import pick, print_facts, print_found, print_heading, print_json, print_note, print_rows
from palaver.cli.shared_options import OPERATOR, After, Json, Limit, StoreOption, ask
from palaver.commands.formatting import ago
from palaver.model.access import Grant, describe_grant_place
from palaver.model.errors import NotFound
from palaver.model.label import Label
from palaver.model.source import encode_id, readable_identity, stored_identity
from palaver.store.people import grants, people
from palaver.store.people.grants import GrantTable
from palaver.store.people.people import Person
from palaver.store.privacy.pseudonyms import Original, resolve
from palaver.store.store import Store

EXAMPLES = {
    "list": "palaver people list",
    "show": "palaver people show telegram:7",
    "resolve": "palaver people resolve user_0123456789abcdef",
    **privacy.EXAMPLES,
}

_OWNER = "terminal:owner"

app = typer.Typer(help="List, export and delete people.", rich_markup_mode=None)

for name, does, line in (
    ("export", privacy.export_everything, "Export everything about a person to a file."),
    ("forget", privacy.forget_person, "Permanently delete everything about a person. What others said stays."),
    ("receipts", privacy.list_receipts, "List past deletions without names, or write one receipt."),
    ("verify", privacy.verify_file, "Check that deleted data is still gone, or that an export is complete."),
):
    app.command(name, help=f"{line}\n\n{EXAMPLES[name]}")(does)


@app.command("list", help=f"List all people in order of first contact.\n\n{EXAMPLES['list']}")
def list_people(
    *,
    limit: Limit = 50,
    after: After = "",
    store: StoreOption = None,
    json: Json = False,
) -> None:
    found = ask(
        store,
        lambda opened: opened.read(people.list_people(OPERATOR, after=after, limit=limit)),
        [],
        nothing="There are no people yet.",
    )
    follows = found[-1].id if len(found) == limit else None
    now = shared_options.now()
    accounts = [", ".join(readable_identity(account.identity) for account in each.identities) for each in found]
    rows = [(each.id, _name(each), of, ago(each.since, now)) for each, of in zip(found, accounts, strict=True)]
    fields = {"people": [_fields(person) for person in found], "after": follows}
    print_found(fields, ("person", "name", "accounts", "since"), rows, as_json=json)
    if follows and not json:
        print_note(f"For more, use --after {follows}")


@app.command("show", help=f"Show a person's accounts and grants.\n\n{EXAMPLES['show']}")
def show_person(
    person: Annotated[str, typer.Argument(help="A person id or an account, for example telegram:7.")],
    *,
    store: StoreOption = None,
    json: Json = False,
) -> None:
    async def look(opened: Store) -> tuple[Person, GrantTable]:
        found = await opened.read(people.find_person(stored_identity(person), OPERATOR))
        return found, await opened.read(grants.load_table(GrantTable()))

    found, table = ask(store, look)
    named = {number: grant for number, grant in table.grants.items() if _names(grant, found)}
    if json:
        granted = [{"number": number, **grant.to_json()} for number, grant in named.items()]
        print_json({"person": _fields(found), "grants": granted})
        return
    _print(found, named)


@app.command("resolve", help=f"Show the account, chat or thread behind a pseudonym.\n\n{EXAMPLES['resolve']}")
def resolve_pseudonym(
    pseudonym: Annotated[str, typer.Argument(help="A pseudonym as the agent writes it: user_0123456789abcdef.")],
    *,
    store: StoreOption = None,
    json: Json = False,
) -> None:
    async def look(opened: Store) -> Original:
        try:
            return await opened.read(resolve(pseudonym.strip()))
        except NotFound as error:
            error.add_note("Pseudonyms of people and chats that were deleted cannot be resolved.")
            raise

    found = ask(store, look)
    if json:
        print_json(found._asdict())
        return
    print_facts([("kind", found.kind), ("platform", found.platform), ("id", Label(found.id).plain())])


def _names(grant: Grant, person: Person) -> bool:
    identity = f"{grant.platform}:{encode_id(grant.user_id)}" if grant.user_id else None
    return grant.person == person.id or identity in {each.identity for each in person.identities}


def _print(person: Person, named: Mapping[int, Grant]) -> None:
    now = shared_options.now()
    print_heading(person.id)
    print_facts([("name", _name(person)), ("since", ago(person.since, now))])
    rows = [(readable_identity(each.identity), _plain(each.name), ago(each.since, now)) for each in person.identities]
    print_rows(("account", "name", "since"), rows)
    if named:
        print_rows(
            ("grant", "role", "where"),
            [(str(no), each.role.text, describe_grant_place(each)) for no, each in named.items()],
        )


def _name(person: Person) -> str:
    is_owner = any(account.identity == _OWNER for account in person.identities)
    return _plain(person.name) or ("the owner" if is_owner else "")


def _plain(name: Label | None) -> str:
    return name.plain() if name else ""


def _fields(person: Person) -> dict[str, object]:
    accounts = [pick(each, "identity since") | {"name": _plain(each.name) or None} for each in person.identities]
    return pick(person, "id since") | {"name": _plain(person.name) or None, "identities": accounts}
