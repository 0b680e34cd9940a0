"""`palaver relay`: let gateways join this connector, or join a connector with this gateway."""

import asyncio
from datetime import timedelta
from pathlib import Path
from typing import Annotated

import typer

from palaver.cli import shared_options
from palaver.cli.output import print_found, print_note, print_result
from palaver.cli.shared_options import Json, StoreOption, ask
from palaver.cli.up import configuration
from palaver.commands.formatting import ago
from palaver.config.paths import configuration_files
from palaver.config.writer import has_value, replace_file, replace_value
from palaver.model.errors import BadArgument
from palaver.model.source import encode_id
from palaver.protocols.relay import RELAY_OPTION, Enrolment, check_relay_url, digest, new_secret, read_enrolment
from palaver.store.people import api_tokens
from palaver.store.people.api_tokens import Credential, CredentialKind
from palaver.store.store import Store

EXAMPLES = {
    "invite": "palaver relay invite acme",
    "tenants": "palaver relay tenants",
    "revoke": "palaver relay revoke acme",
    "join": "palaver relay join wss://relay.example.org CODE",
    "rotate": "palaver relay rotate",
}
_CODE_LIFETIME = timedelta(hours=1)

app = typer.Typer(help="Serve gateways that nobody can reach, or be served by a connector.", rich_markup_mode=None)


# On the connector


@app.command("invite", help=f"Make a code with which one gateway can join, within an hour.\n\n{EXAMPLES['invite']}")
def invite(
    tenant: Annotated[str, typer.Argument(help="A name from relay.tenants in the configuration.")],
    *,
    store: StoreOption = None,
    json: Json = False,
) -> None:
    known = sorted(configuration(store).relay.tenants)
    if tenant not in known:
        raise BadArgument(
            "There is no tenant",
            found=tenant,
            allowed=", ".join(known) or "none yet",
            fix="Add it to relay.tenants in the configuration",
            example="relay: {tenants: {acme: {serves: [{platform: telegram}]}}}",
        )
    code, now = new_secret(), shared_options.now()
    add = api_tokens.add(
        digest(code),
        CredentialKind.RELAY_CODE,
        now,
        name=tenant,
        rights=(),
        profile=tenant,
        expires=now + _CODE_LIFETIME,
    )
    ask(store, lambda opened: opened.transact(add), make=True)
    print_result({"tenant": tenant, "code": code}, code, as_json=json)
    if not json:
        print_note("It works once, within an hour. On the other machine: palaver relay join wss://YOUR-ADDRESS CODE")


@app.command("tenants", help=f"List tenants and what waits for them.\n\n{EXAMPLES['tenants']}")
def tenants(*, store: StoreOption = None, json: Json = False) -> None:
    names, now = sorted(configuration(store).relay.tenants), shared_options.now()

    async def load(opened: Store) -> list[tuple[str, Credential | None, int]]:
        keys = await opened.read(api_tokens.list_valid(CredentialKind.RELAY, now))
        newest = {key.profile: key for key in keys}
        return [(name, newest.get(name), await opened.read(opened.relayed.count_waiting(name))) for name in names]

    found = ask(store, load, [], nothing="This gateway has no tenants. Add them to relay.tenants in the configuration.")
    fields = [{"tenant": name, "joined": key and key.created, "waiting": waiting} for name, key, waiting in found]
    rows = [(name, ago(key.created, now) if key else "no", str(waiting)) for name, key, waiting in found]
    print_found({"tenants": fields}, ("tenant", "joined", "waiting"), rows, as_json=json)


@app.command("revoke", help=f"Revoke the keys and codes of a tenant.\n\n{EXAMPLES['revoke']}")
def revoke(
    tenant: Annotated[str, typer.Argument(help="Its name.")], *, store: StoreOption = None, json: Json = False
) -> None:
    count = ask(store, lambda opened: opened.transact(api_tokens.revoke_relay(tenant)))
    if not count:
        raise BadArgument(
            "No gateway has joined as", found=tenant, allowed="a name from palaver relay tenants", example="acme"
        )
    done = f"Revoked {tenant}: its gateway cannot connect any more. What waits for it stays until another one joins."
    print_result({"revoked": tenant}, done, as_json=json)


# On the gateway


@app.command("join", help=f"Join a connector: its accounts become yours.\n\n{EXAMPLES['join']}")
def join_connector(
    url: Annotated[str, typer.Argument(help="The connector's address.", callback=check_relay_url)],
    code: Annotated[str, typer.Argument(help="The code from `palaver relay invite`.")],
    *,
    json: Json = False,
) -> None:
    from palaver.platforms.relayed.adapter import join  # noqa: PLC0415 - an extra

    enrolment = asyncio.run(join(url, code, new_secret()))
    file = configuration_files(Path.cwd()).user
    kept = file.with_name(f"relay-{encode_id(enrolment.tenant)}.json")
    _save(kept, enrolment)
    text = file.read_text() if file.exists() else ""
    added, there = list[str](), list[str]()
    for name in sorted(enrolment.accounts):
        platform, _, account = name.partition(":")
        path = ("platforms", platform, "accounts", account)
        if has_value(text, path):
            there.append(name)
        else:
            text = replace_value(text, path, {RELAY_OPTION: str(kept)})
            added.append(name)
    if added:
        replace_file(file, text)
    lines = [
        f"Joined {url} as {enrolment.tenant}.",
        f"The key is in {kept}, which only you can read.",
        *([f"Added {', '.join(added)} to {file}."] if added else []),
        *([f"{', '.join(there)} stands in {file} already and stays as it is."] if there else []),
        "Next: run palaver up, or restart the gateway if it is running.",
    ]
    fields = {"tenant": enrolment.tenant, "file": str(kept), "added": added, "present": there}
    print_result(fields, *lines, as_json=json)


@app.command("rotate", help=f"Change the key of this gateway, while it runs.\n\n{EXAMPLES['rotate']}")
def rotate(
    file: Annotated[str, typer.Argument(help="The file that `palaver relay join` wrote. Default: the only one.")] = "",
    *,
    json: Json = False,
) -> None:
    from palaver.platforms.relayed.adapter import offer_key, open_line  # noqa: PLC0415 - an extra

    kept = Path(file) if file else _only_file()
    before = read_enrolment(kept)
    after = before.model_copy(update={"keys": (new_secret(), *before.keys[-1:])})
    # Keep both until the connector has seen the new one: whichever it accepts works.
    _save(kept, after)

    async def change() -> None:
        await offer_key(before, after.keys[0])
        line, _ = await open_line(after.model_copy(update={"keys": after.keys[:1]}), "")
        await line.close()

    asyncio.run(change())
    _save(kept, after.model_copy(update={"keys": after.keys[:1]}))
    print_result({"file": str(kept)}, f"Changed the key in {kept}. The old one no longer works.", as_json=json)


def _save(file: Path, enrolment: Enrolment) -> None:
    replace_file(file, f"{enrolment.model_dump_json(indent=2)}\n", private=True)


def _only_file() -> Path:
    folder = configuration_files(Path.cwd()).user.parent
    found = sorted(folder.glob("relay-*.json"))
    if not found:
        problem = "This gateway has joined no connector: there is no {found}"
        wanted = str(folder / "relay-*.json")
        raise BadArgument(problem, found=wanted, allowed="palaver relay join first", example=EXAMPLES["join"])
    if len(found) > 1:
        problem, files = f"This gateway has joined {len(found)} connectors. Name one.", ", ".join(map(str, found))
        raise BadArgument(problem, found="", allowed=files, example=f"palaver relay rotate {found[0]}")
    return found[0]
