"""Routes of pages and actions, each with the scope it requires."""

from collections.abc import Awaitable, Callable

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from palaver.store.people.api_tokens import Right
from palaver.web.auth_middleware import caller_of
from palaver.web.caller import Caller

Handler = Callable[[Request, Caller], Awaitable[Response]]


def page(path: str, handler: Handler, *, needs: Right = Right.READ, owner_only: bool = False) -> Route:
    """Route a GET request."""
    return _route("GET", path, handler, needs, owner_only=owner_only)


def action(path: str, handler: Handler, *, needs: Right = Right.MANAGE, owner_only: bool = False) -> Route:
    """Route a POST request; the middleware has already checked the origin and the CSRF token."""
    return _route("POST", path, handler, needs, owner_only=owner_only)


def _route(method: str, path: str, handler: Handler, needs: Right, *, owner_only: bool) -> Route:
    async def answer(request: Request) -> Response:
        caller = caller_of(request)
        require(caller, needs, owner_only=owner_only)
        return await handler(request, caller)

    return Route(path, answer, methods=[method])


def require(caller: Caller, right: Right | None, *, owner_only: bool = False) -> None:
    """Raise 403 if the caller's key lacks the right; None is what any key has."""
    if right and not caller.has(right):
        raise HTTPException(403, f"This needs a token with the scope {right.value}.")
    if owner_only and not caller.is_owner:
        raise HTTPException(403, "Only the owner can do this, with a login or token made without --as.")
