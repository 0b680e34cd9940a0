"""Commands about people: accounts, links, and deleting everything about a person."""

import asyncio
import secrets
from collections.abc import Iterable, Mapping
from contextlib import suppress

from palaver.commands.formatting import session_phrase
from palaver.commands.registry import CommandGroup, direct_chat_only
from palaver.db.transaction import Statements, Transaction, transaction
from palaver.engine.commands import CommandContext
from palaver.model.access import AccessRole
from palaver.model.command import YES, Arg, ArgKind, Invocation, as_said
from palaver.model.errors import BadArgument, NotFound
from palaver.model.key import DmScope
from palaver.model.people import OFFER_LIFETIME, code_hash, make_code, parse_code
from palaver.model.session import Session
from palaver.model.source import DM, Source, named_identity, readable_identity
from palaver.model.text import counted, listed
from palaver.store.people.links import Unlinked
from palaver.store.people.people import Identity, Offer, Party, Person
from palaver.store.queue.cause import CauseKind, SendCause
from palaver.store.store import Store

commands = CommandGroup("people")

_NOT_LINKED = "This account is not linked. Send /link for a code to enter from your other account."


@commands.add(
    "unlink",
    "Undo the last link between your accounts, or unlink one account. Each returns to its own conversation",
    "/unlink telegram:7",
    Arg(name="account", kind=ArgKind.REST),
)
@transaction
def unlink(store: Store, invocation: Invocation, context: CommandContext) -> Statements[str]:
    require_direct_chat(invocation, context)
    mine, by = context.principal.identities, context.principal.name
    if len(mine) == 1:
        return _NOT_LINKED
    account = invocation.words.get("account", "").strip()
    accounts = {readable_identity(each): each for each in sorted(mine)}
    if account and account not in mine and account not in accounts:
        example = f"/unlink {readable_identity(by)}"
        raise BadArgument("You have no account", found=account, allowed=listed(accounts), example=example)
    addresses = yield from store.people.direct_addresses(mine)
    unlink = store.links.unlink if account else store.links.unlink_last
    unlinked = yield from unlink(accounts.get(account, account) or by, context.now, by=by)
    if unlinked.is_busy:
        return "Stopping the answer in the conversation you share. Send /unlink again when it has stopped."
    context.mentioned.extend(unlinked.common)
    yield from _notify_unlinked(store, context, unlinked, addresses)
    return _unlinked(unlinked, by)


@commands.add("whoami", "Show your accounts, your role and this conversation", "/whoami", role=AccessRole.GUEST)
@transaction
def whoami(store: Store, _invocation: Invocation, context: CommandContext) -> Statements[str]:
    person = None
    with suppress(NotFound):
        person = yield from store.people.find_person(context.principal.name, context.principal)
    seen = yield from store.turn_control.get_status(context.received.key, context.principal)
    lines = [_describe_caller(context)]
    if person and context.received.inbound.source.chat_kind == DM:
        lines += _describe_person(person)
    if seen.session:
        lines.append(f"This is {session_phrase(seen.session)}.")
    return "\n".join(lines)


def _notify_unlinked(
    store: Store, context: CommandContext, unlinked: Unlinked, addresses: Mapping[str, Source]
) -> Statements[None]:
    by = context.principal.name
    for identity, address in addresses.items():
        if not any({by, identity} <= person for person in unlinked.people):
            text = f"{readable_identity(by)} unlinked your accounts. {_unlinked(unlinked, identity)}"
            yield from store.outbox.enqueue(
                context.routes.notice(address, text),
                SendCause(CauseKind.COMMAND, context.received.number, identity),
                context.now,
            )


def _unlinked(unlinked: Unlinked, reader: str) -> str:
    people = sorted(", ".join(sorted(map(readable_identity, identities))) for identities in unlinked.people)
    lines = ["These are different people now:", *people]
    if unlinked.common:
        # By id alone: not everybody who shared it took part, and a title says what it is about.
        names = ", ".join(f"/resume {session.id}" for session in unlinked.common)
        lines.append(f"What you shared has ended, and everybody who took part can still read it: {names}.")
    is_at_home = reader in unlinked.at_home
    lines.append(
        "You are back in your own conversation." if is_at_home else "Your next message starts a new conversation."
    )
    return "\n".join(lines)


def require_direct_chat(invocation: Invocation, context: CommandContext) -> None:
    """Refuse in a chat where others would read the account names, or where somebody has talked."""
    source = context.received.inbound.source
    if source.chat_kind != DM or source.participant is None:
        raise direct_chat_only(f"/{invocation.command.name}", source.chat_kind)


def _describe_caller(context: CommandContext) -> str:
    role = (context.received.role or AccessRole.GUEST).text
    called = as_said(named_identity(context.principal.name, context.received.inbound.labels.user))
    return f"You are {called} here, with the {role} role."


def _describe_person(person: Person) -> list[str]:
    is_linked = len(person.identities) > 1
    accounts = f"Your accounts: {format_identities(person.identities)}." if is_linked else _NOT_LINKED
    return [accounts, f"Your person id is {person.id}."]


def format_identities(identities: Iterable[Identity]) -> str:
    return ", ".join(as_said(named_identity(each.identity, each.name)) for each in identities)


_SALT = "link"
_CODE_ENTROPY_BYTES = 16


