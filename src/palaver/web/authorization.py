"""Orders: what buttons and the API do to a conversation takes what the command for it would take in the chat."""

from palaver.db.transaction import Statements, transaction
from palaver.engine.intake.effective_role import EffectiveRole, effective_role
from palaver.model.errors import NotAllowed
from palaver.model.session import Principal, Session
from palaver.web.caller import Caller
from palaver.web.services import Services

__all__ = [
    "entitled",
    "rename",
]


@transaction
def entitled(services: Services, principal: Principal, session: str, command: str) -> Statements[EffectiveRole]:
    """In the step that does it: as what they do it; raises NotAllowed where they may not give this command there."""
    options = services.engine.options
    there = yield from effective_role(services.store, options.grants, session, principal)
    needed = options.command_roles.get(command, services.commands.table[command].role)
    if there.role < needed:
        raise NotAllowed(f"/{command}", needed.text)
    return there


async def rename(services: Services, caller: Caller, session: str, title: str) -> Session:
    @transaction
    def renamed(principal: Principal) -> Statements[Session]:
        yield from entitled(services, principal, session, "title")
        return (yield from services.store.sessions.rename(session, title, principal))

    found = await services.act(caller, renamed)
    services.hub.hint("sessions")
    return found
