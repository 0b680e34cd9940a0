"""Orders: what buttons and the API do to a conversation takes what the command for it would take in the chat."""

from palaver.db.transaction import Statements, transaction
from palaver.engine.intake.effective_role import Standing, standing
from palaver.model.errors import NotAllowed
from palaver.model.session import Principal, Session
from palaver.web.services import Desk
from palaver.web.visitor import Visitor

__all__ = [
    "entitled",
    "rename",
]


@transaction
def entitled(desk: Desk, principal: Principal, session: str, command: str) -> Statements[Standing]:
    """In the step that does it: as what they do it; raises NotAllowed where they may not give this command there."""
    options = desk.engine.options
    there = yield from standing(desk.store, options.grants, session, principal)
    needed = options.command_roles.get(command, desk.commands.table[command].role)
    if there.role < needed:
        raise NotAllowed(f"/{command}", needed.text)
    return there


async def rename(desk: Desk, visitor: Visitor, session: str, title: str) -> Session:
    @transaction
    def renamed(principal: Principal) -> Statements[Session]:
        yield from entitled(desk, principal, session, "title")
        return (yield from desk.store.sessions.rename(session, title, principal))

    found = await desk.act(visitor, renamed)
    desk.hub.hint("sessions")
    return found
