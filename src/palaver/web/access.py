"""Change who can use the gateway: decide on pairing requests, add and revoke grants."""

from collections.abc import Callable
from typing import TypeVar

from palaver.db.transaction import Transaction
from palaver.engine import texts
from palaver.model.access import AccessRole, Basis, ChatKind, Effect, Grant, parse_grantee
from palaver.model.errors import BadArgument, NotFound
from palaver.model.people import parse_code_or_identity
from palaver.model.session import Principal
from palaver.store.people.api_tokens import Credential
from palaver.store.people.grants import Stranger
from palaver.store.people.key_rights import end_lost_keys
from palaver.web.routes import WebRequest

T = TypeVar("T")
_MAX_ID = (1 << 62) - 1


async def approve_stranger(request: WebRequest, text: str, role: AccessRole) -> Stranger:
    """Approve by identity or code. Only the code shows that the stranger is the one the owner means."""
    name, approve = parse_code_or_identity(text, request.services.platforms), request.store.pairing.approve
    scope_of = request.services.engine.settings.scopes.find
    stranger = await request.write(
        lambda who: approve(name, role, request.now, by=who.name, notice=texts.PAIRED, scope_of=scope_of)
    )
    if stranger is None:
        allowed = "a code from the last hour, or an account"
        raise BadArgument("Nobody is asking for access as", found=text, allowed=allowed, example="K7QM3XPR")
    return stranger


async def deny_stranger(request: WebRequest, text: str, *, blocks: bool) -> Stranger:
    """Deny by identity or code."""
    name, deny = parse_code_or_identity(text, request.services.platforms), request.store.pairing.deny
    stranger, _ = await _change(request, lambda who: deny(name, request.now, by=who.name, blocks=blocks))
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
) -> tuple[int, Grant, list[Credential]]:
    """Add a grant; return its number and the logins and tokens that ended."""
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
    number, ended = await _change(request, lambda who: request.store.grants.add(grant, request.now, by=who.name))
    return number, grant, ended


async def revoke_grant(request: WebRequest) -> tuple[int, Grant, list[Credential]]:
    """Revoke the grant whose number is in the path; return the logins and tokens that ended, too."""
    number = min(request.path["number"], _MAX_ID)
    grant, ended = await _change(request, lambda who: request.store.grants.remove(number, request.now, by=who.name))
    if grant is None:
        raise NotFound("grant", str(number))
    return number, grant, ended


async def _change(request: WebRequest, change: Callable[[Principal], Transaction[T]]) -> tuple[T, list[Credential]]:
    configured = request.services.engine.settings.grants
    return await request.write(lambda who: end_lost_keys(change(who), configured, request.now, by=who.name))
