"""`palaver web`: create login links for browsers and tokens for programs."""

import sys
from datetime import timedelta
from typing import Annotated

import typer

from palaver.cli import shared_options
from palaver.cli.output import pick, print_found, print_note, print_result
from palaver.cli.shared_options import LARGEST_NUMBER, Json, StoreOption, ask
from palaver.cli.up import configuration
from palaver.commands.formatting import ago
from palaver.model.access import normalize_identity
from palaver.model.errors import BadArgument
from palaver.model.text import one_line
from palaver.platforms.plugins import known_platforms
from palaver.store.people import api_tokens
from palaver.store.people.api_tokens import ALL_RIGHTS, Credential, CredentialKind, Right
from palaver.store.store import Store
from palaver.web.tokens import issue_link, issue_token, qr_code

EXAMPLES = {
    "link": "palaver web link",
    "list": "palaver web tokens list",
    "create": "palaver web tokens create backup --scopes read",
    "revoke": "palaver web tokens revoke 3",
}
_LONGEST_NAME = 100

app = typer.Typer(help="Create login links and API tokens.", rich_markup_mode=None)
tokens = typer.Typer(help="List, create and revoke tokens and logins.", rich_markup_mode=None)
app.add_typer(tokens, name="tokens")


def _known_identity(text: str | None) -> str | None:
    return text if text is None else normalize_identity(text, known_platforms())


Identity = Annotated[
    str | None,
    typer.Option(
        "--as",
        metavar="IDENTITY",
        help="Act for this account and see only what it can, for example telegram:7.",
        callback=_known_identity,
    ),
]


@app.command(
    "link", help=f"Create a login link: it works once, within an hour.\n\n{EXAMPLES['link']}\n\n{EXAMPLES['link']} --qr"
)
def link(
    *,
    identity: Identity = None,
    qr: Annotated[bool, typer.Option("--qr", help="Also print it as a QR code, for your phone.")] = False,
    store: StoreOption = None,
    json: Json = False,
) -> None:
    web = configuration(store).web
    made = ask(store, lambda opened: issue_link(opened, web.url, shared_options.now(), identity=identity), make=True)
    if qr and not json:
        qr_code(made).terminal(sys.stdout, compact=True, border=2)
    print_result({"link": made}, made, as_json=json)
    if qr and web.only_here:
        print_note(web.only_here)


@tokens.command("list", help=f"List valid tokens and logins.\n\n{EXAMPLES['list']}")
def list_tokens(*, store: StoreOption = None, json: Json = False) -> None:
    now = shared_options.now()

    async def load(opened: Store) -> list[Credential]:
        kinds = (CredentialKind.TOKEN, CredentialKind.LOGIN)
        return [key for kind in kinds for key in await opened.read(api_tokens.list_valid(kind, now))]

    found = ask(store, load, [], nothing="There are no tokens and nobody is logged in.")
    rows = [
        (
            str(key.number),
            key.kind.value,
            key.name,
            " ".join(sorted(key.rights)),
            key.identity or "owner",
            key.profile or "by rule",
            ago(key.created, now),
            ago(key.last_used, now),
            ago(key.expires, now) if key.expires else "never",
        )
        for key in found
    ]
    titles = ("number", "kind", "name", "scopes", "for", "profile", "made", "last used", "ends")
    print_found({"tokens": [_fields(key) for key in found]}, titles, rows, as_json=json)


@tokens.command("create", help=f"Create a token for a program. It is shown once.\n\n{EXAMPLES['create']}")
def create_token(
    name: Annotated[str, typer.Argument(help="Name the token.")],
    *,
    scopes: Annotated[str, typer.Option(help="What it can do: read, chat, manage.")] = "read,chat,manage",
    identity: Identity = None,
    profile: Annotated[str | None, typer.Option(metavar="NAME", help="Choose the profile that answers.")] = None,
    days: Annotated[int | None, typer.Option(min=1, max=3650, help="Expire after this many days.")] = None,
    store: StoreOption = None,
    json: Json = False,
) -> None:
    rights, called = rights_named(scopes), one_line(name, _LONGEST_NAME)
    known = sorted(configuration(store).profiles)
    if profile is not None and profile not in known:
        fix = f"Use {', '.join(known)}." if known else "The configuration has no profiles."
        raise BadArgument("--profile cannot be", found=profile, allowed=", ".join(known), example="", fix=fix)
    now = shared_options.now()
    expires = now + timedelta(days=days) if days else None
    token, key = ask(
        store,
        lambda opened: issue_token(
            opened, now, name=called, rights=rights, identity=identity, expires=expires, profile=profile
        ),
        make=True,
    )
    print_result({"token": token, **_fields(key)}, token, as_json=json)
    if not json:
        print_note("Store it now: it is not shown again.")


@tokens.command("revoke", help=f"Revoke a token or login.\n\n{EXAMPLES['revoke']}")
def revoke_token(
    number: Annotated[int, typer.Argument(min=1, max=LARGEST_NUMBER, help="Its number in the list.")],
    *,
    store: StoreOption = None,
    json: Json = False,
) -> None:
    gone = ask(store, lambda opened: opened.transact(api_tokens.revoke(number)))
    if gone is None:
        listed = EXAMPLES["list"]
        raise BadArgument(
            "There is no token number", found=str(number), allowed=f"a number from {listed}", example=listed
        )
    done = f"Revoked {gone.kind.value} {gone.number} ({gone.name})."
    print_result({"revoked": _fields(gone)}, done, as_json=json)


def rights_named(scopes: str) -> frozenset[Right]:
    named = {part.strip() for part in scopes.replace(",", " ").split()}
    try:
        rights = frozenset(map(Right, named))
    except ValueError:
        rights = frozenset[Right]()
    if not rights:
        allowed = ", ".join(sorted(ALL_RIGHTS))
        raise BadArgument("--scopes cannot be", found=scopes, allowed=allowed, example="read,chat")
    return rights


def _fields(key: Credential) -> dict[str, object]:
    return pick(key, "number kind name identity profile created last_used expires") | {"scopes": sorted(key.rights)}
