"""Routes: what answers at which path, and which right it takes."""

from collections.abc import Awaitable, Callable, Sequence

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from palaver.ports.window import Right
from palaver.web.access.guard import visitor_of
from palaver.web.access.visitor import Visitor

__all__ = ["Does", "deed", "door", "page"]

Does = Callable[[Request, Visitor], Awaitable[Response]]


def page(path: str, does: Does, *, needs: Right = Right.READ) -> Route:
    """Something to look at."""
    return door(path, does, methods=("GET",), needs=needs)


def deed(path: str, does: Does, *, needs: Right = Right.MANAGE) -> Route:
    """Something to do; the guard has seen to it that the visitor wants it."""
    return door(path, does, methods=("POST",), needs=needs)


def door(path: str, does: Does, *, methods: Sequence[str], needs: Right) -> Route:
    async def answer(request: Request) -> Response:
        visitor = visitor_of(request)
        if not visitor.may(needs):
            raise HTTPException(403, f"This needs a key with the scope {needs.value}.")
        return await does(request, visitor)

    return Route(path, answer, methods=list(methods))
