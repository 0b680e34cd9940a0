"""What `palaver explain` is asked about: a message, a session, or a source described by hand."""

import socket
import tempfile
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Annotated, TypeVar

import typer

from palaver.cli import shared_options
from palaver.cli.output import print_note
from palaver.cli.shared_options import OPERATOR, ask, find, store_url, terminal_source
from palaver.commands.builtin import builtin_commands
from palaver.commands.plugins import with_plugins
from palaver.config.loader import load
from palaver.config.model import Config
from palaver.engine.explain import Explanation, explain
from palaver.engine.settings import Settings
from palaver.model.access import possible_trust
from palaver.model.errors import BadArgument, NotFound, PalaverError, StoreError, UnknownPlatform
from palaver.model.key import ProfileRule, choose_profile
from palaver.model.platform import Platform
from palaver.model.source import DM, MAIN, STANDARD_KINDS, Source, Trust, account_text, decode_id
from palaver.model.turn import Inbound
from palaver.model.value import value
from palaver.platforms.local.adapter import LOCAL
from palaver.platforms.plugins import BUILT_IN, PLATFORMS, known_platforms, load_factory
from palaver.store.opening import sqlite_path
from palaver.store.status.trace import InboundTrace, TurnTrace, find_traces
from palaver.store.store import Store

T = TypeVar("T")

Message = Annotated[
    str, typer.Argument(metavar="[MESSAGE]", help="A message (in:42 or its id on the platform) or a session.")
]
PlatformName = Annotated[str, typer.Option("--platform", help="telegram, discord, …")]
Kind = Annotated[str, typer.Option("--kind", help="dm, group, channel or thread.")]
Chat = Annotated[str, typer.Option("--chat", help="Chat id; empty means none.")]
Thread = Annotated[str, typer.Option("--thread", help="Thread id.")]
Parent = Annotated[str, typer.Option("--parent", help="The chat that a thread belongs to.")]
User = Annotated[str, typer.Option("--user", help="User id.")]
UserAlt = Annotated[str, typer.Option("--user-alt", help="Stable second user id (Signal UUID, Feishu union id).")]
Server = Annotated[str, typer.Option("--server", help="Guild, workspace or server id.")]
Account = Annotated[str, typer.Option("--account", help="Your bot account. Default: the first one configured.")]

_EXAMPLE = "palaver explain key --platform telegram --kind group --chat -100 --user 7"


@value
class Subject:
    inbound: Inbound
    received: InboundTrace | None = None
    """The message as it was accepted, if it was one."""
    turn: TurnTrace | None = None


@value
class Result:
    config: Config
    subject: Subject
    explanation: Explanation


@value
class DescribedSource:
    """A source as options describe it; an empty text means none."""

    platform: str
    kind: str
    chat: str
    thread: str
    parent: str
    user: str = ""
    user_alt: str = ""
    server: str
    account: str
    profile: str = MAIN

    def source(self) -> Source:
        """Raises BadArgument or UnknownPlatform where there can be no such source."""
        known = known_platforms()
        name = self.platform.strip().lower()
        if not name:
            raise BadArgument(
                "Name a message or a session, or describe one with --platform, --kind, --chat and --user.",
                found="",
                allowed="a message, a session, or a platform",
                fix="Use in:42, a session, or options",
                example=_EXAMPLE,
            )
        if name not in known:
            raise UnknownPlatform(self.platform, known, _EXAMPLE)
        kinds = (*STANDARD_KINDS, *known[name].extra_kinds)
        if self.kind not in kinds:
            raise BadArgument("--kind cannot be", found=self.kind, allowed=", ".join(kinds), example=_EXAMPLE)
        if not self.chat and self.kind != DM:
            raise BadArgument(
                f"A {self.kind} needs a chat id: --chat cannot be",
                found=self.chat,
                allowed="any text",
                example=_EXAMPLE,
            )
        return Source(
            platform=name,
            chat_kind=self.kind,
            chat_id=known[name].canonical_chat(self.chat) if self.kind == DM else self.chat,
            thread_id=self.thread,
            parent_chat_id=self.parent,
            user_id=self.user and known[name].canonical_user(self.user),
            user_id_alt=self.user_alt,
            scope_id=self.server,
            account=self.account,
            profile=self.profile,
        )


