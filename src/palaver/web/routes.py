"""Routes: what answers at which path, and which right it takes."""

from collections.abc import Awaitable, Callable, Sequence

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from palaver.store.people.api_tokens import Right
from palaver.web.auth_middleware import caller_of
from palaver.web.caller import Caller

__all__ = [
    "Does",
    "check",
    "deed",
    "door",
    "page",
]

Does = Callable[[Request, Caller], Awaitable[Response]]


def page(path: str, does: Does, *, needs: Right = Right.READ, for_owner: bool = False) -> Route:
    """Something to look at."""
    return door(path, does, methods=("GET",), needs=needs, for_owner=for_owner)


def deed(path: str, does: Does, *, needs: Right = Right.MANAGE) -> Route:
    """Something to do; the guard has seen to it that the visitor wants it."""
    return door(path, does, methods=("POST",), needs=needs)


def door(path: str, does: Does, *, methods: Sequence[str], needs: Right, for_owner: bool = False) -> Route:
    """`for_owner`: it is about the gateway, and not about anybody's own conversations."""

    async def answer(request: Request) -> Response:
        caller = caller_of(request)
        check(caller, needs, for_owner=for_owner)
        return await does(request, caller)

    return Route(path, answer, methods=list(methods))


def check(caller: Caller, needs: Right | None, *, for_owner: bool = False) -> None:
    """Raises where somebody may not do this with their key; None is what any key may do."""
    if needs and not caller.may(needs):
        raise HTTPException(403, f"This needs a token with the scope {needs.value}.")
    if for_owner and not caller.is_owner:
        raise HTTPException(403, "This is the owner's: it takes a login or token that was made without --as.")
