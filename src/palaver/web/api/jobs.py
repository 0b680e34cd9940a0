"""API endpoints for scheduled jobs."""

from typing import Annotated

from msgspec import Meta

from palaver.model.epochs import Epochs
from palaver.model.job import REPEAT_LIMIT, Firing, JobAction, JobRequest, RunState
from palaver.store.people.api_tokens import Right
from palaver.web.api.endpoints import Schema, endpoint, fill
from palaver.web.api.schemas import Limit, Timestamp
from palaver.web.jobs import JobDetails, JobService
from palaver.web.routes import WebRequest

_Text = Annotated[str, Meta(max_length=500)]
_Prompt = Annotated[str, Meta(max_length=20_000)]


class RunSchema(Schema, frozen=True, kw_only=True):
    at: Timestamp
    """When it was due."""
    run: RunState
    """The result of the run, apart from that of the delivery."""
    reason: str | None
    delivery: str
    """The result of the delivery: delivered, due, dead, unclear, or nothing sent."""
    message: str | None
    """Its id, to trace it."""


class JobSchema(Schema, frozen=True, kw_only=True):
    number: int
    name: str
    owner: str
    """The identity it belongs to; it runs with their rights."""
    state: str
    schedule: str
    description: str
    prompt: str
    to: str
    created: Timestamp
    next: list[Timestamp]
    repeats: int | None
    """How often it still runs; null for no limit."""
    attached: bool
    mirrors: bool
    model: str | None
    workdir: str | None
    script: str | None
    uses_model: bool
    skips_silent: bool
    runs: list[RunSchema]
    """Its last runs, newest first; only the last one in lists."""


class JobsSchema(Schema, frozen=True, kw_only=True):
    jobs: list[JobSchema]
    after: int | None
    """Where the next page begins; null on the last one."""


def _run_schema(firing: Firing, epochs: Epochs) -> RunSchema:
    return fill(RunSchema, firing, message=firing.message and epochs.message(firing.message))


def _job_schema(found: JobDetails, epochs: Epochs) -> JobSchema:
    job = found.job
    return fill(
        JobSchema,
        job,
        schedule=job.schedule.text,
        description=job.schedule.describe(),
        to=job.targets,
        next=list(found.next),
        model=job.model and job.model.model,
        runs=[_run_schema(firing, epochs) for firing in found.runs],
    )


class _JobsQuery(Schema, frozen=True, kw_only=True):
    ended: bool = False
    """Also jobs that have ended."""
    after: Annotated[int, Meta(ge=0, le=1 << 53)] = 0
    limit: Limit = 100


@endpoint("GET", "/jobs", summary="List scheduled jobs")
async def list_jobs(request: WebRequest, query: _JobsQuery) -> JobsSchema:
    found = await JobService(request).list_jobs(ended=query.ended, after=query.after, limit=query.limit)
    after = found[-1].job.number if len(found) == query.limit else None
    return JobsSchema(jobs=[_job_schema(each, request.store.epochs) for each in found], after=after)


@endpoint("GET", "/jobs/{number:int}", summary="Get a scheduled job with its last runs")
async def get_job(request: WebRequest) -> JobSchema:
    return _job_schema(await JobService(request).get(_name(request)), request.store.epochs)


class NewJobSchema(Schema, frozen=True, kw_only=True):
    when: _Text
    """30m, 18:00 or tomorrow at 9am (once), every 2h, every day at 18:00, five cron fields, or an ISO time."""
    prompt: _Prompt = ""
    name: _Text = ""
    to: _Text = "origin"
    repeat: Annotated[int, Meta(ge=-1, le=REPEAT_LIMIT)] | None = None
    """How often it runs. 0, -1 or nothing is no limit."""
    attached: bool = False
    mirrors: bool = False
    model: _Text = ""
    workdir: _Text = ""
    script: _Text = ""
    uses_model: bool = True
    skips_silent: bool = True
    dry_run: bool = False
    """Only show when it would run."""

    @property
    def asked(self) -> JobRequest:
        names = [name for name in self.__struct_fields__ if name != "dry_run"]
        return JobRequest(**{name: getattr(self, name) for name in names})


@endpoint(
    "POST",
    "/jobs",
    summary="Schedule a job",
    needs=Right.MANAGE,
    example={"when": "every day at 18:00", "prompt": "What is the weather tomorrow?", "to": "telegram"},
    status=201,
)
async def create_job(request: WebRequest, body: NewJobSchema) -> JobSchema:
    return _job_schema(await JobService(request).create(body.asked, dry_run=body.dry_run), request.store.epochs)


@endpoint("POST", "/jobs/{number:int}/pause", summary="Pause a job", needs=Right.MANAGE)
async def pause_job(request: WebRequest) -> JobSchema:
    return await _change(request, JobAction.PAUSE)


@endpoint("POST", "/jobs/{number:int}/resume", summary="Resume a paused job", needs=Right.MANAGE)
async def resume_job(request: WebRequest) -> JobSchema:
    return await _change(request, JobAction.RESUME)


@endpoint("POST", "/jobs/{number:int}/run", summary="Run a job now, besides its schedule", needs=Right.MANAGE)
async def run_job(request: WebRequest) -> JobSchema:
    return await _change(request, JobAction.RUN)


async def _change(request: WebRequest, action: JobAction) -> JobSchema:
    jobs = JobService(request)
    await jobs.change(_name(request), action)
    return _job_schema(await jobs.get(_name(request)), request.store.epochs)


class RemovedJobSchema(Schema, frozen=True, kw_only=True):
    number: int
    name: str


@endpoint("DELETE", "/jobs/{number:int}", summary="Remove a job", needs=Right.MANAGE)
async def remove_job(request: WebRequest) -> RemovedJobSchema:
    return fill(RemovedJobSchema, await JobService(request).change(_name(request), JobAction.REMOVE))


def _name(request: WebRequest) -> str:
    return str(request.path["number"])


ENDPOINTS = (list_jobs, get_job, create_job, pause_job, resume_job, run_job, remove_job)
