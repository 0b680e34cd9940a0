"""Scheduled jobs: list, show, make and change them."""

from dataclasses import field
from datetime import datetime
from typing import Annotated

from msgspec import Meta

from palaver.db.transaction import Statements, transaction
from palaver.engine.jobs.describe import next_times
from palaver.model.access import AccessRole
from palaver.model.epochs import Epochs
from palaver.model.errors import NotAllowed
from palaver.model.job import PROMPT_LIMIT, REPEAT_LIMIT, Firing, Job, JobAction, JobRequest, RunState
from palaver.model.local_time import parse_zone
from palaver.model.value import value
from palaver.operations.operation import CREATED, Call, Limit, Schema, Timestamp, fill, operation
from palaver.store.jobs import firings, jobs
from palaver.store.people.api_tokens import Right

_SHOWN_FIRINGS = 10


class RunSchema(Schema, frozen=True, kw_only=True):
    at: Annotated[Timestamp, Meta(description="When it was due.")]
    run: Annotated[RunState, Meta(description="The result of the run, apart from that of the delivery.")]
    reason: str | None
    delivery: Annotated[
        str, Meta(description="The result of the delivery: delivered, due, dead, unclear, or nothing sent.")
    ]
    message: Annotated[str | None, Meta(description="Its id, to trace it.")]


class JobSchema(Schema, frozen=True, kw_only=True):
    number: int
    name: str
    owner: Annotated[str, Meta(description="The identity it belongs to; it runs with their rights.")]
    state: str
    schedule: str
    description: str
    prompt: str
    to: str
    created: Timestamp
    next: list[Timestamp]
    repeats: Annotated[int | None, Meta(description="How often it still runs; null for no limit.")]
    attached: bool
    mirrors: bool
    model: str | None
    workdir: str | None
    script: str | None
    uses_model: bool
    skips_silent: bool
    runs: Annotated[list[RunSchema], Meta(description="Its last runs, newest first; only the last one in lists.")]


class JobsSchema(Schema, frozen=True, kw_only=True):
    jobs: list[JobSchema]
    after: Annotated[int | None, Meta(description="Where the next page begins; null on the last one.")]


@value
class JobDetails:
    job: Job
    next: tuple[datetime, ...]
    runs: tuple[Firing, ...] = ()


@value
class JobPage:
    jobs: list[JobDetails] = field(default_factory=list[JobDetails])
    after: int | None = None
    """Where the next page begins."""


def job_form(found: JobDetails, epochs: Epochs) -> JobSchema:
    job = found.job
    return fill(
        JobSchema,
        job,
        schedule=job.schedule.text,
        description=job.schedule.describe(),
        to=job.targets,
        next=list(found.next),
        model=job.model and job.model.model,
        runs=[fill(RunSchema, run, message=run.message and epochs.message(run.message)) for run in found.runs],
    )


def jobs_form(found: JobPage, epochs: Epochs) -> JobsSchema:
    return JobsSchema(jobs=[job_form(each, epochs) for each in found.jobs], after=found.after)


class JobsQuery(Schema, frozen=True, kw_only=True):
    ended: Annotated[bool, Meta(description="Also list jobs that have ended.", extra={"option": "--all"})] = False
    after: Annotated[int, Meta(ge=0, le=1 << 53, description="Continue after this page.")] = 0
    limit: Limit = 100


@operation("GET", "/jobs", "List scheduled jobs", form=jobs_form)
@transaction
def list_jobs(call: Call, asked: JobsQuery) -> Statements[JobPage]:
    found = yield from jobs.list_jobs(call.principal, ended=asked.ended, after=asked.after, limit=asked.limit)
    last = yield from firings.last_firings(found, call.principal)
    details = [_details(job, call.now, last.get(job.number)) for job in found]
    return JobPage(jobs=details, after=found[-1].number if len(found) == asked.limit else None)


@operation("GET", "/jobs/{job}", "Show a job, when it runs next, and its last runs", form=job_form)
@transaction
def show_job(call: Call, job: str) -> Statements[JobDetails]:
    found = yield from jobs.find(job, call.principal)
    runs = yield from firings.list_firings(str(found.number), call.principal, _SHOWN_FIRINGS)
    return _details(found, call.now, *runs)


_Text = Annotated[str, Meta(max_length=500)]


