"""The page for people, pairing requests and grants."""

import re

from starlette.exceptions import HTTPException
from starlette.responses import PlainTextResponse, Response

from palaver.db.transaction import Statements, transaction
from palaver.engine.intake.roles import role_of_source
from palaver.model.access import GRANTEE_FORMS, AccessRole, ChatKind, describe_grant
from palaver.model.errors import BadArgument, NotFound
from palaver.model.session import Principal
from palaver.model.source import Source
from palaver.model.text import one_line
from palaver.store.people.grants import Change, GrantTable, Stranger
from palaver.store.people.key_rights import ended_text
from palaver.store.people.people import Person
from palaver.web.access import add_grant, approve_stranger, deny_stranger, revoke_grant
from palaver.web.caller import OWNER
from palaver.web.pages.common import answer_action, name_of, query_value, read_stripped_form, show_page, with_query
from palaver.web.routes import WebRequest, action, page
from palaver.web.tokens import issue_link

_PAGE_SIZE, _CHANGES = 50, 20
_ROLES = [(role.text, role.text) for role in AccessRole]
_WEB_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,39}", re.ASCII)


@page("/people", owner_only=True)
async def show(request: WebRequest) -> Response:
    store, now, after = request.store, request.now, query_value(request, "after")[:200]

    @transaction
    def read(principal: Principal) -> Statements[tuple[list[Person], list[Stranger], GrantTable, list[Change]]]:
        people = yield from store.people.list_people(principal, after=after, limit=_PAGE_SIZE)
        strangers = yield from store.pairing.list_pending(now)
        table = yield from store.grants.load_table(GrantTable())
        return people, strangers, table, (yield from store.grants.list_changes(_CHANGES))

    people, strangers, table, changes = await request.read(read)
    stored = [(number, describe_grant(grant)) for number, grant in table.grants.items()]
    configured = [(0, describe_grant(grant)) for grant in request.services.engine.settings.grants]
    return show_page(
        request,
        "people.html",
        people=people,
        name_of=name_of,
        more=with_query(request, after=people[-1].id) if len(people) == _PAGE_SIZE else None,
        strangers=strangers,
        grants=[*stored, *configured],
        changes=list(reversed(changes)),
        roles=_ROLES,
        whom=GRANTEE_FORMS,
    )


@action("/people/approve", owner_only=True)
async def approve(request: WebRequest) -> Response:
    form = await read_stripped_form(request)
    role = _role(form)
    stranger = await approve_stranger(request, form.get("code") or form.get("identity", ""), role)
    return _answer(request, f"Approved {stranger.identity} as {role.text}.")


@action("/people/invite", owner_only=True)
async def invite(request: WebRequest) -> Response:
    """Grant somebody the web chat and make the link that logs them in."""
    if request.caller.csrf is None:
        raise HTTPException(403, "Invite people in a browser, not with a token.")
    form = await read_stripped_form(request)
    name, role = form.get("name", "").lower(), _role(form)
    if not _WEB_NAME.fullmatch(name) or name == OWNER:
        raise BadArgument("Choose a short name.", found=name, allowed="letters, digits, . - and _", example="alice")
    if role >= AccessRole.OWNER:
        raise BadArgument(
            "A guest of the web chat cannot be", found=role.text, allowed="another role", example="member"
        )
    known = await request.read(lambda who: _find_person(request, f"web:{name}", who))
    if known and any(account.identity == request.caller.identity for account in known.identities):
        raise BadArgument("This is an account of yours.", found=name, allowed="a name of theirs", example="alice")
    # The configuration can grant more than this page.
    source = Source(platform="web", user_id=name)
    if await request.store.read(role_of_source(source, request.services.engine.settings.grants)) is AccessRole.OWNER:
        raise BadArgument("This name has the rights of an owner.", found=name, allowed="another name", example="alice")
    await add_grant(request, f"web:{name}", role, blocks=False)
    web = request.services.config().web
    link = await issue_link(request.store, web.url, request.now, identity=f"web:{name}")
    where = "" if web.public_url else ", on this machine only (web.public_url is not set)"
    old = f"It opens the conversations that {name} already has. " if known else ""
    # Shown once, with or without a script.
    return PlainTextResponse(f"Send {name} this link. {old}It works once, within an hour{where}: {link}")


@transaction
def _find_person(request: WebRequest, identity: str, principal: Principal) -> Statements[Person | None]:
    try:
        return (yield from request.store.people.find_person(identity, principal))
    except NotFound:
        return None


@action("/people/deny", owner_only=True)
async def deny(request: WebRequest) -> Response:
    form = await read_stripped_form(request)
    blocks = bool(form.get("block"))
    stranger = await deny_stranger(request, form.get("identity", ""), blocks=blocks)
    return _answer(request, f"{'Blocked' if blocks else 'Denied'} {stranger.identity}.")


@action("/people/grants", owner_only=True)
async def grant(request: WebRequest) -> Response:
    form = await read_stripped_form(request)
    places = {"chat_id": "chat", "scope_id": "server", "account": "account"}
    place = {name: form.get(field) or None for name, field in places.items()}
    blocks = bool(form.get("block"))
    kind = ChatKind.parse(form["kind"]) if form.get("kind") else None
    number, added, ended = await add_grant(request, form.get("who", ""), _role(form), blocks=blocks, kind=kind, **place)
    return _answer(request, f"Added grant {number}: {describe_grant(added)}.{ended_text(ended)}")


@action("/people/grants/{number:int}/remove", owner_only=True)
async def remove(request: WebRequest) -> Response:
    number, removed, ended = await revoke_grant(request)
    return _answer(request, f"Revoked grant {number}: {describe_grant(removed)}.{ended_text(ended)}")


def _answer(request: WebRequest, notice: str) -> Response:
    return answer_action(request, one_line(notice, 500), "/people")


def _role(form: dict[str, str]) -> AccessRole:
    return AccessRole.parse(form.get("role") or AccessRole.MEMBER.text)


ROUTES = (show, approve, invite, deny, grant, remove)
