"""The API: people, strangers who ask to be let in, and grants."""

from collections.abc import Mapping
from typing import Annotated

from msgspec import Meta

from palaver.engine import texts
from palaver.engine.delivery.replies import Replies
from palaver.model.access import AccessRole, Basis, Effect, Grant
from palaver.model.codes import parse_code
from palaver.model.errors import BadArgument, NotFound
from palaver.model.grant_syntax import whom
from palaver.model.label import Label
from palaver.store.people.grants import Stranger, Table
from palaver.store.people.people import Person
from palaver.store.status.journal_feed import Right
from palaver.web.api.endpoints import Ask, Endpoint, Shape
from palaver.web.api.schemas import Limit, Moment

__all__ = [
    "ENDPOINTS",
    "ApproveShape",
    "DenyShape",
    "GrantShape",
    "GrantsShape",
    "IdentityShape",
    "NewGrantShape",
    "PeopleShape",
    "PersonShape",
    "StrangerShape",
    "StrangersShape",
]

_Text = Annotated[str, Meta(min_length=1, max_length=500)]
_LARGEST = (1 << 62) - 1


class IdentityShape(Shape, frozen=True, kw_only=True):
    identity: str
    name: str | None
    since: Moment


class PersonShape(Shape, frozen=True, kw_only=True):
    id: str
    name: str | None
    since: Moment
    identities: list[IdentityShape]


class PeopleShape(Shape, frozen=True, kw_only=True):
    people: list[PersonShape]
    after: str | None
    """Where the next page begins; null on the last one."""


class _PeopleQuery(Shape, frozen=True, kw_only=True):
    after: str = ""
    limit: Limit = 100


def _plain(name: Label | None) -> str | None:
    return name and name.plain()


def _person(person: Person) -> PersonShape:
    return PersonShape(
        id=person.id,
        name=_plain(person.name),
        since=person.since,
        identities=[
            IdentityShape(identity=each.identity, name=_plain(each.name), since=each.since)
            for each in person.identities
        ],
    )


async def _list(ask: Ask) -> PeopleShape:
    query, people = ask.query, ask.desk.store.people
    found = await ask.desk.read(
        ask.visitor, lambda principal: people.everybody(principal, after=query.after, limit=query.limit)
    )
    return PeopleShape(people=list(map(_person, found)), after=found[-1].id if len(found) == query.limit else None)


async def _get(ask: Ask) -> PersonShape:
    people = ask.desk.store.people
    return _person(await ask.desk.read(ask.visitor, lambda who: people.find_person(ask.path["name"], who)))


class StrangerShape(Shape, frozen=True, kw_only=True):
    identity: str
    name: str | None
    asked: Moment
    expires: Moment
    waiting: int
    """How many messages of theirs wait."""


class StrangersShape(Shape, frozen=True, kw_only=True):
    strangers: list[StrangerShape]


def _stranger(stranger: Stranger) -> StrangerShape:
    return StrangerShape(
        identity=stranger.identity,
        name=_plain(stranger.name),
        asked=stranger.asked,
        expires=stranger.expires,
        waiting=stranger.kept,
    )


async def _strangers(ask: Ask) -> StrangersShape:
    found = await ask.desk.store.read(ask.desk.store.pairing.pending(ask.desk.clock.now()))
    return StrangersShape(strangers=list(map(_stranger, found)))


class ApproveShape(Shape, frozen=True, kw_only=True):
    code: _Text
    role: str = AccessRole.MEMBER.text


async def _approve(ask: Ask) -> StrangerShape:
    body, desk = ask.body, ask.desk
    code, role, replies = parse_code(body.code), AccessRole.named(body.role), Replies({})
    found = await desk.act(
        ask.visitor,
        lambda principal: desk.store.pairing.approve(
            code,
            role,
            desk.clock.now(),
            by=principal.name,
            answer=lambda source: replies.to(source, texts.PAIRED),
        ),
    )
    desk.hub.hint("people")
    if found is None:
        allowed = "what a stranger was given in the last hour"
        raise BadArgument("Nobody waits with the code", found=body.code, allowed=allowed, example="K7QM3XPR")
    return _stranger(found)


class DenyShape(Shape, frozen=True, kw_only=True):
    who: _Text
    """An identity, or a code."""
    block: bool = False
    """For good."""


