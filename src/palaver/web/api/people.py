"""API endpoints for people, pairing requests and grants."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Annotated

from msgspec import Meta

from palaver.model.access import AccessRole, ChatKind
from palaver.operations.operation import Limit, Schema, Timestamp, fill
from palaver.store.people.api_tokens import Credential, Right
from palaver.store.people.grants import GrantTable, Stranger
from palaver.store.people.people import Person
from palaver.web import access
from palaver.web.api.endpoints import endpoint
from palaver.web.routes import WebRequest

_Text = Annotated[str, Meta(min_length=1, max_length=500)]
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


def _person_schema(person: Person) -> PersonSchema:
    return fill(PersonSchema, person, identities=[fill(IdentitySchema, identity) for identity in person.identities])


@_owner_endpoint("GET", "/people", summary="List people and their identities")
async def list_people(request: WebRequest, query: _PeopleQuery) -> PeopleSchema:
    find = request.store.people.list_people
    found = await request.read(lambda principal: find(principal, after=query.after, limit=query.limit))
    after = found[-1].id if len(found) == query.limit else None
    return PeopleSchema(people=list(map(_person_schema, found)), after=after)


@_owner_endpoint("GET", "/people/{name}", summary="Get a person by id or identity")
async def get_person(request: WebRequest) -> PersonSchema:
    find = request.store.people.find_person
    return _person_schema(await request.read(lambda principal: find(request.path["name"], principal)))


class StrangerSchema(Schema, frozen=True, kw_only=True):
    identity: str
    account: str | None
    """The bot account they asked at."""
    name: str | None
    asked: Timestamp
    expires: Timestamp
    waiting: int
    """How many of their messages wait."""


class StrangersSchema(Schema, frozen=True, kw_only=True):
    strangers: list[StrangerSchema]


def _stranger_schema(stranger: Stranger) -> StrangerSchema:
    return fill(StrangerSchema, stranger, account=stranger.source.account, waiting=stranger.kept)


@_owner_endpoint("GET", "/pairing", summary="List pairing requests")
async def list_strangers(request: WebRequest) -> StrangersSchema:
    found = await request.store.read(request.store.pairing.list_pending(request.now))
    return StrangersSchema(strangers=list(map(_stranger_schema, found)))


class ApproveSchema(Schema, frozen=True, kw_only=True):
    who: _Text
    """An identity, or a code."""
    role: str = AccessRole.MEMBER.text


@_owner_endpoint(
    "POST",
    "/pairing/approve",
    summary="Approve a pairing request",
    example={"who": "K7QM3XPR", "role": "member"},
)
async def approve(request: WebRequest, body: ApproveSchema) -> StrangerSchema:
    return _stranger_schema(await access.approve_stranger(request, body.who, AccessRole.parse(body.role)))


class DenySchema(Schema, frozen=True, kw_only=True):
    who: _Text
    """An identity, or a code."""
    block: bool = False
    """Permanently."""


@_owner_endpoint("POST", "/pairing/deny", summary="Deny a pairing request", example={"who": "telegram:7"})
async def deny(request: WebRequest, body: DenySchema) -> StrangerSchema:
    return _stranger_schema(await access.deny_stranger(request, body.who, blocks=body.block))


class GrantSchema(Schema, frozen=True, kw_only=True):
    number: int | None
    """Null if it comes from the configuration."""
    grant: Mapping[str, str]


class EndedKeySchema(Schema, frozen=True, kw_only=True):
    number: int
    kind: str
    """login, token or link."""
    name: str
    identity: str


class ChangedGrantSchema(GrantSchema, frozen=True, kw_only=True, omit_defaults=True):
    ended: tuple[EndedKeySchema, ...] = ()
    """The logins and tokens that ended, since their people lost access; left out if there are none."""


def _ended(keys: Sequence[Credential]) -> tuple[EndedKeySchema, ...]:
    return tuple(fill(EndedKeySchema, key, kind=key.kind.value, identity=key.identity or "") for key in keys)


class GrantsSchema(Schema, frozen=True, kw_only=True):
    grants: list[GrantSchema]


@_owner_endpoint("GET", "/grants", summary="List grants")
async def list_grants(request: WebRequest) -> GrantsSchema:
    table = await request.store.read(request.store.grants.load_table(GrantTable()))
    configured = [GrantSchema(number=None, grant=grant.to_json()) for grant in request.services.engine.settings.grants]
    stored = [GrantSchema(number=number, grant=grant.to_json()) for number, grant in table.grants.items()]
    return GrantsSchema(grants=[*configured, *stored])


class NewGrantSchema(Schema, frozen=True, kw_only=True):
    to: _Text
    """telegram:7, a whole platform, person:ID, or everybody."""
    role: str = AccessRole.MEMBER.text
    kind: ChatKind | None = None
    """Only in direct chats, or only in groups, channels and threads."""
    chat: _Text | None = None
    block: bool = False


@_owner_endpoint(
    "POST", "/grants", summary="Grant or block access", example={"to": "telegram:7", "role": "member"}, status=201
)
async def add_grant(request: WebRequest, body: NewGrantSchema) -> ChangedGrantSchema:
    role = AccessRole.parse(body.role)
    number, grant, ended = await access.add_grant(
        request, body.to, role, blocks=body.block, kind=body.kind, chat_id=body.chat
    )
    return ChangedGrantSchema(number=number, grant=grant.to_json(), ended=_ended(ended))


@_owner_endpoint("DELETE", "/grants/{number:int}", summary="Revoke a grant")
async def revoke_grant(request: WebRequest) -> ChangedGrantSchema:
    number, grant, ended = await access.revoke_grant(request)
    return ChangedGrantSchema(number=number, grant=grant.to_json(), ended=_ended(ended))


ENDPOINTS = (list_people, get_person, list_strangers, approve, deny, list_grants, add_grant, revoke_grant)
