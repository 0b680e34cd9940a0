"""Job tools: the agent schedules a prompt for later, lists the jobs of its person, and changes one."""

from collections.abc import Sequence
from datetime import datetime

from palaver.db.transaction import Statements, transaction
from palaver.engine.jobs.describe import change_text, job_line, next_text, schedule_text
from palaver.model.access import can_send_elsewhere
from palaver.model.job import Job, JobAction, JobRequest
from palaver.model.prompt import SCHEDULE_JOB
from palaver.model.session import Principal
from palaver.model.value import value
from palaver.protocols.tools import Tool, ToolContext, ToolFailed, ToolUse
from palaver.store.store import Store
from palaver.tools.schemas import object_schema, text_schema

_ORIGIN = "origin"
_SCHEDULE = Tool(
    name=SCHEDULE_JOB,
    summary="Schedule a job: a reminder, or something to do regularly.",
    description=(
        "Schedule a prompt: at that time you get it and your answer is sent. Use it for reminders and for regular "
        "work. You will not see this conversation then, so write into the prompt all that you need to know."
    ),
    parameters=object_schema(
        "when",
        "prompt",
        when=text_schema(
            "30m, in 2 hours, 18:00, 9am, tomorrow at 9, friday 18:00 or 24 December at 9am (once), 2026-12-24T18:00 "
            "(once, in the time zone of the chat), every 2h, every day at 18:00, every monday at 9:00, or five cron "
            "fields."
        ),
        prompt=text_schema("What to do or say then, for example: Remind Ann to call Bob."),
        name=text_schema("A short name."),
        to=text_schema("Where the answer goes. Default: origin, this chat. Only admins can name another place."),
        repeat={"type": "integer", "minimum": -1, "description": "How often it runs. Default: no limit."},
    ),
    needs_approval=True,
    asks_unless="it sends to this chat",
    for_jobs=False,
)
_LIST = Tool(
    name="list_jobs",
    description="List the scheduled jobs of the person you are talking to, with their numbers.",
    parameters=object_schema(),
)
_CHANGE = Tool(
    name="change_job",
    description="Pause, resume, run now or remove a scheduled job of the person you are talking to.",
    parameters=object_schema(
        "job",
        "action",
        job=text_schema("Its number, as list_jobs shows it."),
        action={"type": "string", "enum": [action.value for action in JobAction]},
    ),
    for_jobs=False,  # A job could run itself without end.
)


@value(kw_only=False)
class JobTools:
    store: Store

    async def tools(self) -> Sequence[Tool]:
        return (_SCHEDULE, _LIST, _CHANGE)

    async def skips_approval(self, use: ToolUse) -> bool:
        """A job that answers in this chat needs no approval; one that must fail is refused before anybody is asked."""
        if use.call.name != SCHEDULE_JOB:
            return False
        is_here = all(word.strip().lower() == _ORIGIN for word in _targets(use).split(","))
        if not is_here and not can_send_elsewhere(use.context.role):
            raise ToolFailed("Only jobs of admins can send to another chat or to a file. Leave out the argument to.")
        return is_here

    async def use(self, use: ToolUse) -> str:
        if use.call.name == SCHEDULE_JOB:
            return await self._schedule(use)
        if use.call.name == _LIST.name:
            return await self._list(use.context)
        action, now = use.text("action"), use.context.services.now
        if action not in set(JobAction):
            raise ToolFailed(f"The argument action must be one of {', '.join(JobAction)}.")
        return await self.store.transact(self._change(use.text("job"), JobAction(action), use.context, now))

    async def _schedule(self, use: ToolUse) -> str:
        repeat = use.arguments.get("repeat")
        request = JobRequest(
            when=use.text("when"),
            prompt=use.text("prompt"),
            name=str(use.arguments.get("name") or ""),
            to=_targets(use),
            repeat=repeat if isinstance(repeat, int) else None,
            # The conversation goes on here, so the agent has to know what it sent.
            mirrors=True,
        )
        services = use.context.services
        job = await services.schedule(request)
        return f"Job {job.number} runs {schedule_text(job)}, {next_text(job, services.now, services.zone)}."

    async def _list(self, context: ToolContext) -> str:
        zone, now = context.services.zone, context.services.now
        found = await self.store.read(self._jobs(context))
        return "\n".join(job_line(job, None, now, zone, context.source) for job in found) or "There are no jobs."

    @transaction
    def _jobs(self, context: ToolContext) -> Statements[list[Job]]:
        """Return the person's jobs; if others read the conversation, only those made in this chat."""
        principal = yield from self._principal(context)
        found = yield from self.store.jobs.list_jobs(principal)
        session = yield from self.store.turns.session_of(context.turn)
        is_private = not context.is_overheard and not (yield from self.store.attach.is_shared(session))
        return [job for job in found if is_private or job.is_from(context.source)]

    @transaction
    def _principal(self, context: ToolContext) -> Statements[Principal]:
        return (yield from self.store.people.principal_for(context.source))

    @transaction
    def _change(self, name: str, action: JobAction, context: ToolContext, now: datetime) -> Statements[str]:
        known = {str(job.number) for job in (yield from self._jobs(context))}
        if name not in known:
            raise ToolFailed(f"There is no job {name[:20]} here. Use list_jobs.")
        principal = yield from self._principal(context)
        job = yield from self.store.jobs.change(name, action, principal, now)
        return f"{change_text(job, action)}."


def _targets(use: ToolUse) -> str:
    return str(use.arguments.get("to") or _ORIGIN)
