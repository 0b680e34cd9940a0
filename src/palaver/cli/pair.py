"""`palaver pair`: approve or deny strangers who ask for access."""

from typing import Annotated

import typer

from palaver.cli import shared_options
from palaver.cli.output import pick, print_found, print_note, print_result
from palaver.cli.shared_options import OPERATOR, Json, StoreOption, ask
from palaver.commands.formatting import ago
from palaver.config.loader import load
from palaver.engine import texts
from palaver.model.access import AccessRole
from palaver.model.errors import BadArgument
from palaver.model.people import parse_code_or_identity
from palaver.model.source import readable_identity
from palaver.model.text import counted, escape_invisible
from palaver.platforms.plugins import known_platforms
from palaver.store.people import pairing
from palaver.store.people.api_tokens import Credential
from palaver.store.people.grants import Stranger
from palaver.store.people.key_rights import end_lost_keys
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
        nothing="Nobody is asking for access.",
    )
    now = shared_options.now()
    rows = [
        (
            readable_identity(each.identity),
            _name(each),
            each.source.account or each.source.platform,
            ago(each.asked, now),
            ago(each.expires, now),
            str(each.kept),
        )
        for each in waiting
    ]
    titles = ("who", "called", "at", "asked", "code expires", "messages")
    print_found({"waiting": [_fields(each) for each in waiting]}, titles, rows, as_json=json)


_Who = Annotated[str, typer.Argument(help="Their code or account, for example telegram:7.")]


@app.command("approve", help=f"Approve a stranger and answer their messages.\n\n{EXAMPLES['approve']}")
def approve_stranger(
    who: _Who,
    *,
    role: Annotated[str, typer.Option(help="Role: guest, member, admin or owner.")] = AccessRole.MEMBER.text,
    store: StoreOption = None,
    json: Json = False,
) -> None:
    name, given = parse_code_or_identity(who, known_platforms()), AccessRole.parse(role)

    now, by = shared_options.now(), OPERATOR.name
    scope_of = load().settings().scopes.find
    approve = pairing.approve(name, given, now, by=by, notice=texts.PAIRED, scope_of=scope_of)
    stranger = ask(store, lambda opened: opened.transact(approve))
    if stranger is None:
        raise _nobody(who)
    done = f"Approved {_called(stranger)} as {given.text}, with {counted(stranger.kept, 'message')} waiting."
    print_result({"approved": _fields(stranger), "role": given.text}, done, as_json=json)


@app.command("deny", help=f"Deny a stranger. They can ask again later.\n\n{EXAMPLES['deny']}")
def deny_stranger(
    who: _Who,
    *,
    block: Annotated[bool, typer.Option("--block", help="Block them permanently.")] = False,
    store: StoreOption = None,
    json: Json = False,
) -> None:
    now, name = shared_options.now(), parse_code_or_identity(who, known_platforms())
    configured = load().settings().grants

    async def deny(opened: Store) -> tuple[Stranger | None, list[Credential]]:
        denied = pairing.deny(name, now, by=OPERATOR.name, blocks=block)
        return await opened.transact(end_lost_keys(denied, configured, now, by=OPERATOR.name))

    stranger, _ = ask(store, deny)
    if stranger is None:
        raise _nobody(who)
    done = f"{'Blocked' if block else 'Denied'} {_called(stranger)}."
    print_result({"denied": _fields(stranger), "blocked": block}, done, as_json=json)
    if not block and not json:
        print_note("They can ask again in ten minutes. Use --block to keep them out.")


def _nobody(found: str) -> BadArgument:
    return BadArgument(
        "Nobody is asking for access as",
        found=found,
        allowed="a code from the last hour, or an account",
        example=EXAMPLES["list"],
    )


def _name(stranger: Stranger) -> str:
    return stranger.name.plain() if stranger.name else ""


def _called(stranger: Stranger) -> str:
    name = _name(stranger)
    who = readable_identity(stranger.identity)
    return f"{who} ({escape_invisible(name)})" if name else who


def _fields(stranger: Stranger) -> dict[str, object]:
    name, source = _name(stranger) or None, pick(stranger.source, "platform account chat")
    return {**pick(stranger, "identity asked expires"), "name": name, **source, "messages": stranger.kept}
