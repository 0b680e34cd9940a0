"""Commands about who somebody is: their accounts, and which of them are one person."""

from collections.abc import Iterable
from contextlib import suppress

from palaver.commands.phrases import called, listed
from palaver.commands.registry import Performance
from palaver.domain.access import AccessRole
from palaver.domain.command import Arg, ArgKind, Command, Invocation
from palaver.domain.errors import BadArgument, NotFound
from palaver.domain.source import DM
from palaver.ports.commands import Spoken
from palaver.ports.people import Identity, Person
from palaver.ports.repositories import Store
from palaver.ports.work import Steps, work

__all__ = ["about_people", "named", "refuse_where_others_read"]

_UNLINK = Command(
    name="unlink",
    help="take back the last link of your accounts, or take one of them out; each has its own conversations again",
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
    @work
    def unlink(invocation: Invocation, spoken: Spoken) -> Steps[str]:
        refuse_where_others_read(spoken, _UNLINK)
        mine, by = spoken.principal.identities, spoken.principal.name
        if len(mine) == 1:
            return _ALONE
        account = invocation.words.get("account", "").strip()
        if account and account not in mine:
            raise BadArgument(
                "You have no account", found=account, allowed=listed(sorted(mine)), example=f"/unlink {by}"
            )
        taken_back = store.links.unlink if account else store.links.unlink_last
        people = yield from taken_back(account or by, spoken.now, by=by)
        if not people:
            return "An answer is being worked on in a conversation you share; it is being stopped. Say that again soon."
        circles = "\n".join(sorted(", ".join(sorted(circle)) for circle in people))
        return f"These are different people now, each with their own conversations:\n{circles}"

    @work
    def whoami(_invocation: Invocation, spoken: Spoken) -> Steps[str]:
        person = None
        with suppress(NotFound):
            person = yield from store.people.find_person(spoken.principal.name, spoken.principal)
        seen = yield from store.steering.status(spoken.received.key, spoken.principal)
        lines = [_here(spoken)]
        if person and spoken.received.inbound.source.chat_kind == DM:
            lines += _known(person)
        if seen.session:
            lines.append(f"This is {called(seen.session)}.")
        return "\n".join(lines)

    return [Performance(_UNLINK, unlink), Performance(_WHOAMI, whoami)]


def refuse_where_others_read(spoken: Spoken, command: Command) -> None:
    """Accounts are named to nobody but whoever has them."""
    source = spoken.received.inbound.source
    if source.chat_kind != DM or source.participant is None:
        raise BadArgument(
            f"/{command.name} is for a direct chat, where nobody else reads along, not for a chat of the kind",
            found=source.chat_kind,
            allowed="a direct chat",
            example=f"/{command.name}, said there",
        )


def _here(spoken: Spoken) -> str:
    role = (spoken.received.role or AccessRole.GUEST).text
    return f"You are {spoken.principal.name} here, with the role {role}."


def _known(person: Person) -> list[str]:
    accounts = f"Your accounts: {named(person.identities)}." if len(person.identities) > 1 else _ALONE
    return [accounts, f"Your person id is {person.id}."]


def named(identities: Iterable[Identity]) -> str:
    return ", ".join(f"{each.identity} ({each.name.quoted()})" if each.name else each.identity for each in identities)
