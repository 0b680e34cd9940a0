"""API endpoints for people, pairing requests and grants."""

from collections.abc import Mapping
from functools import partial
from typing import Annotated

from msgspec import Meta

from palaver.engine import texts
from palaver.model.access import AccessRole, Basis, Effect, Grant, parse_grantee
from palaver.model.errors import BadArgument, NotFound
from palaver.model.label import Label
from palaver.model.people import parse_code
from palaver.store.people.api_tokens import Right
from palaver.store.people.grants import GrantTable, Stranger
from palaver.store.people.people import Person
from palaver.web.api.endpoints import ApiRequest, Schema, endpoint
from palaver.web.api.schemas import Limit, Timestamp

_Text = Annotated[str, Meta(min_length=1, max_length=500)]
_MAX_ID = (1 << 62) - 1
_owner_endpoint = partial(endpoint, needs=Right.MANAGE, owner_only=True)


class IdentitySchema(Schema, frozen=True, kw_only=True):
    identity: str
    name: str | None
    since: Timestamp


class PersonSchema(Schema, frozen=True, kw_only=True):
    id: str
    name: str | None
    since: Timestamp
    identities: list[IdentitySchema]


class PeopleSchema(Schema, frozen=True, kw_only=True):
    people: list[PersonSchema]
    after: str | None
    """Where the next page begins; null on the last one."""


class _PeopleQuery(Schema, frozen=True, kw_only=True):
    after: str = ""
    limit: Limit = 100


def _plain(name: Label | None) -> str | None:
    return name and name.plain()


def _person_schema(person: Person) -> PersonSchema:
    return PersonSchema(
        id=person.id,
        name=_plain(person.name),
        since=person.since,
        identities=[
            IdentitySchema(identity=item.identity, name=_plain(item.name), since=item.since)
            for item in person.identities
        ],
    )


@_owner_endpoint("GET", "/people", summary="List people and their identities")
async def list_people(request: ApiRequest, query: _PeopleQuery) -> PeopleSchema:
    find = request.services.store.people.list_people
    found = await request.read(lambda principal: find(principal, after=query.after, limit=query.limit))
    after = found[-1].id if len(found) == query.limit else None
    return PeopleSchema(people=list(map(_person_schema, found)), after=after)


@_owner_endpoint("GET", "/people/{name}", summary="Get a person by id or identity")
async def get_person(request: ApiRequest) -> PersonSchema:
    find = request.services.store.people.find_person
    return _person_schema(await request.read(lambda principal: find(request.path["name"], principal)))


class StrangerSchema(Schema, frozen=True, kw_only=True):
    identity: str
    name: str | None
    asked: Timestamp
    expires: Timestamp
    waiting: int
    """How many of their messages wait."""


class StrangersSchema(Schema, frozen=True, kw_only=True):
    strangers: list[StrangerSchema]


def _stranger_schema(stranger: Stranger) -> StrangerSchema:
    return StrangerSchema(
        identity=stranger.identity,
        name=_plain(stranger.name),
        asked=stranger.asked,
        expires=stranger.expires,
        waiting=stranger.kept,
    )


@_owner_endpoint("GET", "/pairing", summary="List pairing requests")
async def list_strangers(request: ApiRequest) -> StrangersSchema:
    store = request.services.store
    found = await store.read(store.pairing.list_pending(request.services.clock.now()))
    return StrangersSchema(strangers=list(map(_stranger_schema, found)))


class ApproveSchema(Schema, frozen=True, kw_only=True):
    code: _Text
    role: str = AccessRole.MEMBER.text


@_owner_endpoint(
    "POST",
    "/pairing/approve",
    summary="Approve a pairing request by its code",
    example={"code": "K7QM3XPR", "role": "member"},
)
async def approve_stranger(request: ApiRequest, body: ApproveSchema) -> StrangerSchema:
    code, role, now = parse_code(body.code), AccessRole.parse(body.role), request.services.clock.now()
    approve = request.services.store.pairing.approve
    stranger = await request.write(lambda who: approve(code, role, now, by=who.name, notice=texts.PAIRED))
    request.services.hub.hint("people")
    if stranger is None:
        allowed = "the code a stranger got within the last hour"
        raise BadArgument("Nobody is waiting with the code", found=body.code, allowed=allowed, example="K7QM3XPR")
    return _stranger_schema(stranger)


class DenySchema(Schema, frozen=True, kw_only=True):
    who: _Text
    """An identity, or a code."""
    block: bool = False
    """Permanently."""


@_owner_endpoint("POST", "/pairing/deny", summary="Deny a pairing request", example={"who": "telegram:7"})
async def deny_stranger(request: ApiRequest, body: DenySchema) -> StrangerSchema:
    deny, now = request.services.store.pairing.deny, request.services.clock.now()
    stranger = await request.write(lambda who: deny(body.who, now, by=who.name, blocks=body.block))
    request.services.hub.hint("people")
    if stranger is None:
        raise NotFound("stranger", body.who)
    return _stranger_schema(stranger)


class GrantSchema(Schema, frozen=True, kw_only=True):
    number: int | None
    """Null if it comes from the configuration."""
    grant: Mapping[str, str]


class GrantsSchema(Schema, frozen=True, kw_only=True):
    grants: list[GrantSchema]


@_owner_endpoint("GET", "/grants", summary="List grants")
async def list_grants(request: ApiRequest) -> GrantsSchema:
    store = request.services.store
    table = await store.read(store.grants.load_table(GrantTable()))
    configured = [GrantSchema(number=None, grant=grant.to_json()) for grant in request.services.engine.options.grants]
    stored = [GrantSchema(number=number, grant=grant.to_json()) for number, grant in table.grants.items()]
    return GrantsSchema(grants=[*configured, *stored])


class NewGrantSchema(Schema, frozen=True, kw_only=True):
    to: _Text
    """telegram:7, a whole platform, person:ID, or everybody."""
    role: str = AccessRole.MEMBER.text
    chat: _Text | None = None
    block: bool = False


@_owner_endpoint(
    "POST", "/grants", summary="Grant or block access", example={"to": "telegram:7", "role": "member"}, status=201
)
async def add_grant(request: ApiRequest, body: NewGrantSchema) -> GrantSchema:
    grant = Grant(
        effect=Effect.BLOCK if body.block else Effect.ALLOW,
        role=AccessRole.parse(body.role),
        basis=Basis.IDENTITY,
        chat_id=body.chat,
        **parse_grantee(body.to, request.services.platforms),
    )
    add, now = request.services.store.grants.add, request.services.clock.now()
    number = await request.write(lambda who: add(grant, now, by=who.name))
    request.services.hub.hint("people")
    return GrantSchema(number=number, grant=grant.to_json())


@_owner_endpoint("DELETE", "/grants/{number:int}", summary="Revoke a grant")
async def revoke_grant(request: ApiRequest) -> GrantSchema:
    number, now = min(request.path["number"], _MAX_ID), request.services.clock.now()
    remove = request.services.store.grants.remove
    grant = await request.write(lambda who: remove(number, now, by=who.name))
    request.services.hub.hint("people")
    if grant is None:
        raise NotFound("grant", str(number))
    return GrantSchema(number=number, grant=grant.to_json())


ENDPOINTS = (
    *(list_people, get_person, list_strangers, approve_stranger),
    *(deny_stranger, list_grants, add_grant, revoke_grant),
)
