"""`palaver pair`: approve or deny strangers who ask for access."""

from typing import Annotated

import typer

from palaver.cli import shared_options
from palaver.cli.output import counted, print_json, print_line, print_note, print_rows
from palaver.cli.shared_options import OPERATOR, Json, StoreOption, ago, ask, iso
from palaver.engine import texts
from palaver.model.access import AccessRole
from palaver.model.errors import BadArgument, InvalidInput
from palaver.model.people import CODE_LENGTH, parse_code
from palaver.model.text import escape_invisible
from palaver.store.people import pairing
from palaver.store.people.grants import Stranger
from palaver.store.store import Store

EXAMPLES = {
    "list": "palaver pair list",
    "approve": "palaver pair approve K7QM3XPR --role member",
    "deny": "palaver pair deny telegram:7 --block",
}

app = typer.Typer(help="Approve or deny strangers who ask for access.", rich_markup_mode=None)


@app.command("list", help=f"List strangers who ask for access. Only they know their codes.\n\n{EXAMPLES['list']}")
def list_strangers(*, store: StoreOption = None, json: Json = False) -> None:
    waiting = ask(
        store,
        lambda opened: opened.read(pairing.list_pending(shared_options.now())),
        [],
        nothing="Nobody waits to be let in.",
    )
    if json:
        print_json({"waiting": [_fields(each) for each in waiting]})
    elif waiting:
        now = shared_options.now()
        print_rows(
            ("who", "called", "asked", "code ends", "messages"),
            [
                (each.identity, _name(each), ago(each.asked, now), ago(each.expires, now), str(each.kept))
                for each in waiting
            ],
        )


@app.command("approve", help=f"Approve the stranger with this code and answer their messages.\n\n{EXAMPLES['approve']}")
def approve_code(
    code: Annotated[str, typer.Argument(help=f"The {CODE_LENGTH} characters of their code.", show_default=False)],
    *,
    role: Annotated[str, typer.Option(help="Role: guest, member, admin or owner.")] = AccessRole.MEMBER.text,
    store: StoreOption = None,
    json: Json = False,
) -> None:
    wanted, given = parse_code(code), AccessRole.parse(role)

    async def approve(opened: Store) -> Stranger | None:
        answer = pairing.approve(
            wanted,
            given,
            shared_options.now(),
            by=OPERATOR.name,
            notice=texts.PAIRED,
        )
        return await opened.transact(answer)

    stranger = ask(store, approve)
    if stranger is None:
        raise _nobody(code)
    if json:
        print_json({"approved": _fields(stranger), "role": given.text})
        return
    print_line(f"{_called(stranger)} is let in as {given.text}; {counted(stranger.kept, 'message')} waited.")


@app.command("deny", help=f"Deny a stranger. They can ask again later.\n\n{EXAMPLES['deny']}")
def deny_stranger(
    who: Annotated[str, typer.Argument(help="Their code or account, for example telegram:7.", show_default=False)],
    *,
    block: Annotated[bool, typer.Option("--block", help="Block them permanently.")] = False,
    store: StoreOption = None,
    json: Json = False,
) -> None:
    async def deny(opened: Store) -> Stranger | None:
        denied = pairing.deny(_code_or_identity(who), shared_options.now(), by=OPERATOR.name, blocks=block)
        return await opened.transact(denied)

    stranger = ask(store, deny)
    if stranger is None:
        raise _nobody(who)
    if json:
        print_json({"denied": _fields(stranger), "blocked": block})
        return
    print_line(f"{_called(stranger)} is turned away{' for good' if block else ''}.")
    if not block:
        print_note("They can ask again in ten minutes. Use --block to keep them out.")


def _code_or_identity(text: str) -> str:
    try:
        return parse_code(text)
    except InvalidInput:
        return text.strip()


def _nobody(found: str) -> BadArgument:
    return BadArgument(
        "Nobody asks for access as",
        found=found,
        allowed="a code from the last hour, or an account",
        example=EXAMPLES["list"],
    )


def _name(stranger: Stranger) -> str:
    return stranger.name.plain() if stranger.name else ""


def _called(stranger: Stranger) -> str:
    name = _name(stranger)
    return f"{stranger.identity} ({escape_invisible(name)})" if name else stranger.identity


def _fields(stranger: Stranger) -> dict[str, object]:
    return {
        "identity": stranger.identity,
        "name": _name(stranger) or None,
        "platform": stranger.source.platform,
        "chat": stranger.source.chat,
        "asked": iso(stranger.asked),
        "expires": iso(stranger.expires),
        "messages": stranger.kept,
    }
