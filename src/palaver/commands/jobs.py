"""`/jobs`: list, add, show, pause, resume, run and remove scheduled jobs."""

from collections.abc import Sequence

from palaver.commands.formatting import in_quotes
from palaver.commands.registry import CommandGroup, is_owner
from palaver.db.transaction import Statements, transaction
from palaver.engine.commands import CommandContext
from palaver.engine.jobs.creation import JobMaker, check_job, create_job
from palaver.engine.jobs.describe import (
    change_text,
    firing_text,
    job_line,
    local_text,
    named,
    next_text,
    next_times,
    schedule_text,
    targets_text,
)
from palaver.model.access import AccessRole
from palaver.model.command import Arg, ArgKind, Invocation, as_said
from palaver.model.errors import BadArgument, NotFound
from palaver.model.job import Firing, Job, JobAction, JobRequest, split_schedule
from palaver.model.session import Principal
from palaver.store.store import Store

commands = CommandGroup("jobs")

_MAX_LISTED = 30
_SHOWN_FIRINGS = 5
_MAX_PROMPT = 500
_NONE = "You have no jobs. /jobs add 30m Call Ann makes one."
_SYNONYMS = (
    *((word, JobAction.REMOVE.value) for word in ("delete", "del", "rm", "cancel", "drop")),
    *((word, JobAction.PAUSE.value) for word in ("stop", "disable", "off")),
    *((word, JobAction.RESUME.value) for word in ("start", "continue", "enable", "on")),
    *((word, "add") for word in ("new", "create", "make", "every", "schedule")),
    *((word, "list") for word in ("ls", "all")),
)
_OPTIONS = (
    *(Arg(name=name, kind=ArgKind.OPTION) for name in ("to", "name", "model", "script")),
    Arg(name="dir", kind=ArgKind.OPTION, hint="folder"),
    Arg(name="repeat", kind=ArgKind.COUNT),
    *(Arg(name=name, kind=ArgKind.FLAG) for name in ("here", "mirror", "always", "no-model", "dry-run", "all")),
)


@commands.add(
    "jobs",
    "List your scheduled jobs, or add, show, pause, resume, run or remove one",
    "/jobs add every day at 18:00 What is the weather tomorrow?",
    Arg(name="action", choices=("list", "add", "show", *JobAction), synonyms=_SYNONYMS),
    Arg(name="what", kind=ArgKind.REST, hint="schedule and prompt, or number"),
    *_OPTIONS,
    for_all=frozenset({"list", "show", JobAction.PAUSE, JobAction.REMOVE}),
    urgent=True,
)
@transaction
def jobs(store: Store, invocation: Invocation, context: CommandContext) -> Statements[str]:
    action, what = invocation.words.get("action", "list"), invocation.words.get("what", "").strip()
    if action == "list":
        return (yield from _list(store, invocation, context))
    if not what:
        allowed = "a schedule and a prompt" if action == "add" else "the number of a job"
        example = "/jobs add 30m Call Ann" if action == "add" else f"/jobs {action} 3"
        raise BadArgument(f"/jobs {action} needs {allowed}.", found="", allowed=allowed, example=example)
    if action == "add":
        return (yield from _add(what, invocation, context))
    job = yield from _find(store, what, context)
    if action == "show":
        firings = yield from store.firings.list_firings(str(job.number), _seer(context), _SHOWN_FIRINGS)
        return _show(job, firings, context)
    changed = yield from store.jobs.change(str(job.number), JobAction(action), _seer(context), context.now)
    return as_said(f"{change_text(changed, JobAction(action))}.")


def _seer(context: CommandContext) -> Principal:
    """Return on whose behalf a job is looked up: the owner of the gateway can name anybody's."""
    return Principal.operator() if is_owner(context) and not context.is_overheard else context.principal


def _find(store: Store, name: str, context: CommandContext) -> Statements[Job]:
    """Find a job. Where others read the answer, only those made in this chat."""
    job = yield from store.jobs.find(name, _seer(context))
    if context.is_overheard and not job.is_from(context.received.inbound.source):
        raise NotFound("job", name)
    return job


def _list(store: Store, invocation: Invocation, context: CommandContext) -> Statements[str]:
    shows_all, here = "all" in invocation.flags, context.received.inbound.source
    principal = _seer(context) if shows_all else context.principal
    found = yield from store.jobs.list_jobs(principal, ended=shows_all)
    shown = [job for job in found if not context.is_overheard or job.is_from(here)]
    if not shown:
        return _NONE
    last = yield from store.firings.last_firings(shown[:_MAX_LISTED], principal)
    lines = [
        as_said(job_line(job, last.get(job.number), context.now, context.zone, here)) for job in shown[:_MAX_LISTED]
    ]
    return "\n".join([*lines, *([f"And {len(shown) - _MAX_LISTED} more."] if len(shown) > _MAX_LISTED else [])])


def _add(what: str, invocation: Invocation, context: CommandContext) -> Statements[str]:
    schedule, prompt = split_schedule(what, context.zone, context.now)
    words, flags, received = invocation.words, invocation.flags, context.received
    request = JobRequest(
        when=schedule,
        prompt=prompt,
        name=words.get("name", ""),
        to=words.get("to", "origin"),
        repeat=invocation.numbers.get("repeat"),
        attached="here" in flags,
        mirrors="mirror" in flags,
        model=words.get("model", ""),
        workdir=words.get("dir", ""),
        script=words.get("script", ""),
        uses_model="no-model" not in flags,
        skips_silent="always" not in flags,
    )
    maker = JobMaker(
        principal=context.principal,
        origin=received.inbound.source,
        role=received.role or AccessRole.GUEST,
        basis=received.basis,
        zone=context.zone,
        now=context.now,
    )
    if "dry-run" in flags:
        job = yield from check_job(request, maker, context.jobs)
        times = [local_text(each, context.zone) for each in next_times(job, context.now)]
        to = targets_text(job, maker.origin)
        what = f"{in_quotes(request.title)} would run {schedule_text(job)}, to {to}:"
        return "\n".join([what, *times])
    job = yield from create_job(request, maker, context.jobs)
    return f"{as_said(named(job))} runs {schedule_text(job)}, {next_text(job, context.now, context.zone)}."


def _show(job: Job, firings: Sequence[Firing], context: CommandContext) -> str:
    zone, to = context.zone, targets_text(job, context.received.inbound.source)
    with_model = "" if job.uses_model else " and no model"
    facts = {
        "runs in the conversation of its chat": job.attached,
        "notes what it sends in the conversation there": job.mirrors,
        "always sends its answer": not job.skips_silent,
        f"answered by {job.model.model if job.model else ''}": job.model is not None,
        f"runs the script {as_said(job.script or '')}{with_model}": job.script is not None,
        f"works in {as_said(job.workdir or '')}": job.workdir is not None,
    }
    return "\n".join(
        [
            f"{job.number} {in_quotes(job.name)}: {schedule_text(job)}, {job.state}, to {to}",
            *(fact for fact, holds in facts.items() if holds),
            *([f"prompt: {in_quotes(job.prompt, _MAX_PROMPT)}"] if job.prompt else []),
            *(f"next: {local_text(each, zone)}" for each in next_times(job, context.now)),
            *(f"run: {firing_text(firing, zone)}" for firing in firings),
        ]
    )
