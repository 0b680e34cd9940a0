"""Commands that let a conversation go on elsewhere, or in several places at once."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from palaver.commands.formatting import called, listed, quoted
from palaver.commands.registry import Performance
from palaver.db.transaction import Statements, transaction
from palaver.engine import texts
from palaver.engine.commands import CommandContext
from palaver.model.access import AccessRole
from palaver.model.command import YES, Arg, ArgKind, Command, Invocation
from palaver.model.errors import BadArgument, NotAllowed
from palaver.model.session import Session, identity_of
from palaver.model.source import DM, Source
from palaver.model.turn import outbound_to
from palaver.store.store import Store

__all__ = [
    "handing",
]

_ATTACH = Command(
    name="attach",
    help="take part from here in a conversation that goes on elsewhere, by its title or id; /detach ends that",
    example="/attach Holiday plans",
    args=(Arg(name="which", kind=ArgKind.REST, required=True), YES),
    group="conversations",
)
_DETACH = Command(
    name="detach",
    help="leave the conversation this place is attached to, for its own",
    example="/detach",
    group="conversations",
)
_HANDOFF = Command(
    name="handoff",
    help="go on with this conversation in the home channel of another platform; /back brings it back",
    example="/handoff telegram",
    args=(Arg(name="platform", required=True),),
    group="conversations",
)


def handing(store: Store) -> list[Performance]:
    return [
        Performance(_ATTACH, partial(_attach, store)),
        Performance(_DETACH, partial(_detach, store)),
        Performance(_HANDOFF, partial(_hand_off, store)),
    ]


@transaction
def _attach(store: Store, invocation: Invocation, spoken: CommandContext) -> Statements[str]:
    received, now = spoken.received, spoken.now
    source, place = received.inbound.source, received.place or received.key
    named = yield from store.sessions.find(invocation.words["which"], spoken.principal)
    spoken.mentioned.append(named)
    if spoken.is_in(named):
        return f"What is said here goes to {called(named)} already."
    found = yield from store.attach.find_attachable(invocation.words["which"], place, spoken.principal)
    has_others = yield from store.attach.has_other_speakers(found, spoken.principal)
    reads_along = source.chat_kind != DM
    if reads_along and has_others and not _is_admin(spoken):
        raise NotAllowed("Opening a conversation of several people to a whole chat", "admin")
    if reads_along and YES.name not in invocation.flags:
        return texts.attach_question(quoted(invocation.words["which"]), place_is_shared=place.shared)
    yield from _leave(store, spoken)
    farewell = outbound_to(source, texts.PARTED)
    yield from store.attach.attach(place, found, now, by=spoken.principal.name, farewell=farewell)
    several = found.key.kind != DM or (yield from store.attach.has_several_people(found))
    return texts.attached(called(found), reads_along=reads_along, has_others=several)


@transaction
def _detach(store: Store, _invocation: Invocation, spoken: CommandContext) -> Statements[str]:
    place = spoken.received.place
    if place is None or not (yield from store.attach.detach(place, spoken.now)):
        return "This place is not attached to another conversation."
    return "This place has its own conversation again; nothing more goes to the other one."


@transaction
def _hand_off(store: Store, invocation: Invocation, spoken: CommandContext) -> Statements[str]:
    received, source = spoken.received, spoken.received.inbound.source
    if received.place is not None:
        raise BadArgument(
            "A conversation is handed off where it is at home, and comes back there, not from",
            found="a place that is attached to it",
            allowed="its own place; /detach leaves it to the others",
            example="/detach",
        )
    home = _home(invocation.words["platform"], (yield from store.accounts.list_homes(received.key.profile)))
    if home.address == source.address:
        return "This is the home channel of that platform: the conversation is there already."
    yield from _leave(store, spoken)
    session = yield from store.sessions.open_by_key(received.key)
    if session is None:
        return "There is no conversation to hand off: whatever you write starts one."
    yield from _refuse_strangers(store, session, home, spoken)
    opening = outbound_to(home, texts.handoff_opening(called(session), source.platform))
    opening = replace(opening, opens=None if home.thread_id else session.title or "Conversation")
    yield from store.handoff.start(session, source, home, opening, spoken.now, by=spoken.principal.name)
    return texts.handing_off(home.platform, reads_along=home.chat_kind != DM)


def _home(platform: str, homes: Sequence[Source]) -> Source:
    known = {home.platform: home for home in homes}
    if platform.lower() not in known:
        raise BadArgument(
            "There is no home channel on",
            found=platform,
            allowed=f"{listed(sorted(known)) or 'none yet'}; an admin says /sethome in the chat that shall be one",
            example=_HANDOFF.example,
        )
    return known[platform.lower()]


def _refuse_strangers(store: Store, session: Session, home: Source, spoken: CommandContext) -> Statements[None]:
    """An admin may; others only with what they alone have said, to a direct chat of their own."""
    if _is_admin(spoken):
        return
    yield from store.sessions.get_visible(session.id, spoken.principal)
    has_others = yield from store.attach.has_other_speakers(session, spoken.principal)
    is_own = home.chat_kind == DM and identity_of(home) in spoken.principal.identities
    if has_others or not is_own:
        raise NotAllowed("Handing off what others have said, or to a chat that others read,", "admin")


def _is_admin(spoken: CommandContext) -> bool:
    return (spoken.received.role or AccessRole.GUEST) >= AccessRole.ADMIN


def _leave(store: Store, spoken: CommandContext) -> Statements[bool]:
    """Whoever goes elsewhere does not answer what was asked here."""
    key, now = spoken.received.key, spoken.now
    return (
        yield from store.turn_control.abandon_parked(key, now, note=texts.LEFT_NOTE, error="left without an answer")
    )