async def _deny(ask: Ask) -> StrangerShape:
    body, desk = ask.body, ask.desk
    found = await desk.act(
        ask.visitor,
        lambda who: desk.store.pairing.deny(body.who, desk.clock.now(), by=who.name, blocks=body.block),
    )
    desk.hub.hint("people")
    if found is None:
        raise NotFound("stranger", body.who)
    return _stranger(found)


class GrantShape(Shape, frozen=True, kw_only=True):
    number: int | None
    """Null for what stands in the configuration."""
    grant: Mapping[str, str]


class GrantsShape(Shape, frozen=True, kw_only=True):
    grants: list[GrantShape]


async def _grants(ask: Ask) -> GrantsShape:
    table = await ask.desk.store.read(ask.desk.store.grants.table(Table()))
    fixed = [GrantShape(number=None, grant=grant.to_json()) for grant in ask.desk.engine.options.grants]
    kept = [GrantShape(number=number, grant=grant.to_json()) for number, grant in table.grants.items()]
    return GrantsShape(grants=[*fixed, *kept])


class NewGrantShape(Shape, frozen=True, kw_only=True):
    to: _Text
    """telegram:7, a whole platform, person:ID, or everybody."""
    role: str = AccessRole.MEMBER.text
    chat: _Text | None = None
    block: bool = False


async def _grant(ask: Ask) -> GrantShape:
    body, desk = ask.body, ask.desk
    grant = Grant(
        effect=Effect.BLOCK if body.block else Effect.ALLOW,
        role=AccessRole.named(body.role),
        basis=Basis.IDENTITY,
        chat_id=body.chat,
        **whom(body.to, desk.platforms),
    )
    number = await desk.act(ask.visitor, lambda who: desk.store.grants.add(grant, desk.clock.now(), by=who.name))
    desk.hub.hint("people")
    return GrantShape(number=number, grant=grant.to_json())


async def _revoke(ask: Ask) -> GrantShape:
    desk, number = ask.desk, min(ask.path["number"], _LARGEST)
    grant = await desk.act(ask.visitor, lambda who: desk.store.grants.remove(number, desk.clock.now(), by=who.name))
    desk.hub.hint("people")
    if grant is None:
        raise NotFound("grant", str(number))
    return GrantShape(number=number, grant=grant.to_json())


ENDPOINTS = (
    Endpoint(
        method="GET",
        path="/people",
        does=_list,
        asks=_PeopleQuery,
        gives=PeopleShape,
        needs=Right.MANAGE,
        for_owner=True,
        summary="People, and under which identities they are known",
    ),
    Endpoint(
        method="GET",
        path="/people/{name}",
        does=_get,
        gives=PersonShape,
        needs=Right.MANAGE,
        for_owner=True,
        summary="A person, by id or by an identity",
    ),
    Endpoint(
        method="GET",
        path="/pairing",
        does=_strangers,
        gives=StrangersShape,
        needs=Right.MANAGE,
        for_owner=True,
        summary="Strangers who ask to be let in",
    ),
    Endpoint(
        method="POST",
        path="/pairing/approve",
        does=_approve,
        takes=ApproveShape,
        example={"code": "K7QM3XPR", "role": "member"},
        gives=StrangerShape,
        needs=Right.MANAGE,
        for_owner=True,
        summary="Let in whoever has a code",
    ),
    Endpoint(
        method="POST",
        path="/pairing/deny",
        does=_deny,
        takes=DenyShape,
        example={"who": "telegram:7"},
        gives=StrangerShape,
        needs=Right.MANAGE,
        for_owner=True,
        summary="Turn a stranger away",
    ),
    Endpoint(
        method="GET",
        path="/grants",
        does=_grants,
        gives=GrantsShape,
        needs=Right.MANAGE,
        for_owner=True,
        summary="Who may do what",
    ),
    Endpoint(
        method="POST",
        path="/grants",
        does=_grant,
        takes=NewGrantShape,
        example={"to": "telegram:7", "role": "member"},
        gives=GrantShape,
        status=201,
        needs=Right.MANAGE,
        for_owner=True,
        summary="Let somebody in, or keep them out",
    ),
    Endpoint(
        method="DELETE",
        path="/grants/{number:int}",
        does=_revoke,
        gives=GrantShape,
        needs=Right.MANAGE,
        for_owner=True,
        summary="Take a grant back",
    ),
)
