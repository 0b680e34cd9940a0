"""The API: people, strangers who ask to be let in, and grants."""

from collections.abc import Mapping
from typing import Annotated

from msgspec import Meta

from palaver.engine import texts
from palaver.model.access import AccessRole, Basis, Effect, Grant
from palaver.model.codes import parse_code
from palaver.model.errors import BadArgument, NotFound
from palaver.model.grant_syntax import parse_grantee
from palaver.model.label import Label
from palaver.store.people.api_tokens import Right
from palaver.store.people.grants import GrantTable, Stranger
from palaver.store.people.people import Person
from palaver.web.api.endpoints import Ask, Endpoint, Schema
from palaver.web.api.schemas import Limit, Moment

__all__ = [
    "ENDPOINTS",
    "ApproveSchema",
    "DenySchema",
    "GrantSchema",
    "GrantsSchema",
    "IdentitySchema",
    "NewGrantSchema",
    "PeopleSchema",
    "PersonSchema",
    "StrangerSchema",
    "StrangersSchema",
]

_Text = Annotated[str, Meta(min_length=1, max_length=500)]
_LARGEST = (1 << 62) - 1


class IdentitySchema(Schema, frozen=True, kw_only=True):
    identity: str
    name: str | None
    since: Moment


class PersonSchema(Schema, frozen=True, kw_only=True):
    id: str
    name: str | None
    since: Moment
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


def _person(person: Person) -> PersonSchema:
    return PersonSchema(
        id=person.id,
        name=_plain(person.name),
        since=person.since,
        identities=[
            IdentitySchema(identity=each.identity, name=_plain(each.name), since=each.since)
            for each in person.identities
        ],
    )


async def _list(ask: Ask) -> PeopleSchema:
    query, people = ask.query, ask.services.store.people
    found = await ask.services.read(
        ask.caller, lambda principal: people.list_people(principal, after=query.after, limit=query.limit)
    )
    return PeopleSchema(people=list(map(_person, found)), after=found[-1].id if len(found) == query.limit else None)


async def _get(ask: Ask) -> PersonSchema:
    people = ask.services.store.people
    return _person(await ask.services.read(ask.caller, lambda who: people.find_person(ask.path["name"], who)))


class StrangerSchema(Schema, frozen=True, kw_only=True):
    identity: str
    name: str | None
    asked: Moment
    expires: Moment
    waiting: int
    """How many messages of theirs wait."""


class StrangersSchema(Schema, frozen=True, kw_only=True):
    strangers: list[StrangerSchema]


def _stranger(stranger: Stranger) -> StrangerSchema:
    return StrangerSchema(
        identity=stranger.identity,
        name=_plain(stranger.name),
        asked=stranger.asked,
        expires=stranger.expires,
        waiting=stranger.kept,
    )


async def _strangers(ask: Ask) -> StrangersSchema:
    found = await ask.services.store.read(ask.services.store.pairing.list_pending(ask.services.clock.now()))
    return StrangersSchema(strangers=list(map(_stranger, found)))


class ApproveSchema(Schema, frozen=True, kw_only=True):
    code: _Text
    role: str = AccessRole.MEMBER.text


async def _approve(ask: Ask) -> StrangerSchema:
    body, services = ask.body, ask.services
    code, role = parse_code(body.code), AccessRole.parse(body.role)
    found = await services.act(
        ask.caller,
        lambda principal: services.store.pairing.approve(
            code,
            role,
            services.clock.now(),
            by=principal.name,
            notice=texts.PAIRED,
        ),
    )
    services.hub.hint("people")
    if found is None:
        allowed = "what a stranger was given in the last hour"
        raise BadArgument("Nobody waits with the code", found=body.code, allowed=allowed, example="K7QM3XPR")
    return _stranger(found)


class DenySchema(Schema, frozen=True, kw_only=True):
    who: _Text
    """An identity, or a code."""
    block: bool = False
    """For good."""


async def _deny(ask: Ask) -> StrangerSchema:
    body, services = ask.body, ask.services
    found = await services.act(
        ask.caller,
        lambda who: services.store.pairing.deny(body.who, services.clock.now(), by=who.name, blocks=body.block),
    )
    services.hub.hint("people")
    if found is None:
        raise NotFound("stranger", body.who)
    return _stranger(found)


