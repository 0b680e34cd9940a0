"""Options, examples and store access that several commands share."""

import asyncio
import os
import socket
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, TypeVar
from zoneinfo import ZoneInfo

import typer

from palaver.cli.output import print_note
from palaver.config.essentials import load_essentials
from palaver.db.cipher import is_plain
from palaver.db.transaction import DatabaseClient, Transaction
from palaver.model.errors import BadArgument, MalformedTime, StoreError
from palaver.model.key import ProfileRule, choose_profile
from palaver.model.local_time import parse_age, parse_past, parse_zone
from palaver.model.session import Principal, Session
from palaver.model.source import MAIN, Source, stored_identity
from palaver.model.text import one_line
from palaver.store.conversations import visibility
from palaver.store.damage.corruption import is_corrupt, recovery_steps
from palaver.store.opening import open_database, open_store, sqlite_path

if TYPE_CHECKING:
    from palaver.config.model import Config
    from palaver.store.encryption.vault import Vault
    from palaver.store.store import Store

EXAMPLES = {
    "list": "palaver sessions list --platform telegram --since 7d",
    "show": 'palaver sessions show "Holiday"',
    "search": "palaver sessions search train tickets",
    "rename": 'palaver sessions rename 01kjmma2g0 "Holiday"',
    "export": "palaver sessions export --all -o archive.jsonl",
    "import": "palaver sessions import archive.jsonl",
    "delete": 'palaver sessions delete "Holiday"',
    "prune": "palaver sessions prune --older-than 90d --dry-run",
    "stats": "palaver sessions stats --by week",
}


def filled(context: typer.Context, param: typer.CallbackParam, value: str) -> str:
    """Refuse an empty value: left out, the option would restrict nothing."""
    source = context.get_parameter_source(str(param.name))
    if not value and source and source.name == "COMMANDLINE":
        fix = "Give it a value, or leave it out."
        raise BadArgument(
            f"{param.opts[0]} cannot be", found=value, allowed="a value", example=f"{param.opts[0]} …", fix=fix
        )
    return value


def _platform(context: typer.Context, param: typer.CallbackParam, value: str) -> str:
    return filled(context, param, value).lower()


def identity(context: typer.Context, param: typer.CallbackParam, name: str) -> str:
    """Check `platform:id`."""
    platform, colon, id_ = filled(context, param, name).strip().partition(":")
    if name and not (platform and colon and id_):
        raise BadArgument("--person cannot be", found=name, allowed="platform:id", example="--person telegram:7")
    return stored_identity(name)


def require_profile(name: str, profiles: Iterable[str]) -> None:
    """Raise BadArgument for a profile that is not configured."""
    known = sorted({MAIN, *profiles})
    if name not in known:
        raise BadArgument("--profile cannot be", found=name, allowed=", ".join(known), example=MAIN)


def terminal_source(chat: str, url: str, rules: tuple[ProfileRule, ...] = (), profile: str = MAIN) -> Source:
    """Return the source of a terminal chat. Its name includes a profile that the rules do not choose by themselves."""
    machine = None if sqlite_path(url) else socket.gethostname()
    source = Source(platform="terminal", account=machine, chat_id=chat, user_id="owner")
    if profile in {MAIN, choose_profile(source, rules)}:
        return source
    return replace(source, chat_id=f"{profile}/{chat}", profile=profile)


STANDARD_STREAM = "-"
"""Names standard input or output in place of a file."""


def _output(name: str) -> str:
    """Take `-` for standard output, as `palaver sessions import -` takes it for standard input."""
    return "" if name == STANDARD_STREAM else name


Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Name = Annotated[str, typer.Argument(metavar="SESSION", help="Session id, start of an id, or title.")]
Names = Annotated[list[str], typer.Argument(metavar="SESSION...", help="Session ids, starts of ids, or exact titles.")]
Limit = Annotated[int, typer.Option("--limit", min=1, max=500, help="Show at most this many.")]
Platform = Annotated[str, typer.Option("--platform", help="Only from this platform.", callback=_platform)]
Profile = Annotated[str, typer.Option("--profile", help="Only from this profile.", callback=filled)]
Person = Annotated[
    str, typer.Option("--person", help="Only with this account, for example telegram:7.", callback=identity)
]
Since = Annotated[str, typer.Option("--since", help="Only after this date, time, or age such as 7d.", callback=filled)]
Until = Annotated[str, typer.Option("--until", help="Only before this date, time or age.", callback=filled)]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]

DryRun = Annotated[bool, typer.Option("--dry-run", help="Only show what would be deleted.")]
Output = Annotated[
    str, typer.Option("--output", "-o", help="Write to this file instead of standard output.", callback=_output)
]
Force = Annotated[bool, typer.Option("--force", help="Overwrite an existing file.")]
After = Annotated[str, typer.Option("--after", help="Continue after this page.")]
ZoneName = Annotated[str, typer.Option("--zone", help="IANA time zone for days. Default: the configured one.")]

OPERATOR = Principal.operator()
LARGEST_NUMBER = 1 << 62
"""Databases take no larger one."""
_MAX_NAME_CHARS = 200

