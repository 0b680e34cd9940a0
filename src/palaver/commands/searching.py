"""The command that finds words. Where others read along, only in the conversations of the place."""

from collections.abc import Sequence
from datetime import datetime

from palaver.commands.phrases import counted, name_of, when
from palaver.commands.registry import Performance, say
from palaver.domain.command import Arg, ArgKind, Command, Invocation
from palaver.domain.errors import BadArgument, MalformedTime
from palaver.domain.transcript import Role
from palaver.domain.wall import parse_past
from palaver.ports.commands import Spoken
from palaver.ports.repositories import Store
from palaver.ports.search import SAID, Hit, Order, SearchFilter
from palaver.ports.work import Work

__all__ = ["searching"]

_ME = "me"
_ROLES = (Role.USER, Role.ASSISTANT, Role.TOOL)
_BEST = Arg(name="best", kind=ArgKind.FLAG)
_SEARCH = Command(
    name="search",
    help='find words in your conversations, "phrases" in quotes, beginnings of words with a star; --best ranks them',
    example='/search invoice "second reminder" pay* --from me --since 30d',
    args=(
        Arg(name="words", kind=ArgKind.REST, required=True),
        Arg(name="from", kind=ArgKind.OPTION, hint="me or an account"),
        Arg(name="role", kind=ArgKind.OPTION, choices=tuple(role.value for role in _ROLES)),
        Arg(name="since", kind=ArgKind.OPTION, hint="3d or a date"),
        Arg(name="platform", kind=ArgKind.OPTION),
        _BEST,
    ),
    group="finding",
)
_HITS = 10


def searching(store: Store) -> list[Performance]:
    async def search(invocation: Invocation, spoken: Spoken) -> Work[str]:
        narrowed = _narrowed(invocation, spoken)
        order = Order.BEST if _BEST.name in invocation.flags else Order.NEWEST
        words = invocation.words["words"]
        hits = await store.search.find(words, spoken.audience, filter=narrowed, order=order, limit=_HITS + 1)
        spoken.mentioned.extend(hit.session for hit in hits)
        return say(_found(hits, spoken, order))

    return [Performance(_SEARCH, search)]


def _narrowed(invocation: Invocation, spoken: Spoken) -> SearchFilter:
    asked = invocation.words
    platform = asked.get("platform")
    return SearchFilter(
        people=_people(asked.get("from"), spoken),
        roles=frozenset({Role(asked["role"])}) if "role" in asked else SAID,
        since=_since(asked["since"], spoken) if "since" in asked else None,
        platform=platform and platform.lower(),
    )


def _people(who: str | None, spoken: Spoken) -> frozenset[str]:
    if who is None:
        return frozenset()
    if who.lower() == _ME:
        return spoken.principal.identities
    if ":" not in who:
        allowed = f"{_ME}, or an account as /whoami names it"
        raise BadArgument(
            "Nobody has the account", found=who, allowed=allowed, example="/search invoice --from telegram:7"
        )
    return frozenset({who})


def _since(text: str, spoken: Spoken) -> datetime:
    try:
        return parse_past(text, spoken.now, spoken.zone)
    except MalformedTime as error:
        allowed, example = "an age such as 3d, a date, or a time (ISO 8601)", "/search invoice --since 30d"
        raise BadArgument("--since cannot be", found=text, allowed=allowed, example=example) from error


def _found(hits: Sequence[Hit], spoken: Spoken, order: Order) -> str:
    if not hits:
        return "Nothing was found."
    shown = hits[:_HITS]
    lines = [
        f"{name_of(hit.session)}, {when(hit.entry.at, spoken.zone)}, {hit.entry.role}: {hit.snippet}" for hit in shown
    ]
    many = f"The {order.value} {_HITS} that were found:"
    head = many if len(hits) > _HITS else f"Found {counted(len(hits), 'time')}:"
    # Asked for by its title it would be the newest of that title.
    others = [hit.session.id for hit in shown if not spoken.is_in(hit.session)]
    return "\n".join(
        [head, *lines, *(f"/resume {session} goes on with the first elsewhere." for session in others[:1])]
    )
