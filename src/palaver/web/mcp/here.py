"""Here: the API reached in the gateway itself, on behalf of whoever showed a key."""

from collections.abc import Mapping
from typing import Any

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from palaver.domain.errors import PalaverError
from palaver.domain.value import value
from palaver.web.access.visitor import Visitor
from palaver.web.api.table import Ask, Later, Shape, checked, converted
from palaver.web.desk import Desk
from palaver.web.mcp.deeds import Deed
from palaver.web.problems import API, problem

__all__ = ["Here"]


@value
class Here:
    desk: Desk
    visitor: Visitor
    request: Request

    async def ask(self, deed: Deed, given: Mapping[str, Any]) -> tuple[bool, bytes]:
        try:
            told = await deed.endpoint.does(self._asked(deed, given))
            if isinstance(told, Later):
                told = await told.tells()
        except (PalaverError, HTTPException) as error:
            return False, bytes(problem(API, error).body)
        return True, bytes(told.body) if isinstance(told, Response) else msgspec.json.encode(told)

    def _asked(self, deed: Deed, given: Mapping[str, Any]) -> Ask:
        endpoint = deed.endpoint
        checked(endpoint, self.visitor)
        path, rest = deed.parts(given)
        example = msgspec.json.encode(endpoint.example).decode()
        shape = converted(endpoint.asks or endpoint.takes or Shape, rest, example)
        return Ask(
            desk=self.desk,
            visitor=self.visitor,
            request=self.request,
            path=path,
            query=shape if endpoint.asks else None,
            body=shape if endpoint.takes else None,
        )
