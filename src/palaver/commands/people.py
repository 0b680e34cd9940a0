"""Commands about who somebody is: their accounts, and which of them are one person."""

import asyncio
import secrets
from collections.abc import Iterable, Mapping
from contextlib import suppress

from palaver.commands.formatting import called, counted, listed
from palaver.commands.registry import Performance
from palaver.db.transaction import Statements, Transaction, transaction
from palaver.engine.commands import CommandContext
from palaver.model.access import AccessRole
from palaver.model.codes import code_hash, make_code, parse_code
from palaver.model.command import YES, Arg, ArgKind, Command, Invocation
from palaver.model.errors import BadArgument, NotFound
from palaver.model.links import OFFER_LIFETIME
from palaver.model.scope import DmScope
from palaver.model.session import Session
from palaver.model.source import DM, Source
from palaver.model.turn import outbound_to
from palaver.store.people.links import Unlinked
from palaver.store.people.people import Identity, Offer, Party, Person
from palaver.store.queue.cause import CauseKind, SendCause
from palaver.store.store import Store

__all__ = [
    "about_people",
    "about_privacy",
    "linking",
    "named",
    "refuse_where_others_read",
]

_UNLINK = Command(
    name="unlink",
    help="undo the last link of your accounts, or take one account out; each is back in its own conversation",
    example="/unlink telegram:7",
    args=(Arg(name="account", kind=ArgKind.REST),),
    group="people",
)
_WHOAMI = Command(
    name="whoami",
    help="say who you are here: your accounts, your role, this conversation",
    example="/whoami",
    role=AccessRole.GUEST,
    group="people",
)
_ALONE = "This account is linked with no other; /link gives a code to enter on the other one."


def about_people(store: Store) -> list[Performance]:
    @transaction
    def unlink(invocation: Invocation, spoken: CommandContext) -> Statements[str]:
        refuse_where_others_read(spoken, _UNLINK)
        mine, by = spoken.principal.identities, spoken.principal.name
        if len(mine) == 1:
            return _ALONE
        account = invocation.words.get("account", "").strip()
        if account and account not in mine:
            raise BadArgument(
                "You have no account", found=account, allowed=listed(sorted(mine)), example=f"/unlink {by}"
            )
        addresses = yield from store.links.direct_addresses(mine)
        unlink = store.links.unlink if account else store.links.unlink_last
        unlinked = yield from unlink(account or by, spoken.now, by=by)
        if unlinked.is_busy:
            return "Stopping the answer in the conversation you share. Send that again when it has stopped."
        spoken.mentioned.extend(unlinked.common)
        yield from _tell_others(store, spoken, unlinked, addresses)
        return _unlinked(unlinked)

    @transaction
    def whoami(_invocation: Invocation, spoken: CommandContext) -> Statements[str]:
        person = None
        with suppress(NotFound):
            person = yield from store.people.find_person(spoken.principal.name, spoken.principal)
        seen = yield from store.turn_control.get_status(spoken.received.key, spoken.principal)
        lines = [_here(spoken)]
        if person and spoken.received.inbound.source.chat_kind == DM:
            lines += _known(person)
        if seen.session:
            lines.append(f"This is {called(seen.session)}.")
        return "\n".join(lines)

    return [Performance(_UNLINK, unlink), Performance(_WHOAMI, whoami)]


def _tell_others(
    store: Store, spoken: CommandContext, unlinked: Unlinked, addresses: Mapping[str, Source]
) -> Statements[None]:
    by = spoken.principal.name
    for identity, address in addresses.items():
        if not any({by, identity} <= person for person in unlinked.people):
            outbound = outbound_to(address, f"{by} unlinked your accounts. {_unlinked(unlinked)}")
            yield from store.outbox.enqueue(
                outbound, SendCause(CauseKind.COMMAND, spoken.received.number, identity), spoken.now
            )


def _unlinked(unlinked: Unlinked) -> str:
    people = sorted(", ".join(sorted(identities)) for identities in unlinked.people)
    lines = ["These are different people now, each back in their own conversation:", *people]
    if unlinked.common:
        names = ", ".join(f"{called(session)} (/resume {session.id})" for session in unlinked.common)
        lines.append(f"What you wrote together has ended and stays readable for all who took part: {names}.")
    return "\n".join(lines)


def refuse_where_others_read(spoken: CommandContext, command: Command) -> None:
    """Accounts are named to nobody but whoever has them."""
    source = spoken.received.inbound.source
    if source.chat_kind != DM or source.participant is None:
        raise BadArgument(
            f"/{command.name} is for a direct chat, where nobody else reads along, not for a chat of the kind",
            found=source.chat_kind,
            allowed="a direct chat",
            example=f"/{command.name}, said there",
        )


def _here(spoken: CommandContext) -> str:
    role = (spoken.received.role or AccessRole.GUEST).text
    return f"You are {spoken.principal.name} here, with the role {role}."


def _known(person: Person) -> list[str]:
    accounts = f"Your accounts: {named(person.identities)}." if len(person.identities) > 1 else _ALONE
    return [accounts, f"Your person id is {person.id}."]


def named(identities: Iterable[Identity]) -> str:
    return ", ".join(f"{each.identity} ({each.name.quoted()})" if each.name else each.identity for each in identities)


_LINK = Command(
    name="link",
    help="make this account and one on another platform the same person: it gives a code to enter there",
    example="/link K7QM3XPR",
    args=(Arg(name="code", kind=ArgKind.REST),),
    group="people",
)
_SALT = "link"
_CHANCE = 16


