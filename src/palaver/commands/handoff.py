"""Commands that continue a conversation in another chat, or in several at once."""

from dataclasses import replace

from palaver.commands.formatting import in_quotes, session_phrase
from palaver.commands.registry import CommandGroup, is_admin
from palaver.commands.sessions import drop_pending_question
from palaver.db.transaction import Statements, transaction
from palaver.engine import texts
from palaver.engine.commands import CommandContext
from palaver.model.command import YES, Arg, ArgKind, Invocation, as_said
from palaver.model.errors import BadArgument, NotAllowed
from palaver.model.label import Label
from palaver.model.session import Session
from palaver.model.source import DM, Source, identity_of, named_identity
from palaver.model.text import listed
from palaver.model.turn import outbound_to
from palaver.store.accounts import NamedHome
from palaver.store.people import access_rules
from palaver.store.store import Store

commands = CommandGroup("conversations")


@commands.add(
    "attach",
    "Join a conversation from another chat here, by title or id. /detach leaves it",
    "/attach Holiday plans",
    Arg(name="which", kind=ArgKind.REST, required=True),
    YES,
)
@transaction
def attach(store: Store, invocation: Invocation, context: CommandContext) -> Statements[str]:
    received, now = context.received, context.now
    source, place = received.inbound.source, received.place or received.key
    session = yield from store.sessions.find(invocation.words["which"], context.principal)
    context.mentioned.append(session)
    if context.is_in(session):
        return f"This chat already takes part in {session_phrase(session)}."
    found = yield from store.attach.find_attachable(invocation.words["which"], place, context.principal)
    has_others = yield from store.attach.has_other_speakers(found, context.principal)
    reads_along = source.chat_kind != DM
    if reads_along and has_others and not is_admin(context):
        raise NotAllowed("Opening a conversation between several people to a whole chat", "admin")
    if reads_along and YES.name not in invocation.flags:
        return texts.attach_question(in_quotes(invocation.words["which"]), place_is_shared=place.shared)
    yield from drop_pending_question(store, context)
    farewell = outbound_to(source, texts.PARTED)
    yield from store.attach.attach(place, found, now, by=context.principal.name, farewell=farewell)
    several = found.key.kind != DM or (yield from store.attach.has_several_people(found))
    return texts.attached(
        session_phrase(found), reads_along=reads_along, has_others=several, place_is_shared=place.shared
    )


@commands.add("detach", "Leave the conversation this chat is attached to", "/detach")
@transaction
def detach(store: Store, _invocation: Invocation, context: CommandContext) -> Statements[str]:
    place = context.received.place
    if place is None or not (yield from store.attach.detach(place, context.now)):
        return "This chat is not attached to another conversation."
    return "This chat has its own conversation again."


@commands.add(
    "handoff",
    "Move this conversation to the home channel of another platform. /back brings it back",
    "/handoff telegram",
    Arg(name="platform", required=True),
    YES,
)
@transaction
def hand_off(store: Store, invocation: Invocation, context: CommandContext) -> Statements[str]:
    received, source = context.received, context.received.inbound.source
    if received.place is not None:
        raise BadArgument(
            "You can hand off a conversation only from its own chat.",
            found="an attached chat",
            allowed="its own chat",
            example="/detach",
            fix="Send /detach to leave it to the others.",
        )
    home, name = yield from _home(store, invocation.words["platform"], context)
    if home.address == source.address:
        return "The conversation is already in the home channel of that platform."
    session = yield from store.sessions.open_by_key(received.key)
    if session is None:
        return "There is no conversation to hand off. Send a message to start one."
    yield from _require_own_conversation(store, session, home, context)
    readers = _readers(home, name, context)
    if readers and YES.name not in invocation.flags:
        return texts.handoff_question(home.platform, readers)
    left = yield from drop_pending_question(store, context)
    opening = context.routes.notice(home, texts.handoff_opening(session_phrase(session), source.platform))
    opening = replace(opening, opens=None if home.thread_id else session.title or "Conversation")
    yield from store.handoff.start(session, source, home, opening, context.now, by=context.principal.name)
    return texts.handing_off(home.platform, readers) + left


def _readers(home: Source, name: Label | None, context: CommandContext) -> str:
    """Return who can read a conversation in a home channel besides the sender; nothing if that is their own chat."""
    if home.chat_kind != DM:
        return texts.EVERYBODY_THERE
    identity = identity_of(home)
    if identity in context.principal.identities:
        return ""
    return as_said(named_identity(identity, name)) if identity else texts.EVERYBODY_THERE


def _home(store: Store, platform: str, context: CommandContext) -> Statements[NamedHome]:
    rules = access_rules.load(context.grants)
    homes = yield from store.accounts.list_named_homes(context.received.key.profile, rules)
    known = {home.place.platform: home for home in homes}
    if home := known.get(platform.lower()):
        return home
    served = {each.platform for each in (yield from store.accounts.list_health(context.now)) if each.worker}
    problem, fix = "There is no home channel on", "Send /sethome in the chat you want to use."
    if platform.lower() not in served:
        problem = "This gateway is not connected to {found}"
        fix = "Add an account for it to the configuration, or run palaver setup on the gateway's machine."
    if not is_admin(context):
        fix = f"Ask an admin to {fix[0].lower()}{fix[1:]}"
    allowed = listed(sorted(known)) or "none yet"
    raise BadArgument(problem, found=platform, allowed=allowed, example="/handoff telegram", fix=fix)


def _require_own_conversation(
    store: Store, session: Session, home: Source, context: CommandContext
) -> Statements[None]:
    """Admins can hand off anything; others only their own conversation, to their own direct chat."""
    if is_admin(context):
        return
    yield from store.sessions.get_visible(session.id, context.principal)
    has_others = yield from store.attach.has_other_speakers(session, context.principal)
    if has_others or _readers(home, None, context):
        raise NotAllowed("Handing off what others said, or handing off to a chat that others read,", "admin")
