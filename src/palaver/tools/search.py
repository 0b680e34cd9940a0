"""Session search for the agent: for whoever it answers, and only what everybody who reads the answer may see."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime

from palaver.db.transaction import Statements, transaction
from palaver.model.session import Principal
from palaver.model.source import DM
from palaver.model.text import one_line
from palaver.model.value import value
from palaver.protocols.tools import Tool, ToolContext, ToolFailed, ToolUse
from palaver.store.search.search import SPOKEN_ROLES, Hit, Order, SearchFilter
from palaver.store.store import Store

__all__ = [
    "SearchTools",
]

_MOST = 20
_USUAL = 10
_OWN = 10
_TITLE = 100
_DAY = {"type": "string", "description": "A day or a time, as 2026-03-01 or 2026-03-01T12:00."}
_SEARCH = Tool(
    name="search",
    description=(
        "Find what was said earlier, in this and in other conversations of whoever you talk to. "
        'Words, "phrases" in quotes, beginnings of words with a star. Where several people share the conversation, '
        "only what all of them may see is found."
    ),
    parameters={
        "type": "object",
        "properties": {
            "query": {"type": "string", "description": 'What to look for, as: invoice "second reminder" pay*'},
            "order": {"type": "string", "enum": [order.value for order in Order], "description": "What comes first."},
            "since": _DAY,
            "until": _DAY,
            "limit": {"type": "integer", "minimum": 1, "maximum": _MOST},
        },
        "required": ["query"],
        "additionalProperties": False,
    },
)


@value(kw_only=False)
class SearchTools:
    store: Store

    async def tools(self) -> Sequence[Tool]:
        return (_SEARCH,)

    async def skips_approval(self, use: ToolUse) -> bool:  # noqa: ARG002
        return False

    async def use(self, use: ToolUse) -> str:
        audience, only = await self.store.read(_audience(self.store, use.context))
        order = use.arguments.get("order") or Order.NEWEST
        if order not in set(Order):
            raise ToolFailed(f"The argument order has to be one of {', '.join(Order)}.")
        hits = await self.store.search.find(
            use.text("query"),
            audience,
            filter=SearchFilter(
                roles=SPOKEN_ROLES, session=only, since=_moment(use, "since"), until=_moment(use, "until")
            ),
            order=Order(order),
            limit=_limit(use) + _OWN,
        )
        # What is said in the turn itself, the question among it, is nothing that was said earlier.
        found = [hit for hit in hits if hit.entry.turn != str(use.context.turn.number)]
        return "\n".join(map(_line, found[: _limit(use)])) or "Nothing was found."


@transaction
def _audience(store: Store, context: ToolContext) -> Statements[tuple[Principal, str | None]]:
    """On whose behalf it is read, and the only session if there is one, so that nobody learns what is not theirs.

    Whoever is alone with the agent sees all that is theirs; where several take part in the conversation, only what each
    of them took part in. In a chat that others read, only what is of that chat; and where such a chat and this one have
    the conversation in common, nothing else: whoever speaks up there reads it all.
    """
    speaker = yield from store.people.principal_for(context.source)
    key, session = context.turn.key, context.turn.session
    if context.is_overheard:
        return replace(speaker, within=context.last.place or key, among=session), None
    places = yield from store.attach.attached_places(key)
    is_private = all(place.kind == DM and not place.shared for place in (key, *places))
    return replace(speaker, among=session), None if is_private else session


def _moment(use: ToolUse, name: str) -> datetime | None:
    given = use.arguments.get(name)
    if given is None:
        return None
    try:
        moment = datetime.fromisoformat(str(given))
    except ValueError:
        raise ToolFailed(f"The argument {name} has to be a day or a time, as 2026-03-01.") from None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _limit(use: ToolUse) -> int:
    given = use.arguments.get("limit", _USUAL)
    return min(max(given, 1), _MOST) if isinstance(given, int) else _USUAL


def _line(hit: Hit) -> str:
    title = one_line(hit.session.title or "untitled", _TITLE)
    return f"{title} ({hit.session.id}), {hit.entry.at:%Y-%m-%d %H:%M} UTC, {hit.entry.role}: {hit.snippet}"
