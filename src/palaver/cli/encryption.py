"""`palaver encryption`: encrypt what is stored, change keys, and open what is encrypted."""

import asyncio
import shutil
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from palaver.agents.plugins import import_extra
from palaver.cli.export import open_output, open_sealed, refuse_existing
from palaver.cli.output import confirm, print_facts, print_json, print_line, print_result, progress
from palaver.cli.shared_options import Force, Json, Output, Yes
from palaver.config.loader import load
from palaver.config.model import Config
from palaver.db.cipher import is_plain
from palaver.db.private_files import appearing, make_private_folder
from palaver.gateway.backups import backup_folder
from palaver.gateway.vault import find_lost_keys, keys_file, open_or_create, read_key, refuse_lost_keys
from palaver.model.errors import BadArgument, StoreError
from palaver.model.text import counted
from palaver.settings.gateway import EncryptionConfig
from palaver.store.backup.backups import backups_that_hold
from palaver.store.opening import open_store, sqlite_path
from palaver.store.transfer import without_gateways

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence

    from palaver.store.encryption.vault import DataKey, Vault

EXAMPLES = {
    "key": "palaver encryption key -o ~/.secrets/palaver.key",
    "on": "palaver encryption on",
    "off": "palaver encryption off",
    "rotate": "palaver encryption rotate",
    "renew": "palaver encryption renew",
    "status": "palaver encryption status",
    "open": "palaver encryption open archive.jsonl -o plain.jsonl",
}

app = typer.Typer(rich_markup_mode=None, no_args_is_help=True)
NewKeyFile = Annotated[
    Path | None, typer.Option("--new-key-file", help="The new key. Default: make one and put it in place of the old.")
]
Finish = Annotated[bool, typer.Option("--finish", help="Forget all keys but the configured one.")]


@app.command(
    "key", help=f"Make a key. Keep a copy where the data is not: without it nothing opens.\n\n{EXAMPLES['key']}"
)
def make_key(*, output: Output = "") -> None:
    vault = import_extra("palaver.store.encryption.vault", "Encryption needs", "encryption")
    if not output:
        print_line(vault.new_key())
        return
    path = Path(output).expanduser()
    refuse_existing(path, EXAMPLES["key"], allowed="a new name")
    make_private_folder(path.parent)
    _write_key(path, vault.new_key())
    print_line(f"Your key is in {path}. Keep a copy elsewhere: without it nothing can be opened.")


@app.command("on", help=f"Encrypt a store that is not encrypted. Stop the gateway first.\n\n{EXAMPLES['on']}")
def switch_on(*, json: Json = False) -> None:
    config = load()
    key, file = _required_key(config), keys_file(config)
    from palaver.store.encryption.vault import changing  # noqa: PLC0415 - an extra

    with changing(file):
        vault = open_or_create(config, key)
        vault.refuse_unfinished()
        count = _convert(config, [None], vault.current)
    print_result({"files": count}, _done(config, count, "encrypted"), as_json=json)
    if not json and (old := len(backups_that_hold(backup_folder(config)))):
        print_line(
            f"Backups from before can still be read by anybody: {counted(old, 'backup')} in {backup_folder(config)}."
        )


@app.command("off", help=f"Decrypt the store for good. Stop the gateway first.\n\n{EXAMPLES['off']}")
def switch_off(*, yes: Yes = False, json: Json = False) -> None:
    config = load()
    count, done = 0, "Nothing is encrypted."
    if keys_file(config).exists() or find_lost_keys(config):
        with _changed(config) as vault:
            confirm("Decrypt everything that is stored?", EXAMPLES["off"], yes=yes)
            count = _convert(config, vault.data, None)
            vault.path.unlink()
        done = _done(config, count, "decrypted")
    print_result({"files": count}, f"{done} Now remove encryption from the configuration.", as_json=json)


@app.command(
    "renew", help=f"Encrypt everything anew, with a new data key. Stop the gateway first.\n\n{EXAMPLES['renew']}"
)
def renew(*, json: Json = False) -> None:
    config = load()
    with _changed(config) as vault:
        renewed = vault.add_data_key() if len(vault.data) == 1 else vault
        count = _convert(config, renewed.data[1:], renewed.current)
        renewed.keep_only_current()
    print_result({"files": count}, _done(config, count, "encrypted with a new data key"), as_json=json)