T = TypeVar("T")
Opened = TypeVar("Opened", bound=DatabaseClient)


def help_of(name: str, line: str) -> str:
    return f"{line}\n\n{EXAMPLES[name]}"


def ask(
    option: str | None,
    do: "Callable[[Store], Awaitable[T]]",
    absent: T | None = None,
    *,
    nothing: str = "",
    make: bool = False,
) -> T:
    """Open the store with its search index and run `do`. Reading never creates a file.

    `absent` is the result if there is no store; with that result, the note `nothing` is printed.
    """
    return _ask(option, lambda url, key: open_store(url, key=key), do, absent, nothing=nothing, make=make)


def ask_database(
    option: str | None,
    do: Callable[[DatabaseClient], Awaitable[T]],
    absent: T | None = None,
    *,
    nothing: str = "",
    make: bool = False,
) -> T:
    """Like `ask`, but without the search index: this takes half the time."""

    async def connect(url: str, key: bytes | None) -> DatabaseClient:
        return DatabaseClient(await open_database(url, key=key))

    return _ask(option, connect, do, absent, nothing=nothing, make=make)


def _ask(
    option: str | None,
    connect: Callable[[str, bytes | None], Awaitable[Opened]],
    do: Callable[[Opened], Awaitable[T]],
    absent: T | None,
    *,
    nothing: str,
    make: bool = False,
) -> T:
    url = store_url(option)
    file = sqlite_path(url)
    if make or file is None or file.exists():
        found = asyncio.run(_run(url, connect, do))
        if nothing and found == absent:
            print_note(nothing)
        return found
    why = f"There is no store yet. The first conversation or an import creates {file}"
    if absent is None:
        raise StoreError(why)
    print_note(f"{f'{nothing} ' if nothing else ''}{why}.")
    return absent


async def _run(
    url: str, connect: Callable[[str, bytes | None], Awaitable[Opened]], do: Callable[[Opened], Awaitable[T]]
) -> T:
    try:
        async with await connect(url, database_key(url)) as opened:
            return await do(opened)
    except StoreError as error:
        file = sqlite_path(url)
        if file and is_corrupt(file, error):
            error.add_note(f"To mend it, {recovery_steps(file)}")
        raise


async def find(store: DatabaseClient, name: str) -> Session:
    return await _found(store, name, visibility.find)


async def find_exactly(store: DatabaseClient, name: str) -> Session:
    """Find a session for something that cannot be undone: the title must match exactly."""
    return await _found(store, name, visibility.find_exactly)


async def _found(store: DatabaseClient, name: str, look: Callable[[str, Principal], Transaction[Session]]) -> Session:
    """Clean the name like titles are cleaned, and look it up."""
    return await store.read(look(one_line(name, _MAX_NAME_CHARS), OPERATOR))


StoreOption = Annotated[
    str | None,
    typer.Option(
        "--store",
        metavar="URL",
        help="Database: a path, sqlite:///path or postgresql://… Default: PALAVER_STORE, then the configuration.",
    ),
]


def store_url(option: str | None) -> str:
    if option is not None:
        return option
    if named := os.environ.get("PALAVER_STORE"):
        return named
    return load_essentials().store


def load_config() -> "Config":
    """Load the configuration of this folder, in commands that need more than the store and the time zone."""
    from palaver.config.loader import load  # noqa: PLC0415 - slow to import, and often not needed

    return load()


def vault_of(url: str) -> "Vault | None":
    """Return the keys of a store; None if it is not encrypted, which the file itself says."""
    file = sqlite_path(url)
    if file and is_plain(file):
        return None
    from palaver.gateway.vault import find_vault  # noqa: PLC0415 - slow to import, and often not needed

    return find_vault(load_config().model_copy(update={"store": url}))


def database_key(url: str) -> bytes | None:
    vault = vault_of(url)
    return vault.current.database if vault else None


def now() -> datetime:
    """Return the present; tests replace it."""
    return datetime.now(UTC)


def local_now() -> datetime:
    """Return the present in the configured time zone, for commands that show times in it."""
    return now().astimezone(find_zone())


def find_zone(name: str = "") -> ZoneInfo:
    """Return the time zone of the option, or the configured one."""
    if name:
        return parse_zone(name)
    return load_essentials().timezone


def long_ago(option: str, text: str, example: str) -> datetime:
    """Return the time that is `90d`, `12w` or `36h` ago; a number alone means days."""
    age = parse_age(text)
    with suppress(OverflowError):
        if age is not None:
            return now() - age
    raise BadArgument(f"{option} cannot be", found=text, allowed="30m, 36h, 90d, 12w or 2y", example=example)


def moment(option: str, text: str, example: str, zone_name: str = "") -> datetime | None:
    """Parse a time, a day in the time zone, or an age; return None for empty text."""
    if not text:
        return None
    try:
        return parse_past(text, now(), find_zone(zone_name))
    except MalformedTime as error:
        raise BadArgument(
            f"{option} cannot be",
            found=text,
            allowed="a date, a time (ISO 8601), or an age such as 7d",
            example=example,
        ) from error