def linking(store: Store) -> list[Performance]:
    async def link(invocation: Invocation, spoken: CommandContext) -> Transaction[str]:
        refuse_where_others_read(spoken, _LINK)
        said = invocation.words.get("code", "")
        match said.lower():
            case "yes":
                return _agree(store, spoken)
            case "no":
                return _withdraw(store, spoken)
            case "":
                code = make_code(secrets.token_bytes(_CHANCE))
                return _offer(store, spoken, code, await asyncio.to_thread(code_hash, code, _SALT))
            case _:
                return _enter(store, spoken, await asyncio.to_thread(code_hash, parse_code(said), _SALT))

    return [Performance(_LINK, link)]


@transaction
def _offer(store: Store, spoken: CommandContext, code: str, hashed: str) -> Statements[str]:
    inbound = spoken.received.inbound
    yield from store.links.offer(inbound.source, inbound.labels.user, hashed, spoken.now)
    yield from store.pairing.wipe_after_send(SendCause(CauseKind.COMMAND, spoken.received.number))
    minutes = int(OFFER_LIFETIME.total_seconds() // 60)
    return (
        f"Your code is {code}. Say /link {code} from your other account within {minutes} minutes.\n"
        "Give it to nobody else: whoever is linked with you reads your conversations."
    )


@transaction
def _enter(store: Store, spoken: CommandContext, hashed: str) -> Statements[str]:
    inbound = spoken.received.inbound
    offer = yield from store.links.enter_code(inbound.source, inbound.labels.user, hashed, spoken.now)
    if offer is None:
        return "That code is wrong or too old; /link, said from the other account, gives a new one."
    yield from _tell(store, spoken, offer, f"Your code was entered. {_question(offer.theirs, offer.mine)}")
    return _question(offer.mine, offer.theirs)


@transaction
def _agree(store: Store, spoken: CommandContext) -> Statements[str]:
    offer = yield from store.links.agree(spoken.principal.name, spoken.now)
    if offer is None:
        return "Nothing waits for your yes; /link gives a code to enter on your other account."
    if offer.changed:
        yield from _tell(store, spoken, offer, f"Asked again: {_question(offer.theirs, offer.mine)}")
        return f"The other side is not any more who you were told. {_question(offer.mine, offer.theirs)}"
    if offer.linked:
        session = yield from _continue_last(store, spoken, offer)
        yield from _tell(store, spoken, offer, _done(offer.mine, session))
        return _done(offer.theirs, session)
    return "You have agreed. It is done when the other side says /link yes, too."


def _continue_last(store: Store, spoken: CommandContext, offer: Offer) -> Statements[Session | None]:
    """Go on with the conversation used last, if both chats share one per person."""
    addresses = (offer.mine.address, offer.theirs.address)
    profiles = {address.profile for address in addresses}
    if len(profiles) > 1 or any(spoken.scope_of(each).dm is not DmScope.PER_PERSON for each in addresses):
        return None
    session = yield from store.links.continue_last(offer.mine.identity, profiles.pop(), spoken.now)
    spoken.mentioned.extend([session] if session else [])
    return session


@transaction
def _withdraw(store: Store, spoken: CommandContext) -> Statements[str]:
    offer = yield from store.links.withdraw(spoken.principal.name, spoken.now)
    if offer is not None:
        yield from _tell(store, spoken, offer, f"{offer.mine.identity} said no: nothing was linked.")
    return "Nothing was linked, and the code is good for nothing any more."


def _tell(store: Store, spoken: CommandContext, offer: Offer, text: str) -> Statements[None]:
    outbound = outbound_to(offer.theirs.address, text)
    yield from store.outbox.enqueue(outbound, SendCause(CauseKind.COMMAND, spoken.received.number, "other"), spoken.now)


def _question(mine: Party, theirs: Party) -> str:
    return (
        f"This account, {mine.identity}, would be one person with {named(theirs.identities)}: "
        "each would read the conversations of the other and go on with them. "
        "Names in quotes were chosen by whoever has the account and prove nothing.\n"
        "/link yes agrees, /link no does not; the other side is asked, too."
    )


def _done(theirs: Party, session: Session | None) -> str:
    goes_on = f" Both chats go on with {called(session)}, the conversation used last." if session else ""
    return (
        f"This account and {named(theirs.identities)} are one person now.{goes_on} "
        "/whoami lists your accounts, /unlink takes it back."
    )


_FORGET = Command(
    name="forget",
    help="take away for good everything that is kept of you",
    example="/forget",
    args=(YES,),
    role=AccessRole.GUEST,
    group="people",
)


def about_privacy(store: Store) -> list[Performance]:
    @transaction
    def would(_invocation: Invocation, spoken: CommandContext) -> Statements[str]:
        _refuse_where_others_read(spoken)
        own, shared = yield from store.erasures.count_sessions(spoken.principal.name)
        accounts = ", ".join(sorted(spoken.principal.identities))
        alone, with_others = counted(own, "conversation"), counted(shared, "conversation")
        return (
            f"Everything of {accounts} would be taken away for good: {alone} of yours alone, what you said in "
            f"{with_others} with others and the answers to it, your links, and what lets you in. "
            "What others said stays. There is no way back."
        )

    @transaction
    def forget(_invocation: Invocation, spoken: CommandContext) -> Statements[str]:
        _refuse_where_others_read(spoken)
        command = str(spoken.received.number)
        yield from store.erasures.request(spoken.principal.name, spoken.now, by="the person", answer=command)
        return "Everything of yours is being taken away, this conversation too. This is the last you hear of it."

    return [Performance(_FORGET, forget, would)]


def _refuse_where_others_read(spoken: CommandContext) -> None:
    """Where somebody has talked is nobody else's business."""
    kind = spoken.received.inbound.source.chat_kind
    if kind != DM:
        raise BadArgument(
            "/forget is not for a chat of the kind", found=kind, allowed="a direct chat", example="/forget, said there"
        )
