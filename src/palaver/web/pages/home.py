"""Home: what matters to the owner now. What waits for a decision comes first, then what fails, then how it goes."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from markupsafe import Markup
from starlette.exceptions import HTTPException
from starlette.responses import RedirectResponse, Response

from palaver.db.transaction import Statements, transaction
from palaver.engine.jobs.describe import schedule_text
from palaver.model import problem
from palaver.model.epochs import Epochs
from palaver.model.job import Job
from palaver.model.problem import ProblemArea
from palaver.model.providers import spell_model
from palaver.model.session import Principal, UsageTotal
from palaver.model.turn import OutboxState
from palaver.model.value import value
from palaver.platforms.plugins import BUILT_IN
from palaver.settings.agents import AgentConfig, EchoAgentConfig, GuideAgentConfig, ModelAgentConfig
from palaver.store.accounts import AccountHealth
from palaver.store.people.api_tokens import Right
from palaver.store.people.grants import Stranger
from palaver.store.people.usage import GroupBy
from palaver.store.results import Preview
from palaver.store.status.overview import OpenTurn
from palaver.store.status.session_list import CONVERSATIONS
from palaver.store.status.trace import DeliveryTrace
from palaver.web.pages.common import YOU, list_names, show_page
from palaver.web.pages.usage import total_of
from palaver.web.routes import WebRequest, action, page
from palaver.web.tokens import issue_link, qr_code

_MAX_SESSIONS, _MAX_JOBS, _MAX_WAITING, _MAX_FAILED = 6, 5, 20, 5
_BUILT_IN = frozenset({*BUILT_IN, "local"})
_WEEK = timedelta(days=7)
_LINKS = {
    ProblemArea.AGENT: ("/settings/model", "Change the model"),
    ProblemArea.ACCOUNT: ("/settings/accounts", "Open the accounts"),
}


@value
class Problem:
    """Something that does not work, why, and what to do."""

    cause: str
    fix: str
    since: datetime | None
    link: str = ""
    label: str = ""
    """What the link leads to."""


@value
class Overview:
    waiting: list[OpenTurn]
    strangers: list[Stranger]
    failed: list[DeliveryTrace]
    accounts: list[AccountHealth]
    problems: list[problem.Problem]
    usage: UsageTotal
    jobs: list[Job]
    recent: Sequence[Preview]
    names: Mapping[str, str]
    """Of the conversations, by id."""


@page("/")
async def home(request: WebRequest) -> Response:
    if not request.caller.is_owner:
        return RedirectResponse(_first_page(request), status_code=303)
    config = request.services.config()
    found = await request.read(lambda who: _read(request, who))
    return show_page(
        request,
        "home.html",
        found=found,
        problems=list_problems(request, found),
        agent=_agent_name(config.agent),
        offers=await request.services.find_offers(),
        has_no_model=isinstance(config.agent, GuideAgentConfig | EchoAgentConfig),
        schedule_text=schedule_text,
        people=await list_names(request),
        you=YOU,
    )


@action("/phone", owner_only=True)
async def phone(request: WebRequest) -> Response:
    """Show a login link for the owner's phone. It is shown once."""
    if request.caller.csrf is None:
        raise HTTPException(403, "Connect a phone in a browser, not with a token.")
    web = request.services.config().web
    link = code = ""
    if not web.only_here:
        link = await issue_link(request.store, web.url, request.now, identity=request.caller.identity)
        code = qr_code(link).svg_inline(scale=6, border=3, light="#fff")
    return show_page(request, "phone.html", link=link, code=Markup(code), only_here=web.only_here)  # noqa: S704 - ours


def _first_page(request: WebRequest) -> str:
    """Return what somebody comes for who is not the owner: their chat, if they have one here."""
    caller = request.caller
    return "/chat" if caller.has(Right.CHAT) and caller.web_user is not None else "/sessions"


@transaction
def _read(request: WebRequest, principal: Principal) -> Statements[Overview]:
    store, now = request.store, request.now
    open_turns = yield from store.overview.list_open_turns(principal, _MAX_WAITING * 10)
    usage = yield from store.usage.totals_by(
        GroupBy.MODEL, principal, since=now - _WEEK, zone=request.services.engine.settings.zones.default
    )
    jobs = yield from store.jobs.list_jobs(principal, limit=200)
    due = sorted((job for job in jobs if job.next_due and not job.paused), key=lambda job: job.next_due or now)
    states = (OutboxState.DEAD, OutboxState.UNCLEAR)
    failed = yield from store.overview.list_outbound(principal, states=states, limit=_MAX_FAILED)
    waiting = [item for item in open_turns if item.question][:_MAX_WAITING]
    recent = (
        yield from store.session_list.list_sessions(principal, wanted=CONVERSATIONS, limit=_MAX_SESSIONS)
    ).previews
    shown = (*(item.session for item in waiting), *(preview.session for preview in recent))
    return Overview(
        waiting=waiting,
        strangers=(yield from store.pairing.list_pending(now))[:_MAX_WAITING],
        failed=[item for item in failed if item.delivery.created > now - _WEEK],
        accounts=[each for each in (yield from store.accounts.list_health(now)) if not _is_connected_built_in(each)],
        problems=(yield from store.problems.list_problems(now)),
        usage=total_of(usage),
        jobs=due[:_MAX_JOBS],
        recent=recent,
        names=(yield from store.session_list.name_sessions(shown)),
    )


def _is_connected_built_in(account: AccountHealth) -> bool:
    """Every gateway has these, and they are connected."""
    return account.platform in _BUILT_IN and account.connected_since is not None


def list_problems(request: WebRequest, found: Overview) -> list[Problem]:
    """Return what does not work, the worst first."""
    problems: list[Problem] = []
    if clock := request.services.engine.clock_problem:
        problems.append(Problem(cause=f"This gateway serves nothing: {clock}.", fix="Correct the clock.", since=None))
    problems += [
        Problem(
            cause=each.cause,
            fix=each.fix,
            since=each.since,
            link=_LINKS[each.area][0],
            label=_LINKS[each.area][1],
        )
        for each in found.problems
    ]
    return [*problems, *(_delivery_problem(each, request.store.epochs) for each in found.failed)]


def _delivery_problem(item: DeliveryTrace, epochs: Epochs) -> Problem:
    out, is_unclear = item.delivery, item.delivery.state is OutboxState.UNCLEAR
    place = f"{out.outbound.platform} {out.outbound.chat_id}"
    cause = f"A message to {place} may not have arrived" if is_unclear else f"A message to {place} was not delivered"
    fix = "Look whether it arrived, then settle it." if is_unclear else "Look at its trace."
    return Problem(
        cause=f"{cause}: {out.error}" if out.error else f"{cause}.",
        fix=fix,
        since=out.created,
        link=f"/trace?name={epochs.send(out.number)}",
        label="Trace it",
    )


def _agent_name(agent: AgentConfig) -> str:
    match agent:
        case ModelAgentConfig():
            return spell_model(agent.model)
        case GuideAgentConfig():
            return "The guide"
        case _:
            return {"local": "The local model"}.get(agent.name, f"The agent {agent.name}")


ROUTES = (home, phone)
