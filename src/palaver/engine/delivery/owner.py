"""Tell the owner of the gateway, or of a job, what went wrong: in the first place that works."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from palaver.db.transaction import Statements, transaction
from palaver.engine import texts
from palaver.model.access import Grant
from palaver.model.source import DM, Source
from palaver.model.split import ReplyRoutes
from palaver.model.turn import Delivery, Outbound, outbound_to
from palaver.model.value import value
from palaver.store import accounts
from palaver.store.people import access_rules
from palaver.store.queue import outbox
from palaver.store.queue.cause import SendCause
from palaver.store.records import chat_columns


@value(kw_only=False)
class Reporting:
    """What decides where the owner gets a notice."""

    routes: ReplyRoutes
    grants: Sequence[Grant]
    """The configured ones."""
    unclear_every: timedelta = timedelta(hours=1)
    """How often at most to report sends that stay unclear."""


@transaction
def notify_owner(
    outbound: Outbound,
    text: str,
    cause: SendCause,
    reporting: Reporting,
    now: datetime,
    *,
    avoids: tuple[tuple[str, ...], ...] = (),
) -> Statements[None]:
    """Tell the owner of the gateway something about the chat of `outbound`, in the first place that works.

    That is a home channel, else the direct chat that they used last, else a terminal or web window; the chat in
    question itself only if there is no other of its kind. None of the accounts and chats that it `avoids` works. If
    there is no home channel, mention once that there can be one.
    """
    routes, account = reporting.routes, (outbound.platform, outbound.account)

    def is_far(place: Source) -> bool:
        return (place.platform, place.account) != account

    def is_there(place: Source) -> bool:
        return place.address[:-1] == outbound.chat

    known = yield from accounts.list_all_homes(access_rules.load(reporting.grants))
    homes = [home for home in known if routes.reaches_people(home)]
    chats = yield from accounts.owner_chats(reporting.grants, routes)
    # A home at the same account first, and a group of another one last.
    homes.sort(key=lambda home: (is_there(home), is_far(home) and home.chat_kind != DM, is_far(home)))
    chats.sort(key=lambda chat: (not routes.has_places(chat), is_there(chat)))
    for place in (*homes, *chats):
        columns = chat_columns(outbound_to(place, ""))
        if columns in avoids or columns[:1] in avoids or (yield from accounts.is_chat_gone(outbound_to(place, ""))):
            continue
        hint = "" if homes or not (yield from accounts.take_home_hint()) else f" {texts.NO_HOME}"
        yield from _enqueue(place, f"{text}{hint}", cause, routes, now, avoids=avoids)
        return


def _enqueue(
    place: Source,
    text: str,
    cause: SendCause,
    routes: ReplyRoutes,
    now: datetime,
    *,
    avoids: tuple[tuple[str, ...], ...] = (),
) -> Statements[None]:
    parts = [replace(part, avoids=avoids) for part in routes.notices(place, text)]
    yield from outbox.enqueue_parts(parts, cause, now)


@transaction
def pass_on(notice: Delivery, reporting: Reporting, now: datetime) -> Statements[None]:
    """Send a notice to the owner that one place refused to the next one, if there is any."""
    cause, outbound = (yield from outbox.get_cause(notice.number)), notice.outbound
    if cause is not None:
        cause = cause._replace(detail=f"{cause.detail} after out:{notice.number}")
        avoids = (*(outbound.avoids or ()), chat_columns(outbound))
        yield from notify_owner(outbound, outbound.text, cause, reporting, now, avoids=avoids)


@transaction
def notify_job_owner(
    origin: Source, text: str, cause: SendCause, reporting: Reporting, now: datetime
) -> Statements[None]:
    """Tell the person in the chat where they made the job; the owner of the gateway if that reaches nobody."""
    is_gone = yield from accounts.is_chat_gone(outbound_to(origin, ""))
    if reporting.routes.reaches_people(origin) and not is_gone:
        yield from _enqueue(origin, text, cause, reporting.routes, now)
    else:
        yield from notify_owner(outbound_to(origin, ""), text, cause, reporting, now)
