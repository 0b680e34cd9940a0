"""Routes of pages and actions, each with the scope it requires, and the request that every handler gets."""

from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, suppress
from datetime import datetime
from typing import Any, ParamSpec, TypeVar

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from palaver.db.transaction import Statements, Transaction, transaction
from palaver.engine.intake.roles import RoleInSession, role_in_session
from palaver.model.command import Invocation
from palaver.model.errors import InvalidInput, NotAllowed, StoreError
from palaver.model.session import Principal, Session
from palaver.model.source import source_of_identity
from palaver.operations.operation import Call, Operation
from palaver.platforms.web.adapter import MAIN_CHAT
from palaver.store.conversations.deletion import Removed, delete
from palaver.store.people.api_tokens import Right
from palaver.store.search.search import Hit
from palaver.web.auth_middleware import caller_of
from palaver.web.caller import person_of, principal_of
from palaver.web.services import Services

P = ParamSpec("P")
T = TypeVar("T")


def services_of(http: Request) -> Services:
    return http.app.state.services


class WebRequest:
    """A request that is authenticated: to a page, to the API, or by an MCP tool."""

    def __init__(self, http: Request, path: Mapping[str, Any] | None = None) -> None:
        self.http = http
        self.path = http.path_params if path is None else path
        self.services = services_of(http)
        self.store = self.services.store
        self.caller = caller_of(http)

    @property
    def now(self) -> datetime:
        return self.services.clock.now()

    def require(self, right: Right | None, *, owner_only: bool = False) -> None:
        """Raise 403 if the caller's key lacks the right; None is what any key has."""
        if right and not self.caller.has(right):
            raise HTTPException(403, f"This needs a token with the scope {right.value}.")
        if owner_only and not self.caller.is_owner:
            raise HTTPException(
                403, "Only the owner can do this. If that is you, use a login or token made without --as."
            )

    def read_body(self, *, with_files: bool) -> AbstractAsyncContextManager[bytearray]:
        """Read the whole body. It takes memory from all callers until the block ends, so do not wait inside it."""
        bodies, limits = self.services.bodies, self.services.engine.settings.limits
        # One person with several tokens has one share. The owner's tokens are for programs, each with its own.
        holder = self.caller.key.identity or self.caller.key.number
        return bodies.read(self.http.stream(), limits, holder, with_files=with_files)

    async def read(self, query: Callable[[Principal], Transaction[T]]) -> T:
        """Read on behalf of the caller: `await request.read(lambda who: request.store.sessions.find(name, who))`."""
        return await self.store.read(self._on_behalf(query))

    async def read_as_person(self, query: Callable[[Principal], Transaction[T]]) -> T:
        """Read as the person themselves: even the owner reads only their own chats so."""

        @transaction
        def read() -> Statements[T]:
            return (yield from query((yield from person_of(self.caller, self.store))))

        return await self.store.read(read())

    async def browse(self, query: Callable[[Principal], Transaction[T]]) -> T:
        """Read what can be a moment old, such as a list: from a replica, if there is one."""
        return await self.store.browse(self._on_behalf(query))

    async def write(self, change: Callable[[Principal], Transaction[T]]) -> T:
        """Change something on behalf of the caller, in one transaction."""
        return await self.store.transact(self._on_behalf(change))

    async def operate(self, operation: Operation[P, T], *args: P.args, **asked: P.kwargs) -> T:
        """Do an operation on behalf of the caller."""
        do = self.read if operation.method == "GET" else self.write
        return await do(lambda principal: operation.work(self._call(principal), *args, **asked))

    def _call(self, principal: Principal) -> Call:
        engine, caller = self.services.engine, self.caller
        origin = source_of_identity(caller.identity)
        if caller.web_user:
            origin = self.services.webchat.source(caller.web_user, MAIN_CHAT)
        zone = engine.settings.zones.find(origin)
        return Call(principal=principal, origin=origin, now=self.now, zone=zone, job_rules=engine.job_rules)

    @transaction
    def _on_behalf(self, work: Callable[[Principal], Transaction[T]]) -> Statements[T]:
        principal = yield from principal_of(self.caller, self.store)
        return (yield from work(principal))

    async def principal(self) -> Principal:
        """For work that takes several transactions; `read` and `write` pass it on themselves."""
        return await self.store.read(principal_of(self.caller, self.store))

    async def search_beginnings(self, principal: Principal, query: str, limit: int) -> list[Hit]:
        """Find titles and messages with words that begin like these."""
        words = " ".join(f"{word}*" for word in query.replace('"', " ").replace("*", " ").split())
        try:
            return await self.store.search.find(words, principal, limit=limit)
        except InvalidInput:
            return []

    async def run_command(self, session: str, given: str | Invocation) -> str:
        """Run a chat command in a session with the caller's role there; return its answer."""
        answer = await self.services.engine.run_command(given, session, await self.principal())
        self.services.hub.hint("sessions", "turns")
        return answer

    async def rename_session(self, session: str, title: str) -> Session:
        @transaction
        def rename(principal: Principal) -> Statements[Session]:
            yield from self.check_command(principal, session, "title")
            return (yield from self.store.titles.rename(session, title, principal))

        renamed = await self.write(rename)
        self.services.hub.hint("sessions")
        return renamed

    async def current_session(self, session: str) -> Session:
        """Return the session in which the conversation of this one goes on."""

        @transaction
        def find(principal: Principal) -> Statements[Session]:
            left = yield from self.store.sessions.get_visible(session, principal)
            return (yield from self.store.turn_control.get_status(left.key, principal)).session or left

        return await self.read(find)

    async def delete_session(self, session: str, *, only_turn: int | None = None) -> Removed:
        removed = await self.write(lambda principal: delete(session, principal, self.now, only_turn=only_turn))
        self.services.hub.hint("sessions")
        await self.store.search.catch_up()
        await self.services.processes.remove_forgotten()
        return removed

    @transaction
    def check_command(self, principal: Principal, session: str, command: str) -> Statements[RoleInSession]:
        """Return the principal's role in a session; raise NotAllowed if it is too low for the command."""
        settings = self.services.engine.settings
        there = yield from role_in_session(session, principal, settings.grants)
        needed = settings.command_roles.get(command, self.services.commands.table[command].role)
        if there.role < needed:
            raise NotAllowed(f"/{command}", needed.text)
        return there


