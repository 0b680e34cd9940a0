"""`/jobs`: list, add, show, pause, resume, run and remove scheduled jobs."""

from collections.abc import Callable, Sequence
from datetime import datetime, tzinfo

from palaver.commands.formatting import counted, format_time, in_quotes
from palaver.commands.registry import CommandGroup, is_owner
from palaver.db.transaction import Statements, Transaction, transaction
from palaver.engine.commands import CommandContext
from palaver.engine.jobs.creation import JobMaker, check_job, create_job
from palaver.model.access import AccessRole
from palaver.model.command import Arg, ArgKind, Invocation
from palaver.model.errors import BadArgument, NotFound
from palaver.model.job import Firing, Job, JobRequest, RunState, split_schedule
from palaver.model.schedule import next_occurrences
from palaver.model.session import Principal
from palaver.store.store import Store

commands = CommandGroup("jobs")

_MAX_LISTED = 30
_SHOWN_TIMES = 5
_SHOWN_FIRINGS = 5
_MAX_PROMPT = 500
_FLAGS = tuple(Arg(name=name, kind=ArgKind.FLAG) for name in ("here", "mirror", "always", "no-model", "dry-run", "all"))
_OPTIONS = (
    *(Arg(name=name, kind=ArgKind.OPTION) for name in ("to", "name", "model", "script")),
    Arg(name="dir", kind=ArgKind.OPTION, hint="folder"),
    Arg(name="repeat", kind=ArgKind.COUNT),
)