class GrantSchema(Schema, frozen=True, kw_only=True):
    number: int | None
    """Null for what stands in the configuration."""
    grant: Mapping[str, str]


class GrantsSchema(Schema, frozen=True, kw_only=True):
    grants: list[GrantSchema]


async def _grants(ask: Ask) -> GrantsSchema:
    table = await ask.services.store.read(ask.services.store.grants.load_table(GrantTable()))
    fixed = [GrantSchema(number=None, grant=grant.to_json()) for grant in ask.services.engine.options.grants]
    kept = [GrantSchema(number=number, grant=grant.to_json()) for number, grant in table.grants.items()]
    return GrantsSchema(grants=[*fixed, *kept])


class NewGrantSchema(Schema, frozen=True, kw_only=True):
    to: _Text
    """telegram:7, a whole platform, person:ID, or everybody."""
    role: str = AccessRole.MEMBER.text
    chat: _Text | None = None
    block: bool = False


async def _grant(ask: Ask) -> GrantSchema:
    body, services = ask.body, ask.services
    grant = Grant(
        effect=Effect.BLOCK if body.block else Effect.ALLOW,
        role=AccessRole.parse(body.role),
        basis=Basis.IDENTITY,
        chat_id=body.chat,
        **parse_grantee(body.to, services.platforms),
    )
    number = await services.act(
        ask.caller, lambda who: services.store.grants.add(grant, services.clock.now(), by=who.name)
    )
    services.hub.hint("people")
    return GrantSchema(number=number, grant=grant.to_json())


async def _revoke(ask: Ask) -> GrantSchema:
    services, number = ask.services, min(ask.path["number"], _LARGEST)
    grant = await services.act(
        ask.caller, lambda who: services.store.grants.remove(number, services.clock.now(), by=who.name)
    )
    services.hub.hint("people")
    if grant is None:
        raise NotFound("grant", str(number))
    return GrantSchema(number=number, grant=grant.to_json())


ENDPOINTS = (
    Endpoint(
        method="GET",
        path="/people",
        does=_list,
        asks=_PeopleQuery,
        gives=PeopleSchema,
        needs=Right.MANAGE,
        for_owner=True,
        summary="People, and under which identities they are known",
    ),
    Endpoint(
        method="GET",
        path="/people/{name}",
        does=_get,
        gives=PersonSchema,
        needs=Right.MANAGE,
        for_owner=True,
        summary="A person, by id or by an identity",
    ),
    Endpoint(
        method="GET",
        path="/pairing",
        does=_strangers,
        gives=StrangersSchema,
        needs=Right.MANAGE,
        for_owner=True,
        summary="Strangers who ask to be let in",
    ),
    Endpoint(
        method="POST",
        path="/pairing/approve",
        does=_approve,
        takes=ApproveSchema,
        example={"code": "K7QM3XPR", "role": "member"},
        gives=StrangerSchema,
        needs=Right.MANAGE,
        for_owner=True,
        summary="Let in whoever has a code",
    ),
    Endpoint(
        method="POST",
        path="/pairing/deny",
        does=_deny,
        takes=DenySchema,
        example={"who": "telegram:7"},
        gives=StrangerSchema,
        needs=Right.MANAGE,
        for_owner=True,
        summary="Turn a stranger away",
    ),
    Endpoint(
        method="GET",
        path="/grants",
        does=_grants,
        gives=GrantsSchema,
        needs=Right.MANAGE,
        for_owner=True,
        summary="Who may do what",
    ),
    Endpoint(
        method="POST",
        path="/grants",
        does=_grant,
        takes=NewGrantSchema,
        example={"to": "telegram:7", "role": "member"},
        gives=GrantSchema,
        status=201,
        needs=Right.MANAGE,
        for_owner=True,
        summary="Let somebody in, or keep them out",
    ),
    Endpoint(
        method="DELETE",
        path="/grants/{number:int}",
        does=_revoke,
        gives=GrantSchema,
        needs=Right.MANAGE,
        for_owner=True,
        summary="Take a grant back",
    ),
)