def explained(
    store: str | None,
    name: str,
    by_hand: Callable[[], Source],
    *,
    text: str = "",
    mention: bool = False,
    trust: Trust | None = None,
    change: Callable[[Settings], Settings] = lambda settings: settings,
    now: datetime | None = None,
) -> Result:
    """Explain a named message or session, or else a source described by hand."""
    config = load(Path.cwd())
    present = now or shared_options.now()

    async def work(opened: Store) -> Result:
        if name:
            subject = await find_subject(opened, name, config.settings().profiles)
            accounts = account_platforms(config)
        else:
            source, accounts = _with_account(_as_said(by_hand(), config), account_platforms(config))
            subject = Subject(inbound=Inbound(source=source, text=text or "…", at=present, mentions_us=mention))
        table = with_plugins(builtin_commands(opened), opened).table
        explanation = await opened.read(
            explain(
                subject.inbound,
                _trust_of(subject) or trust or Trust(),
                present,
                settings=change(config.settings()),
                accounts=accounts,
                commands=table,
            )
        )
        return Result(config=config, subject=subject, explanation=explanation)

    return with_any_store(store, work, required=bool(name))


def _trust_of(subject: Subject) -> Trust | None:
    """Return what the gateway knows now about the sender of a stored message: on which basis it was admitted."""
    basis = subject.received and subject.received.basis
    return next(iter(possible_trust(basis))) if basis else None


def with_any_store(store: str | None, work: Callable[[Store], Awaitable[T]], *, required: bool) -> T:
    """Use an empty store if there is none, and say so if there is one that cannot be read."""
    file = sqlite_path(store_url(store))
    if required or file is None or file.exists():
        try:
            return ask(store, work)
        except StoreError as error:
            if required:
                raise
            print_note(f"The store cannot be read, so this is the result without it: {error}.")
    with tempfile.TemporaryDirectory() as folder:
        return ask(str(Path(folder) / "empty.db"), work, make=True)


def _as_said(source: Source, config: Config) -> Source:
    """Return what somebody describes; a terminal chat as `palaver chat` opens it."""
    if source.platform != "terminal" or not source.chat_id:
        return source
    profile, _, chat = source.chat_id.rpartition("/")
    opened = terminal_source(chat, config.store, config.settings().profiles, profile or source.profile)
    return replace(source, chat_id=opened.chat_id, profile=opened.profile)


async def find_subject(store: Store, name: str, profiles: tuple[ProfileRule, ...]) -> Subject:
    try:
        traces = await store.read(find_traces(name, OPERATOR, limit=1))
    except NotFound as error:
        error.add_note("Use in:42, a platform's message id, or a session from palaver sessions list")
        raise
    for trace in reversed(traces):
        named = store.epochs.find(name.strip(), bare=True)
        for received in reversed(trace.messages):
            if received.inbound and (named is None or received.number == named[1]):
                return Subject(inbound=_as_it_came(received.inbound, profiles), received=received, turn=trace.turn)
    session = await find(store, name)
    inbound = Inbound(source=session.origin, text="…", at=shared_options.now())
    return Subject(inbound=_as_it_came(inbound, profiles))


def _as_it_came(inbound: Inbound, profiles: tuple[ProfileRule, ...]) -> Inbound:
    """Return a stored message as the platform sent it. What was stored and not overheard was for the agent."""
    # The stored source has the profile that the rules chose. Only our own platforms let a sender ask for another.
    source, plain = inbound.source, replace(inbound.source, profile=MAIN)
    if source.platform not in BUILT_IN or choose_profile(plain, profiles) == source.profile:
        source = plain
    text = inbound.text or ("" if inbound.files else "…")
    return replace(inbound, source=source, text=text, mentions_us=not inbound.observed, revision=None)


def account_platforms(config: Config) -> dict[str, Platform]:
    """Return the platform of every account that a gateway with this configuration serves."""
    machine = None if sqlite_path(config.store) else socket.gethostname()
    own = {account_text(name, machine if name == "terminal" else None): PLATFORMS[name] for name in BUILT_IN}
    own[account_text(LOCAL.name, None)] = LOCAL
    return own | {account_text(name, account): _platform(name) for name, account, _ in config.accounts}


def _platform(name: str) -> Platform:
    if name not in PLATFORMS:
        with suppress(PalaverError):
            return load_factory(name).platform
    return known_platforms().get(name) or Platform(name=name, title=name)


def _with_account(source: Source, accounts: Mapping[str, Platform]) -> tuple[Source, Mapping[str, Platform]]:
    """Return the source at one of our accounts; note if there is no such account."""
    name = account_text(source.platform, source.account)
    if name in accounts:
        return source, accounts
    prefix = f"{source.platform}:"
    served = [decode_id(each.removeprefix(prefix)) for each in accounts if each.startswith(prefix)]
    if served and source.account is None:
        if len(served) > 1:
            print_note(f"This is about account {served[0]}. Use --account for {', '.join(served[1:])}.")
        return replace(source, account=served[0]), accounts
    print_note(f"No account {name.removesuffix(':')} is configured; this is what would happen if it were.")
    return source, {**accounts, name: _platform(source.platform)}