@commands.add(
    "jobs",
    "List your scheduled jobs, or add, show, pause, resume, run or remove one",
    "/jobs add every day at 18:00 What is the weather tomorrow?",
    Arg(name="action", choices=("list", "add", "show", "pause", "resume", "run", "remove")),
    Arg(name="what", kind=ArgKind.REST, hint="schedule and prompt, or number"),
    *_OPTIONS,
    *_FLAGS,
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
        return _show(job, (yield from store.firings.list_firings(str(job.number), _seer(context))), context)
    return (yield from _CHANGES[action](store, str(job.number), context))


def _seer(context: CommandContext) -> Principal:
    """Return on whose behalf a job is looked up: the owner of the gateway can name anybody's."""
    return Principal.operator() if is_owner(context) and not context.is_overheard else context.principal


def _find(store: Store, name: str, context: CommandContext) -> Statements[Job]:
    """Find a job. Where others read the answer, only those made in this chat."""
    job = yield from store.jobs.find(name, _seer(context))
    if context.is_overheard and not _is_from_here(job, context):
        raise NotFound("job", name)
    return job


def _is_from_here(job: Job, context: CommandContext) -> bool:
    return job.origin.address[:-1] == context.received.inbound.source.address[:-1]


def _list(store: Store, invocation: Invocation, context: CommandContext) -> Statements[str]:
    principal = _seer(context) if "all" in invocation.flags else context.principal
    found = yield from store.jobs.list_jobs(principal, ended="all" in invocation.flags)
    shown = [job for job in found if not context.is_overheard or _is_from_here(job, context)]
    if not shown:
        return "You have no jobs here. /jobs add 30m Call Ann makes one." if context.is_overheard else _NONE
    last = yield from store.firings.last_firings(shown[:_MAX_LISTED], principal)
    lines = [job_line(job, last.get(job.number), context.zone) for job in shown[:_MAX_LISTED]]
    more = [f"And {len(shown) - _MAX_LISTED} more."] if len(shown) > _MAX_LISTED else []
    return "\n".join([*lines, *more])


_NONE = "You have no jobs. /jobs add 30m Call Ann makes one."


def _add(what: str, invocation: Invocation, context: CommandContext) -> Statements[str]:
    schedule, prompt = split_schedule(what, context.zone, context.now)
    words, flags = invocation.words, invocation.flags
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
    received = context.received
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
        return "\n".join(
            [f"This would run {_when(job)}, to {job.targets}:", *next_times(job, context.now, context.zone)]
        )
    job = yield from create_job(request, maker, context.jobs)
    times = next_times(job, context.now, context.zone, 1)
    return f"Job {job.number} {in_quotes(job.name)} runs {_when(job)}, next {times[0] if times else 'never'}."


def _when(job: Job) -> str:
    times = "" if job.repeats is None else f", {counted(job.repeats, 'time')}"
    return f"{job.schedule.summary()}{times}"


def next_times(job: Job, now: datetime, zone: tzinfo, count: int = _SHOWN_TIMES) -> list[str]:
    """Return when a job runs next, on the clock of a zone."""
    if job.next_due is None:
        return []
    most = count if job.repeats is None else min(count, job.repeats)
    later = next_occurrences(job.schedule, max(job.next_due, now), most - 1)
    return [f"{each.astimezone(zone):%a} {format_time(each, zone)}" for each in [job.next_due, *later][:most]]


def job_line(job: Job, last: Firing | None, zone: tzinfo) -> str:
    """Describe a job in one line."""
    due = f"next {format_time(job.next_due, zone)}" if job.next_due and not job.paused else job.state
    result = f"; last {last_result(last, zone)}" if last else ""
    return f"{job.number} {in_quotes(job.name)}: {job.schedule.summary()}, {due}, to {job.targets}{result}"


def last_result(firing: Firing, zone: tzinfo) -> str:
    """Describe a firing: when it was due, what became of the run, and apart from that what became of the delivery."""
    delivery = f", {firing.delivery}" if firing.run in {RunState.DONE, RunState.FAILED} else ""
    reason = f" ({firing.reason})" if firing.reason else ""
    return f"{format_time(firing.at, zone)}: {firing.run}{reason}{delivery}"


def _show(job: Job, firings: Sequence[Firing], context: CommandContext) -> str:
    zone = context.zone
    facts = {
        "runs in the conversation of its chat": job.attached,
        "what it sends is noted in the conversation there": job.mirrors,
        "sends an answer even if there is nothing to say": not job.skips_silent,
        f"answered by {job.model.model if job.model else ''}": job.model is not None,
        f"runs the script {job.script}{'' if job.uses_model else ' and no model'}": job.script is not None,
        f"works in {job.workdir}": job.workdir is not None,
    }
    return "\n".join(
        [
            f"{job.number} {in_quotes(job.name)}: {_when(job)}, {job.state}, to {job.targets}",
            *(fact for fact, holds in facts.items() if holds),
            *([f"prompt: {in_quotes(job.prompt, _MAX_PROMPT)}"] if job.prompt else []),
            *(f"next: {time}" for time in next_times(job, context.now, zone) if not job.paused),
            *(f"run: {last_result(firing, zone)}" for firing in firings[:_SHOWN_FIRINGS]),
        ]
    )


@transaction
def _pause(store: Store, name: str, context: CommandContext) -> Statements[str]:
    job = yield from store.jobs.pause(name, _seer(context), context.now)
    return f"Paused job {job.number} {in_quotes(job.name)}. /jobs resume {job.number} resumes it."


@transaction
def _resume(store: Store, name: str, context: CommandContext) -> Statements[str]:
    job = yield from store.jobs.resume(name, _seer(context), context.now)
    times = next_times(job, context.now, context.zone, 1)
    if not times:
        return f"Job {job.number} {in_quotes(job.name)} has ended: its time came while it was paused."
    return f"Job {job.number} {in_quotes(job.name)} runs again, next {times[0]}."


@transaction
def _run(store: Store, name: str, context: CommandContext) -> Statements[str]:
    job = yield from store.jobs.request_run(name, _seer(context), context.now)
    return f"Job {job.number} {in_quotes(job.name)} runs now."


@transaction
def _remove(store: Store, name: str, context: CommandContext) -> Statements[str]:
    job = yield from store.jobs.remove(name, _seer(context))
    return f"Removed job {job.number} {in_quotes(job.name)}."


_CHANGES: dict[str, Callable[[Store, str, CommandContext], Transaction[str]]] = {
    "pause": _pause,
    "resume": _resume,
    "run": _run,
    "remove": _remove,
}
