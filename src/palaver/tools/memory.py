"""Memory tools: the agent keeps notes about the person or the chat, and forgets them."""

from collections.abc import Callable, Sequence
from functools import partial

from palaver.db.transaction import Statements, Transaction, transaction
from palaver.model.memory import FORGET, NOTE_LIMIT, REMEMBER, MemoryScope, Note
from palaver.model.value import value
from palaver.protocols.tools import Tool, ToolContext, ToolFailed, ToolUse
from palaver.store.queue import turns
from palaver.store.store import Store
from palaver.tools.schemas import object_schema, text_schema

_REMEMBER = Tool(
    name=REMEMBER,
    summary="Keep a note about you or this chat for later conversations.",
    description=(
        "Keep a note for later conversations: about the person you are talking to, or in a group about the chat. "
        "Note lasting facts and wishes in one sentence each, such as names, preferences and plans; no secrets, and "
        "nothing that matters only now. Everybody in the chat can see, edit and delete its notes."
    ),
    parameters=object_schema(
        "text",
        text=text_schema(f"The note, at most {NOTE_LIMIT} characters, for example: Prefers metric units."),
        replaces={"type": "integer", "description": "The number of a note that this one replaces."},
    ),
)
_FORGET = Tool(
    name=FORGET,
    summary="Forget a note.",
    description="Forget a note that is wrong or no longer matters, or that the person wants you to forget.",
    parameters=object_schema("note", note={"type": "integer", "description": "The number of the note."}),
)
_NOT_HERE = "There are no notes in this conversation: its answers go to other people or chats than the notes are about."


@value(kw_only=False)
class MemoryTools:
    store: Store

    async def tools(self) -> Sequence[Tool]:
        return (_REMEMBER, _FORGET)

    async def use(self, use: ToolUse) -> str:
        context, services = use.context, use.context.services
        limits, memory = services.memory_limits, self.store.memory
        if use.call.name == FORGET:
            number = _number(use, "note")
            forget = self._in_scope(context, lambda scope: memory.forget(context.turn, scope, number, limits))
            return f"Forgot note {(await self.store.transact(forget)).number}."
        replaces = _number(use, "replaces") if use.arguments.get("replaces") is not None else None
        remember = partial(memory.remember, text=use.text("text"), limits=limits, now=services.now, replaces=replaces)
        note = await self.store.transact(self._in_scope(context, lambda scope: remember(context.turn, scope)))
        return f"Kept as note {note.number} about {note.subject}."

    @transaction
    def _in_scope(self, context: ToolContext, work: Callable[[MemoryScope], Transaction[Note]]) -> Statements[Note]:
        """Work on the notes that everybody who reads this conversation can see."""
        session = yield from turns.session_of(context.turn)
        scope = yield from self.store.memory.scope_of(context.turn.key, session, context.last, shared=False)
        if scope is None:
            raise ToolFailed(_NOT_HERE)
        return (yield from work(scope))


def _number(use: ToolUse, name: str) -> int:
    given = use.arguments.get(name)
    if isinstance(given, bool) or not isinstance(given, int):
        raise ToolFailed(f"The argument {name} must be the number of a note.")
    return given