@commands.add(
    "link",
    "Link this account to yours on another platform, with a code to enter there",
    "/link K7QM3XPR",
    Arg(name="code", kind=ArgKind.REST),
)
async def link(store: Store, invocation: Invocation, context: CommandContext) -> Transaction[str]:
    require_direct_chat(invocation, context)
    said = invocation.words.get("code", "")
    match said.lower():
        case "yes":
            return _agree(store, context)
        case "no":
            return _withdraw(store, context)
        case "":
            code = make_code(secrets.token_bytes(_CODE_ENTROPY_BYTES))
            return _offer(store, context, code, await asyncio.to_thread(code_hash, code, _SALT))
        case _:
            return _enter_code(store, context, await asyncio.to_thread(code_hash, parse_code(said), _SALT))


@transaction
def _offer(store: Store, context: CommandContext, code: str, hashed: str) -> Statements[str]:
    inbound = context.received.inbound
    yield from store.links.offer(inbound.source, inbound.labels.user, hashed, context.now)
    yield from store.pairing.wipe_after_send(SendCause(CauseKind.COMMAND, context.received.number))
    minutes = int(OFFER_LIFETIME.total_seconds() // 60)
    return (
        f"Your code is {code}. Send /link {code} from your other account within {minutes} minutes.\n"
        "Keep it to yourself: a linked account can read your conversations."
    )


@transaction
def _enter_code(store: Store, context: CommandContext, hashed: str) -> Statements[str]:
    inbound = context.received.inbound
    offer = yield from store.links.enter_code(inbound.source, inbound.labels.user, hashed, context.now)
    if offer is None:
        return "That code is wrong or expired. Send /link from the other account for a new one."
    yield from _notify_other(store, context, offer, f"Your code was entered. {_question(offer.theirs, offer.mine)}")
    return _question(offer.mine, offer.theirs)


@transaction
def _agree(store: Store, context: CommandContext) -> Statements[str]:
    offer = yield from store.links.agree(context.principal.name, context.now)
    if offer is None:
        return "There is nothing to confirm. Send /link for a code to enter from your other account."
    if offer.changed:
        yield from _notify_other(store, context, offer, f"Please answer again: {_question(offer.theirs, offer.mine)}")
        return f"The other account has changed since you were asked. {_question(offer.mine, offer.theirs)}"
    if offer.linked:
        session = yield from _continue_last(store, context, offer)
        yield from _notify_other(store, context, offer, _describe_link(offer.mine, session))
        return _describe_link(offer.theirs, session)
    return "You agreed. The accounts are linked when the other one sends /link yes too."


def _continue_last(store: Store, context: CommandContext, offer: Offer) -> Statements[Session | None]:
    """Go on with the conversation used last, if both chats share one per person."""
    addresses = (offer.mine.address, offer.theirs.address)
    profiles = {address.profile for address in addresses}
    if len(profiles) > 1 or any(context.scope_of(each).dm is not DmScope.PER_PERSON for each in addresses):
        return None
    session = yield from store.links.continue_last(offer.mine.identity, profiles.pop(), context.now)
    context.mentioned.extend([session] if session else [])
    return session


@transaction
def _withdraw(store: Store, context: CommandContext) -> Statements[str]:
    offer = yield from store.links.withdraw(context.principal.name, context.now)
    if offer is None:
        return "There is nothing to refuse, and you have no valid code. Send /link for a new one."
    refused = f"{readable_identity(offer.mine.identity)} said no: nothing was linked."
    yield from _notify_other(store, context, offer, refused)
    return "Nothing was linked. The code no longer works."


def _notify_other(store: Store, context: CommandContext, offer: Offer, text: str) -> Statements[None]:
    outbound = context.routes.notice(offer.theirs.address, text)
    yield from store.outbox.enqueue(
        outbound, SendCause(CauseKind.COMMAND, context.received.number, "other"), context.now
    )


def _question(mine: Party, theirs: Party) -> str:
    return (
        f"This would make this account, {readable_identity(mine.identity)}, one person with "
        f"{format_identities(theirs.identities)}: each could read and continue the other's conversations. "
        "People choose the names in quotes themselves; they prove nothing.\n"
        "Send /link yes to agree or /link no to refuse. The other account must agree too."
    )


def _describe_link(theirs: Party, session: Session | None) -> str:
    goes_on = f" Both chats continue {session_phrase(session)}, the conversation used last." if session else ""
    return (
        f"This account and {format_identities(theirs.identities)} are one person now.{goes_on} "
        "/whoami lists your accounts, /unlink undoes the link."
    )


@transaction
def preview(store: Store, invocation: Invocation, context: CommandContext) -> Statements[str]:
    require_direct_chat(invocation, context)
    own, shared = yield from store.erasures.count_sessions(context.principal.name)
    accounts = ", ".join(sorted(map(readable_identity, context.principal.identities)))
    parts = [f"{counted(own, 'conversation')} that nobody else joined"] if own else []
    if shared:
        parts.append(f"what you said in {counted(shared, 'conversation')} with others and the answers to that")
    deleted = ", ".join([*parts, "your links and your access"])
    return (
        f"This permanently deletes everything about {accounts}: {deleted}. "
        "What others said stays, and so does access that the configuration file gives you. You cannot undo this."
    )


@commands.add(
    "forget", "Permanently delete everything stored about you", "/forget", YES, role=AccessRole.GUEST, preview=preview
)
@transaction
def forget(store: Store, invocation: Invocation, context: CommandContext) -> Statements[str]:
    require_direct_chat(invocation, context)
    command = str(context.received.number)
    yield from store.erasures.request(context.principal.name, context.now, by="the person", answer=command)
    return (
        "Everything stored about you is being deleted, including this conversation and what you send in the next "
        "moments. This is the last message about it."
    )