class NewJobSchema(Schema, frozen=True, kw_only=True):
    when: Annotated[
        _Text,
        Meta(
            description="30m, 18:00 or tomorrow at 9am (once), every 2h, every day at 18:00, five cron fields, or an"
            " ISO time.",
        ),
    ]
    prompt: Annotated[
        str,
        Meta(max_length=PROMPT_LIMIT, description="What the agent does then.", extra={"is_argument": True}),
    ] = ""
    name: Annotated[_Text, Meta(description="A name. Default: the beginning of the prompt.")] = ""
    to: Annotated[_Text, Meta(description="Where the answer goes: telegram, telegram:-100, local, all.")] = "origin"
    repeat: Annotated[
        Annotated[int, Meta(ge=-1, le=REPEAT_LIMIT)] | None,
        Meta(description="How often it runs. 0, -1 or nothing is no limit."),
    ] = None
    attached: Annotated[
        bool, Meta(description="Run in the conversation where it is made.", extra={"option": "--here"})
    ] = False
    mirrors: Annotated[
        bool, Meta(description="Note what is sent in the conversation there.", extra={"option": "--mirror"})
    ] = False
    model: Annotated[_Text, Meta(description="Let this model answer.")] = ""
    workdir: Annotated[_Text, Meta(description="The working directory of its tools.", extra={"option": "--dir"})] = ""
    script: Annotated[_Text, Meta(description="First run this file of the folder jobs.scripts.")] = ""
    uses_model: Annotated[
        bool, Meta(description="Send the output of the script as it is.", extra={"option": "--no-model"})
    ] = True
    skips_silent: Annotated[
        bool, Meta(description="Send the answer even if it is [SILENT].", extra={"option": "--always"})
    ] = True
    zone: Annotated[
        _Text, Meta(description="IANA time zone of the schedule. Default: that of the chat, or the configured one.")
    ] = ""
    dry_run: Annotated[bool, Meta(description="Only show when it would run.")] = False

    @property
    def request(self) -> JobRequest:
        names = [name for name in self.__struct_fields__ if name not in {"dry_run", "zone"}]
        return JobRequest(**{name: getattr(self, name) for name in names})


@operation(
    "POST",
    "/jobs",
    "Schedule a job",
    form=job_form,
    needs=Right.MANAGE,
    example={"when": "every day at 18:00", "prompt": "What is the weather tomorrow?", "to": "telegram"},
    status=CREATED,
)
@transaction
def add_job(call: Call, asked: NewJobSchema) -> Statements[JobDetails]:
    # Slow to import, and listing jobs needs neither.
    from palaver.engine.intake.roles import role_of_source  # noqa: PLC0415
    from palaver.engine.jobs.creation import JobMaker, check_job, create_job  # noqa: PLC0415

    request, rules = asked.request, call.job_rules(call.origin.profile)
    role = AccessRole.OWNER if call.principal.sees_all else (yield from role_of_source(call.origin, rules.grants))
    if role is None or role < rules.role:
        raise NotAllowed("/jobs", rules.role.text)
    zone = parse_zone(asked.zone) if asked.zone else call.zone
    maker = JobMaker(principal=call.principal, origin=call.origin, role=role, zone=zone, now=call.now)
    job = yield from (check_job if asked.dry_run else create_job)(request, maker, rules)
    return _details(job, call.now)


@operation("POST", "/jobs/{job}/pause", "Pause a job", form=job_form, needs=Right.MANAGE)
@transaction
def pause_job(call: Call, job: str) -> Statements[JobDetails]:
    return (yield from _change(call, job, JobAction.PAUSE))


@operation("POST", "/jobs/{job}/resume", "Resume a paused job", form=job_form, needs=Right.MANAGE)
@transaction
def resume_job(call: Call, job: str) -> Statements[JobDetails]:
    return (yield from _change(call, job, JobAction.RESUME))


@operation("POST", "/jobs/{job}/run", "Run a job now, besides its schedule", form=job_form, needs=Right.MANAGE)
@transaction
def run_job(call: Call, job: str) -> Statements[JobDetails]:
    return (yield from _change(call, job, JobAction.RUN))


@operation("DELETE", "/jobs/{job}", "Remove a job", form=job_form, needs=Right.MANAGE)
@transaction
def remove_job(call: Call, job: str) -> Statements[JobDetails]:
    return (yield from _change(call, job, JobAction.REMOVE))


@transaction
def _change(call: Call, name: str, action: JobAction) -> Statements[JobDetails]:
    """Change a job; return it as it is then, or was if it is removed."""
    changed = yield from jobs.change(name, action, call.principal, call.now)
    if action is JobAction.REMOVE:
        return JobDetails(job=changed, next=())
    runs = yield from firings.list_firings(str(changed.number), call.principal, _SHOWN_FIRINGS)
    return _details(changed, call.now, *runs)


def _details(job: Job, now: datetime, *runs: Firing | None) -> JobDetails:
    return JobDetails(job=job, next=tuple(next_times(job, now)), runs=tuple(run for run in runs if run))


CHANGES = {
    JobAction.PAUSE: pause_job,
    JobAction.RESUME: resume_job,
    JobAction.RUN: run_job,
    JobAction.REMOVE: remove_job,
}
OPERATIONS = (list_jobs, show_job, add_job, *CHANGES.values())
