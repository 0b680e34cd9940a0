"""The page for scheduled jobs: what runs when, the last results, and buttons to change them."""

from starlette.responses import Response

from palaver.engine.jobs.describe import schedule_text
from palaver.model.job import Job, JobRequest
from palaver.model.text import one_line
from palaver.web.jobs import JobService
from palaver.web.pages.common import answer_action, query_value, read_form, show_page
from palaver.web.routes import WebRequest, action, page

_MAX_SHOWN = 200


@page("/jobs")
async def show(request: WebRequest) -> Response:
    ended = query_value(request, "ended") == "1"
    found = await JobService(request).list_jobs(ended=ended, limit=_MAX_SHOWN)
    return show_page(request, "jobs.html", jobs=found, ended=ended, schedule_text=schedule_text)


@page("/jobs/{number:int}")
async def show_job(request: WebRequest) -> Response:
    found = await JobService(request).get(str(request.path["number"]))
    return show_page(request, "job.html", item=found, job=found.job, schedule_text=schedule_text)


@action("/jobs")
async def create(request: WebRequest) -> Response:
    form = {name: text.strip() for name, text in (await read_form(request)).items()}
    asked = JobRequest(
        when=form.get("when", ""),
        prompt=form.get("prompt", ""),
        name=form.get("name", ""),
        to=form.get("to") or "origin",
        mirrors=bool(form.get("mirrors")),
        skips_silent=not form.get("always"),
    )
    job = (await JobService(request).create(asked)).job
    return _answer(request, job, f"runs {schedule_text(job)}")


@action("/jobs/{number:int}/pause")
async def pause(request: WebRequest) -> Response:
    return _answer(request, (await JobService(request).pause(str(request.path["number"]))).job, "is paused")


@action("/jobs/{number:int}/resume")
async def resume(request: WebRequest) -> Response:
    return _answer(request, (await JobService(request).resume(str(request.path["number"]))).job, "runs again")


@action("/jobs/{number:int}/run")
async def run(request: WebRequest) -> Response:
    return _answer(request, (await JobService(request).run(str(request.path["number"]))).job, "runs now")


@action("/jobs/{number:int}/remove")
async def remove(request: WebRequest) -> Response:
    return _answer(request, await JobService(request).remove(str(request.path["number"])), "is removed", moved=True)


def _answer(request: WebRequest, job: Job, what: str, *, moved: bool = False) -> Response:
    return answer_action(request, one_line(f"Job {job.number} “{job.name}” {what}.", 500), "/jobs", moved=moved)


ROUTES = (show, show_job, create, pause, resume, run, remove)
