"""The page for scheduled jobs: what runs when, the last results, and buttons to change them."""

from collections.abc import Mapping
from functools import partial

from starlette.responses import Response

from palaver.engine.jobs.describe import change_text, named, next_text, schedule_text
from palaver.model.errors import NotFound
from palaver.model.job import Job, JobAction
from palaver.model.source import readable_identity
from palaver.model.text import one_line
from palaver.operations import jobs
from palaver.web.pages.common import YOU, answer_action, list_names, query_value, read_stripped_form, show_page
from palaver.web.routes import WebRequest, action, page

_MAX_SHOWN = 200


@page("/jobs")
async def show(request: WebRequest) -> Response:
    ended = query_value(request, "ended") == "1"
    found = await request.operate(jobs.list_jobs, jobs.JobsQuery(ended=ended, limit=_MAX_SHOWN))
    return show_page(
        request,
        "jobs.html",
        jobs=found.jobs,
        ended=ended,
        schedule_text=schedule_text,
        targets=await _targets(request),
        describe=partial(_describe, await list_names(request)),
    )


async def _targets(request: WebRequest) -> list[tuple[str, str]]:
    """Return the usual targets: your web chat, and the home channels of platforms."""
    homes = await request.store.read(request.store.accounts.list_configured_homes()) if request.caller.is_owner else []
    platforms = sorted({home.platform for home in homes})
    return [
        ("origin", "your web chat"),
        *((name, "its home channel") for name in platforms),
        ("local", "a file"),
        ("all", "everywhere"),
    ]


_PLACES = {"origin": "the chat where it was made", "local": "a file", "all": "every home channel"}


def _describe(names: Mapping[str, str], job: Job) -> str:
    """Say whose a job is and where its answers go."""
    name = names.get(job.owner) or readable_identity(job.owner)
    places = [_PLACES.get(each.strip(), each.strip()) for each in job.targets.split(",")]
    return f"{'yours' if name == YOU else f'of {name}'}, to {', '.join(places)}"


@page("/jobs/{number:int}")
async def show_job(request: WebRequest) -> Response:
    found = await request.operate(jobs.show_job, str(request.path["number"]))
    return show_page(
        request,
        "job.html",
        item=found,
        job=found.job,
        schedule_text=schedule_text,
        describe=partial(_describe, await list_names(request)),
    )


@action("/jobs")
async def create(request: WebRequest) -> Response:
    form = await read_stripped_form(request)
    asked = jobs.NewJobSchema(
        when=form.get("when", ""),
        prompt=form.get("prompt", ""),
        name=form.get("name", ""),
        to=form.get("to") or "origin",
        mirrors=bool(form.get("mirrors")),
        skips_silent=not form.get("always"),
    )
    job = (await request.operate(jobs.add_job, asked)).job
    zone = request.services.engine.settings.zones.default
    return _answer(request, f"{named(job)} runs {schedule_text(job)}, {next_text(job, request.now, zone)}")


@action("/jobs/{number:int}/{action}")
async def change(request: WebRequest) -> Response:
    asked = request.path["action"]
    if asked not in set(JobAction):
        raise NotFound("action", asked)
    changed = await request.operate(jobs.CHANGES[JobAction(asked)], str(request.path["number"]))
    return _answer(request, change_text(changed.job, JobAction(asked)), moved=asked == JobAction.REMOVE)


def _answer(request: WebRequest, notice: str, *, moved: bool = False) -> Response:
    return answer_action(request, one_line(f"{notice}.", 500), "/jobs", moved=moved)


ROUTES = (show, show_job, create, change)