@app.command("rotate", help=f"Change your key, also while a gateway runs.\n\n{EXAMPLES['rotate']}")
def rotate(*, new_key_file: NewKeyFile = None, finish: Finish = False, json: Json = False) -> None:
    config = load()
    with _changed(config) as vault:
        if finish:
            vault.keep_only_key()
            done = "Only the configured key opens the store now."
        elif new_key_file:
            key = _required_key(
                config.model_copy(update={"encryption": EncryptionConfig(key_file=new_key_file.absolute())})
            )
            vault.add_key(key)
            done = "Both keys open the store. Configure the new one, then run: palaver encryption rotate --finish"
        else:
            _replace_key(config, vault)
            done = f"The new key is in {config.encryption.key_file}. Copy it to where you keep the old one."
    print_result({"keys": vault.count_keys()}, done, as_json=json)


@app.command("status", help=f"Say what is encrypted, and how many keys open it.\n\n{EXAMPLES['status']}")
def status(*, json: Json = False) -> None:
    config = load()
    database, files = sqlite_path(config.store), config.data_dir / "files"
    vault = _open(config) if config.encryption.is_on and keys_file(config).exists() else None
    names = [each.name for each in files.glob("??/*")]
    plain = sum(len(name) == _HASH_LENGTH for name in names)
    facts = {
        "encryption": "on" if vault else _state_without_keys(config),
        "keys": vault.count_keys() if vault else 0,
        "database": "on the server" if database is None else _condition(database),
        "encrypted files": len(names) - plain,
        "plain files": plain,
    }
    if json:
        print_json(facts)
    else:
        print_facts([(name, str(fact)) for name, fact in facts.items()])


_HASH_LENGTH = 64


@app.command("open", help=f"Decrypt an export with the configured key.\n\n{EXAMPLES['open']}")
def open_export(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="An encrypted export.")],
    *,
    output: Output = "",
    force: Force = False,
) -> None:
    with file.open("rb") as sealed, open_output(output, force=force, example=EXAMPLES["open"]) as target:
        shutil.copyfileobj(open_sealed(sealed), target)


def _done(config: Config, count: int, how: str) -> str:
    if sqlite_path(config.store) is None:
        return (
            f"The files on this machine are {how}: {count}. The database in PostgreSQL is as before: encrypt its disk."
        )
    return f"Everything is {how}: the database and {counted(count, 'file')}."


def _state_without_keys(config: Config) -> str:
    if find_lost_keys(config):
        return "its keys are missing"
    return "no key is configured" if keys_file(config).exists() else "off"


def _condition(database: Path) -> str:
    if not database.exists():
        return "there is none yet"
    return "not encrypted" if is_plain(database) else "encrypted"


def _required_key(config: Config) -> bytes:
    key = read_key(config)
    if key is None:
        raise StoreError(
            f"no key is configured: make one with {EXAMPLES['key']}, and set encryption.key_file in the configuration"
        )
    return key


def _open(config: Config) -> "Vault":
    from palaver.store.encryption.vault import open_vault  # noqa: PLC0415 - an extra

    return open_vault(keys_file(config), _required_key(config))


@contextmanager
def _changed(config: Config) -> "Generator[Vault]":
    """Open the keys, and keep other commands from changing them."""
    _required_key(config)
    from palaver.store.encryption.vault import changing  # noqa: PLC0415 - an extra

    refuse_lost_keys(config)
    if not keys_file(config).exists():
        raise StoreError(f"nothing is encrypted yet: run {EXAMPLES['on']}")
    with changing(keys_file(config)):
        yield _open(config)


def _convert(config: Config, sources: "Sequence[DataKey | None]", target: "DataKey | None") -> int:
    from palaver.store.encryption.conversion import convert_store  # noqa: PLC0415 - an extra

    database, files = sqlite_path(config.store), config.data_dir / "files"
    with progress("files converted") as show:
        run = partial(convert_store, database and database.resolve(), files, sources, target, progress=show)
        return run() if database else asyncio.run(_run_alone(config.store, run))


async def _run_alone(url: str, run: "Callable[[], int]") -> int:
    """Run it while no gateway uses PostgreSQL: that would seal files with a key that is forgotten then."""
    async with await open_store(url) as store, without_gateways(store.database):
        return await asyncio.to_thread(run)


def _replace_key(config: Config, vault: "Vault") -> None:
    """Both keys open the store until the new one is in its file."""
    from palaver.store.encryption.vault import new_key, parse_key  # noqa: PLC0415 - an extra

    if config.encryption.key_file is None:
        raise BadArgument(
            "The key is not in a file, so you replace it yourself.",
            found="",
            allowed="--new-key-file with the new key",
            example=f"{EXAMPLES['rotate']} --new-key-file new.key",
        )
    text = new_key()
    changed = vault.add_key(parse_key(text))
    _write_key(config.encryption.key_file, text)
    changed.keep_only_key()


def _write_key(path: Path, text: str) -> None:
    with appearing(path) as file:
        file.write(f"{text}\n".encode())
