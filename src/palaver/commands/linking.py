"""The command that makes two accounts one person: a code for the other side, and the yes of both."""

import asyncio
import secrets

from palaver.commands.people import named, refuse_where_others_read
from palaver.commands.registry import Performance
from palaver.domain.codes import code_hash, make_code, parse_code
from palaver.domain.command import Arg, ArgKind, Command, Invocation
from palaver.domain.linking import VALID_FOR
from palaver.domain.turn import outbound_to
from palaver.ports.commands import Spoken
from palaver.ports.people import Offer, Party
from palaver.ports.repositories import Store
from palaver.ports.work import Steps, Work, work

__all__ = ["linking"]

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
    async def link(invocation: Invocation, spoken: Spoken) -> Work[str]:
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


@work
def _offer(store: Store, spoken: Spoken, code: str, hashed: str) -> Steps[str]:
    inbound = spoken.received.inbound
    yield from store.links.offer(inbound.source, inbound.labels.user, hashed, spoken.now)
    yield from store.pairing.say_once(f"command:{spoken.received.number}")
    minutes = int(VALID_FOR.total_seconds() // 60)
    return (
        f"Your code is {code}. Say /link {code} from your other account within {minutes} minutes.\n"
        "Give it to nobody else: whoever is linked with you reads your conversations."
    )


@work
def _enter(store: Store, spoken: Spoken, hashed: str) -> Steps[str]:
    inbound = spoken.received.inbound
    offer = yield from store.links.enter(inbound.source, inbound.labels.user, hashed, spoken.now)
    if offer is None:
        return "That code is wrong or too old; /link, said from the other account, gives a new one."
    yield from _tell(store, spoken, offer, f"Your code was entered. {_question(offer.theirs, offer.mine)}")
    return _question(offer.mine, offer.theirs)


@work
def _agree(store: Store, spoken: Spoken) -> Steps[str]:
    offer = yield from store.links.agree(spoken.principal.name, spoken.now)
    if offer is None:
        return "Nothing waits for your yes; /link gives a code to enter on your other account."
    if offer.changed:
        yield from _tell(store, spoken, offer, f"Asked again: {_question(offer.theirs, offer.mine)}")
        return f"The other side is not any more who you were told. {_question(offer.mine, offer.theirs)}"
    if offer.linked:
        yield from _tell(store, spoken, offer, _done(offer.mine))
        return _done(offer.theirs)
    return "You have agreed. It is done when the other side says /link yes, too."


@work
def _withdraw(store: Store, spoken: Spoken) -> Steps[str]:
    offer = yield from store.links.withdraw(spoken.principal.name, spoken.now)
    if offer is not None:
        yield from _tell(store, spoken, offer, f"{offer.mine.identity} said no: nothing was linked.")
    return "Nothing was linked, and the code is good for nothing any more."


def _tell(store: Store, spoken: Spoken, offer: Offer, text: str) -> Steps[None]:
    outbound = outbound_to(offer.theirs.address, text)
    yield from store.outbox.owe(outbound, f"command:{spoken.received.number}:other", spoken.now)


def _question(mine: Party, theirs: Party) -> str:
    return (
        f"This account, {mine.identity}, would be one person with {named(theirs.identities)}: "
        "each would read the conversations of the other and go on with them. "
        "Names in quotes were chosen by whoever has the account and prove nothing.\n"
        "/link yes agrees, /link no does not; the other side is asked, too."
    )


def _done(theirs: Party) -> str:
    return (
        f"This account and {named(theirs.identities)} are one person now. "
        "/whoami lists your accounts, /unlink takes it back."
    )
