"""People: who talks here, who asks to be let in, and who may do what."""

from collections.abc import Mapping

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from palaver.db.transaction import Statements, transaction
from palaver.engine import texts
from palaver.model.access import AccessRole, Basis, Effect, Grant
from palaver.model.codes import parse_code
from palaver.model.errors import BadArgument, NotFound
from palaver.model.grant_syntax import GRANTEE_FORMS, describe_grant_place, describe_grantee, parse_grantee
from palaver.model.session import Principal
from palaver.model.text import one_line
from palaver.store.people.grants import Change, GrantTable, Stranger
from palaver.store.people.people import Person
from palaver.web.caller import Caller
from palaver.web.pages.base import Link
from palaver.web.pages.parts import asked, done, form_of, keep_query, show
from palaver.web.routes import deed, page
from palaver.web.services import Services

__all__ = ["LINK", "routes"]

LINK = Link(title="People", path="/people", place=60, for_owner=True)
_PAGE, _CHANGES = 50, 20
_ROLES = [(role.text, role.text) for role in AccessRole]


def routes(services: Services) -> list[Route]:
    people = _People(services)
    return [
        page("/people", people.show),
        deed("/people/approve", people.approve),
        deed("/people/deny", people.deny),
        deed("/people/grants", people.grant),
        deed("/people/grants/{number:int}/remove", people.remove),
    ]


class _People:
    def __init__(self, services: Services) -> None:
        self._services = services
        self._store = services.store

    async def show(self, request: Request, caller: Caller) -> Response:
        _refuse_others(caller)
        now, after = self._services.clock.now(), asked(request, "after")[:200]

        @transaction
        def looked(principal: Principal) -> Statements[tuple[list[Person], list[Stranger], GrantTable, list[Change]]]:
            everybody = yield from self._store.people.list_people(principal, after=after, limit=_PAGE)
            strangers = yield from self._store.pairing.list_pending(now)
            table = yield from self._store.grants.load_table(GrantTable())
            return everybody, strangers, table, (yield from self._store.grants.list_changes(_CHANGES))

        everybody, strangers, table, changes = await self._services.read(caller, looked)
        fixed = self._services.engine.options.grants
        return show(
            self._services,
            request,
            "people.html",
            caller,
            people=everybody,
            more=keep_query(request, after=everybody[-1].id) if len(everybody) == _PAGE else None,
            strangers=strangers,
            grants=[
                *((number, _told(each)) for number, each in table.grants.items()),
                *((0, _told(each)) for each in fixed),
            ],
            changes=list(reversed(changes)),
            roles=_ROLES,
            whom=GRANTEE_FORMS,
        )

    async def approve(self, request: Request, caller: Caller) -> Response:
        """A code shows that whoever waits is the one that the owner means."""
        _refuse_others(caller)
        form = await form_of(request)
        code, role = parse_code(_text(form, "code")), AccessRole.parse(_text(form, "role") or AccessRole.MEMBER.text)
        stranger = await self._services.act(
            caller,
            lambda principal: self._store.pairing.approve(
                code,
                role,
                self._services.clock.now(),
                by=principal.name,
                notice=texts.PAIRED,
            ),
        )
        if stranger is None:
            raise BadArgument(
                "Nobody waits to be let in with the code",
                found=_text(form, "code"),
                allowed="what a stranger was given in the last hour",
                example="K7QM3XPR",
            )
        return self._done(request, f"{stranger.identity} is let in as {role.text}.")

    async def deny(self, request: Request, caller: Caller) -> Response:
        _refuse_others(caller)
        form = await form_of(request)
        who, blocks = _text(form, "identity"), bool(form.get("block"))
        stranger = await self._services.act(
            caller,
            lambda principal: self._store.pairing.deny(
                who, self._services.clock.now(), by=principal.name, blocks=blocks
            ),
        )
        if stranger is None:
            raise NotFound("stranger", who)
        return self._done(request, f"{stranger.identity} is turned away{' for good' if blocks else ''}.")

    async def grant(self, request: Request, caller: Caller) -> Response:
        _refuse_others(caller)
        form = await form_of(request)
        grant = Grant(
            effect=Effect.BLOCK if form.get("block") else Effect.ALLOW,
            role=AccessRole.parse(_text(form, "role") or AccessRole.MEMBER.text),
            basis=Basis.IDENTITY,
            chat_id=_text(form, "chat") or None,
            scope_id=_text(form, "server") or None,
            account=_text(form, "account") or None,
            **parse_grantee(_text(form, "who"), self._services.platforms),
        )
        number = await self._services.act(
            caller, lambda principal: self._store.grants.add(grant, self._services.clock.now(), by=principal.name)
        )
        return self._done(request, f"Grant {number}: {_told(grant)}.")

    async def remove(self, request: Request, caller: Caller) -> Response:
        _refuse_others(caller)
        number = min(request.path_params["number"], _LARGEST)
        grant = await self._services.act(
            caller, lambda principal: self._store.grants.remove(number, self._services.clock.now(), by=principal.name)
        )
        if grant is None:
            raise NotFound("grant", str(number))
        return self._done(request, f"Grant {number} is taken back: {_told(grant)}.")

    def _done(self, request: Request, said: str) -> Response:
        return done(request, one_line(said, 500), "/people")


_LARGEST = (1 << 62) - 1


def _text(form: Mapping[str, str], name: str) -> str:
    return str(form.get(name, "")).strip()


def _told(grant: Grant) -> str:
    role = f", as {grant.role.text}" if grant.effect is Effect.ALLOW else ""
    return f"{describe_grantee(grant)}, {describe_grant_place(grant)}{role}"


def _refuse_others(caller: Caller) -> None:
    if not caller.is_owner:
        raise HTTPException(403, "This is for the owner of the gateway.")
