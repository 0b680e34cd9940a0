"""`palaver grants`: list and change who has access, and show the log."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Annotated

import typer

from palaver.cli import shared_options
from palaver.cli.explain import explain_access
from palaver.cli.output import confirm, pick, print_found, print_note, print_result
from palaver.cli.shared_options import OPERATOR, Json, Limit, StoreOption, Yes, ask, filled
from palaver.commands.formatting import ago
from palaver.config.loader import load
from palaver.model.access import (
    EVERYBODY,
    GRANTEE_FORMS,
    AccessRole,
    Basis,
    ChatKind,
    Effect,
    Grant,
    describe_grant,
    describe_grant_place,
    describe_grantee,
    parse_grantee,
)
from palaver.model.errors import BadArgument
from palaver.platforms.plugins import known_platforms
from palaver.store.people import grants
from palaver.store.people.api_tokens import Credential
from palaver.store.people.grants import Change, ChangeKind, GrantTable
from palaver.store.people.key_rights import end_lost_keys, ended_text
from palaver.store.store import Store

EXAMPLES = {
    "list": "palaver grants list",
    "add": "palaver grants add telegram:7 --role admin",
    "remove": "palaver grants remove 3",
    "explain": "palaver grants explain telegram:7 --kind group --chat -100",
    "log": "palaver grants log --limit 20",
}

app = typer.Typer(help="List and change who has access.", rich_markup_mode=None)

Force = Annotated[bool, typer.Option("--force", help="Proceed even if this removes the last owner.")]


@app.command("list", help=f"List all grants. Those from the configuration have no number.\n\n{EXAMPLES['list']}")
def list_grants(*, store: StoreOption = None, json: Json = False) -> None:
    table = ask(
        store,
        lambda opened: opened.read(grants.load_table(GrantTable())),
        GrantTable(),
        nothing="No grants have been added. Grants without a number come from the configuration.",
    )
    fixed = load().settings().grants
    numbered = [{"number": number, **grant.to_json()} for number, grant in table.grants.items()]
    fields = {"grants": numbered, "configuration": [grant.to_json() for grant in fixed]}
    known = [*((str(number), grant) for number, grant in table.grants.items()), *(("", grant) for grant in fixed)]
    rows = [(number, _role(grant), describe_grantee(grant), describe_grant_place(grant)) for number, grant in known]
    print_found(fields, ("number", "role", "who", "where"), rows, as_json=json)


def _role(grant: Grant) -> str:
    return grant.role.text if grant.effect is Effect.ALLOW else "none"


@app.command("add", help=f"Give somebody access or another role, or block them.\n\n{EXAMPLES['add']}")
def add_grant(
    who: Annotated[str, typer.Argument(help=f"{GRANTEE_FORMS}; for example telegram:7.")],
    *,
    role: Annotated[str, typer.Option(help="Role: guest, member, admin or owner.")] = AccessRole.MEMBER.text,
    block: Annotated[bool, typer.Option("--block", help="Block them instead. A block wins over every grant.")] = False,
    basis: Annotated[Basis, typer.Option(help="How they are identified.")] = Basis.IDENTITY,
    kind: Annotated[
        ChatKind | None, typer.Option(help="Only in direct chats, or only in groups, channels and threads.")
    ] = None,
    chat: Annotated[str, typer.Option(help="Only in this chat and its threads.", callback=filled)] = "",
    server: Annotated[str, typer.Option(help="Only on this server or workspace.", callback=filled)] = "",
    account: Annotated[str, typer.Option(help="Only for this bot account.", callback=filled)] = "",
    force: Force = False,
    yes: Yes = False,
    store: StoreOption = None,
    json: Json = False,
) -> None:
    grant = Grant(
        effect=Effect.BLOCK if block else Effect.ALLOW,
        role=AccessRole.parse(role),
        basis=basis,
        kind=kind,
        chat_id=chat or None,
        scope_id=server or None,
        account=account or None,
        **parse_grantee(who, known_platforms()),
    )

    if describe_grantee(grant) == EVERYBODY and not block and grant.role >= AccessRole.ADMIN:
        confirm(f"Give access to {describe_grant(grant)}?", f"palaver grants add {who} --role {role}", yes=yes)
    now, by = shared_options.now(), OPERATOR.name
    configured = load().settings().grants

    async def add(opened: Store) -> tuple[int, list[Credential]]:
        added = grants.add(grant, now, by=by, force=force)
        return await opened.transact(end_lost_keys(added, configured, now, by=by))

    number, ended = ask(store, add, make=True)
    done = f"Grant {number}: {describe_grant(grant)}.{ended_text(ended)}"
    print_result({"number": number, **grant.to_json(), "ended": _keys(ended)}, done, as_json=json)


@app.command("remove", help=f"Remove a grant.\n\n{EXAMPLES['remove']}")
def remove_grant(
    number: Annotated[int, typer.Argument(min=1, help="Its number in the list.")],
    *,
    force: Force = False,
    store: StoreOption = None,
    json: Json = False,
) -> None:
    now, by = shared_options.now(), OPERATOR.name
    configured = load().settings().grants

    async def remove(opened: Store) -> tuple[Grant | None, list[Credential]]:
        removed = grants.remove(number, now, by=by, force=force)
        return await opened.transact(end_lost_keys(removed, configured, now, by=by))

    grant, ended = ask(store, remove)
    if grant is None:
        raise BadArgument(
            "There is no grant number",
            found=str(number),
            allowed=f"a number from {EXAMPLES['list']}",
            example=EXAMPLES["list"],
        )
    done = f"Removed grant {number}: {describe_grant(grant)}.{ended_text(ended)}"
    print_result({"removed": number, **grant.to_json(), "ended": _keys(ended)}, done, as_json=json)


def _keys(ended: Sequence[Credential]) -> list[dict[str, object]]:
    return [pick(key, "kind number name identity") for key in ended]


app.command("explain", help=f"Show whether somebody has access somewhere, and why.\n\n{EXAMPLES['explain']}")(
    explain_access
)


@app.command("log", help=f"Show who changed access and when, newest last.\n\n{EXAMPLES['log']}")
def show_log(*, limit: Limit = 50, store: StoreOption = None, json: Json = False) -> None:
    changes = ask(store, lambda opened: opened.read(grants.list_changes(limit)), [], nothing="Nothing has changed yet.")
    now = shared_options.now()
    rows = [
        (ago(change.at, now), change.by, _DID.get(change.kind, change.kind.value), _change_text(change))
        for change in changes
    ]
    fields = {"changes": [asdict(change) for change in changes]}
    print_found(fields, ("when", "who", "did", "what"), rows, as_json=json)
    if changes and not json:
        print_note("Grants in the configuration file are not in this log.")


_DID = {
    ChangeKind.GRANTED: "granted",
    ChangeKind.REVOKED: "revoked",
    ChangeKind.ASKED: "asked for access",
    ChangeKind.APPROVED: "approved",
    ChangeKind.DENIED: "denied",
    ChangeKind.WRONG_CODE: "entered a wrong code",
    ChangeKind.READ_ALL: "read all conversations",
    ChangeKind.KEY_ENDED: "ended a login or token",
    ChangeKind.MOVED: "moved a chat to another id",
}


def _change_text(change: Change) -> str:
    said = dict(change.details)
    before = f" (before: {said.pop('before')})" if "before" in said else ""
    if change.kind in {ChangeKind.GRANTED, ChangeKind.REVOKED}:
        return ", ".join(f"{name} {value}" for name, value in said.items()) + before
    if other := said.get("with") or said.get("from"):
        return f"{change.identity} and {other}"
    if change.kind is ChangeKind.READ_ALL:
        return " ".join(said.values())
    return " as ".join(filter(None, (change.identity if change.identity != change.by else "", said.get("role", ""))))
