"""The page for people, pairing requests and grants."""

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from palaver.db.transaction import Statements, transaction
from palaver.engine import texts
from palaver.model.access import (
    GRANTEE_FORMS,
    AccessRole,
    Basis,
    Effect,
    Grant,
    describe_grant_place,
    describe_grantee,
    parse_grantee,
)
from palaver.model.errors import BadArgument, NotFound
from palaver.model.people import parse_code
from palaver.model.session import Principal
from palaver.model.text import one_line
from palaver.store.people.grants import Change, GrantTable, Stranger
from palaver.store.people.people import Person
from palaver.web.caller import Caller
from palaver.web.pages.common import Link, answer_action, query_value, read_form, show_page, with_query
from palaver.web.routes import action, page
from palaver.web.services import Services

LINKS = (Link(title="People", path="/people", order=60, owner_only=True),)
_PAGE_SIZE, _CHANGES = 50, 20
_ROLES = [(role.text, role.text) for role in AccessRole]
_MAX_ID = (1 << 62) - 1


def routes(services: Services) -> list[Route]:
    people = _People(services)
    return [
        page("/people", people.show, owner_only=True),
        action("/people/approve", people.approve, owner_only=True),
        action("/people/deny", people.deny, owner_only=True),
        action("/people/grants", people.grant, owner_only=True),
        action("/people/grants/{number:int}/remove", people.remove, owner_only=True),
    ]


class _People:
    def __init__(self, services: Services) -> None:
        self._services = services
        self._store = services.store

    async def show(self, request: Request, caller: Caller) -> Response:
        now, after = self._services.clock.now(), query_value(request, "after")[:200]

        @transaction
        def read(principal: Principal) -> Statements[tuple[list[Person], list[Stranger], GrantTable, list[Change]]]:
            people = yield from self._store.people.list_people(principal, after=after, limit=_PAGE_SIZE)
            strangers = yield from self._store.pairing.list_pending(now)
            table = yield from self._store.grants.load_table(GrantTable())
            return people, strangers, table, (yield from self._store.grants.list_changes(_CHANGES))

        people, strangers, table, changes = await self._services.read(caller, read)
        stored = [(number, _describe(grant)) for number, grant in table.grants.items()]
        configured = [(0, _describe(grant)) for grant in self._services.engine.options.grants]
        return show_page(
            self._services,
            request,
            "people.html",
            caller,
            people=people,
            more=with_query(request, after=people[-1].id) if len(people) == _PAGE_SIZE else None,
            strangers=strangers,
            grants=[*stored, *configured],
            changes=list(reversed(changes)),
            roles=_ROLES,
            whom=GRANTEE_FORMS,
        )

    async def approve(self, request: Request, caller: Caller) -> Response:
        """The code shows that the stranger is the one the owner means."""
        form = await read_form(request)
        text = form.get("code", "").strip()
        code, role = parse_code(text), _role(form.get("role", ""))
        stranger = await self._services.write(
            caller,
            lambda principal: self._store.pairing.approve(
                code, role, self._services.clock.now(), by=principal.name, notice=texts.PAIRED
            ),
        )
        if stranger is None:
            allowed = "the code a stranger got within the last hour"
            raise BadArgument("Nobody is waiting with the code", found=text, allowed=allowed, example="K7QM3XPR")
        return _answer(request, f"Approved {stranger.identity} as {role.text}.")

    async def deny(self, request: Request, caller: Caller) -> Response:
        form = await read_form(request)
        identity, blocks = form.get("identity", "").strip(), bool(form.get("block"))
        stranger = await self._services.write(
            caller,
            lambda principal: self._store.pairing.deny(
                identity, self._services.clock.now(), by=principal.name, blocks=blocks
            ),
        )
        if stranger is None:
            raise NotFound("stranger", identity)
        return _answer(request, f"{'Blocked' if blocks else 'Denied'} {stranger.identity}.")

    async def grant(self, request: Request, caller: Caller) -> Response:
        form = {name: text.strip() for name, text in (await read_form(request)).items()}
        grant = Grant(
            effect=Effect.BLOCK if form.get("block") else Effect.ALLOW,
            role=_role(form.get("role", "")),
            basis=Basis.IDENTITY,
            chat_id=form.get("chat") or None,
            scope_id=form.get("server") or None,
            account=form.get("account") or None,
            **parse_grantee(form.get("who", ""), self._services.platforms),
        )
        number = await self._services.write(
            caller, lambda principal: self._store.grants.add(grant, self._services.clock.now(), by=principal.name)
        )
        return _answer(request, f"Added grant {number}: {_describe(grant)}.")

    async def remove(self, request: Request, caller: Caller) -> Response:
        number = min(request.path_params["number"], _MAX_ID)
        grant = await self._services.write(
            caller, lambda principal: self._store.grants.remove(number, self._services.clock.now(), by=principal.name)
        )
        if grant is None:
            raise NotFound("grant", str(number))
        return _answer(request, f"Revoked grant {number}: {_describe(grant)}.")


def _answer(request: Request, notice: str) -> Response:
    return answer_action(request, one_line(notice, 500), "/people")


def _role(name: str) -> AccessRole:
    return AccessRole.parse(name.strip() or AccessRole.MEMBER.text)


def _describe(grant: Grant) -> str:
    role = f", as {grant.role.text}" if grant.effect is Effect.ALLOW else ""
    return f"{describe_grantee(grant)}, {describe_grant_place(grant)}{role}"
