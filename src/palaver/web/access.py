"""Change who can use the gateway: decide on pairing requests, add and revoke grants."""

from palaver.engine import texts
from palaver.model.access import AccessRole, Basis, ChatKind, Effect, Grant, parse_grantee
from palaver.model.errors import BadArgument, NotFound
from palaver.model.people import parse_code_or_identity
from palaver.store.people.grants import Stranger
from palaver.web.routes import WebRequest

_MAX_ID = (1 << 62) - 1


async def approve_stranger(request: WebRequest, text: str, role: AccessRole) -> Stranger:
    """Approve by identity or code. Only the code shows that the stranger is the one the owner means."""
    name, approve = parse_code_or_identity(text), request.store.pairing.approve
    scope_of = request.services.engine.options.scopes.find
    stranger = await request.write(
        lambda who: approve(name, role, request.now, by=who.name, notice=texts.PAIRED, scope_of=scope_of)
    )
    if stranger is None:
        allowed = "a code from the last hour, or an account"
        raise BadArgument("Nobody is asking for access as", found=text, allowed=allowed, example="K7QM3XPR")
    return stranger


async def deny_stranger(request: WebRequest, text: str, *, blocks: bool) -> Stranger:
    """Deny by identity or code."""
    name, deny = parse_code_or_identity(text), request.store.pairing.deny
    stranger = await request.write(lambda who: deny(name, request.now, by=who.name, blocks=blocks))
    if stranger is None:
        raise NotFound("stranger", text)
    return stranger


async def add_grant(
    request: WebRequest,
    to: str,
    role: AccessRole,
    *,
    blocks: bool,
    kind: ChatKind | None = None,
    chat_id: str | None = None,
    scope_id: str | None = None,
    account: str | None = None,
) -> tuple[int, Grant]:
    grant = Grant(
        effect=Effect.BLOCK if blocks else Effect.ALLOW,
        role=role,
        basis=Basis.IDENTITY,
        kind=kind,
        chat_id=chat_id,
        scope_id=scope_id,
        account=account,
        **parse_grantee(to, request.services.platforms),
    )
    number = await request.write(lambda who: request.store.grants.add(grant, request.now, by=who.name))
    return number, grant


async def revoke_grant(request: WebRequest) -> tuple[int, Grant]:
    """Revoke the grant whose number is in the path."""
    number = min(request.path["number"], _MAX_ID)
    grant = await request.write(lambda who: request.store.grants.remove(number, request.now, by=who.name))
    if grant is None:
        raise NotFound("grant", str(number))
    return number, grant