Handler = Callable[[WebRequest], Awaitable[Response]]


def page(path: str, *, needs: Right = Right.READ, owner_only: bool = False) -> Callable[[Handler], Route]:
    """Route GET requests to the decorated function."""
    return _route("GET", path, needs, owner_only=owner_only)


def action(path: str, *, needs: Right = Right.MANAGE, owner_only: bool = False) -> Callable[[Handler], Route]:
    """Route POST requests; the middleware has already checked the origin and the CSRF token."""
    return _route("POST", path, needs, owner_only=owner_only)


def removal(path: str, *, needs: Right = Right.MANAGE, owner_only: bool = False) -> Callable[[Handler], Route]:
    """Route DELETE requests to the decorated function."""
    return _route("DELETE", path, needs, owner_only=owner_only)


def _route(method: str, path: str, needs: Right, *, owner_only: bool) -> Callable[[Handler], Route]:
    def declare(handler: Handler) -> Route:
        async def answer(http: Request) -> Response:
            request = WebRequest(http)
            request.require(needs, owner_only=owner_only)
            if method == "GET" and "text/html" in http.headers.get("accept", ""):
                # Before the page reads anything, so that every later change is pushed to it.
                with suppress(StoreError):  # the page itself reports it
                    http.state.position = await request.services.hub.position()
            return await handler(request)

        return Route(path, answer, methods=[method])

    return declare
