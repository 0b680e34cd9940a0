"""Make, read and change scheduled jobs on behalf of a caller: for the API and the dashboard."""

from datetime import datetime

from palaver.db.transaction import Statements, transaction
from palaver.engine.intake.roles import role_of_source
from palaver.engine.jobs.creation import JobMaker, check_job, create_job
from palaver.engine.jobs.describe import next_times
from palaver.model.access import AccessRole
from palaver.model.errors import NotAllowed
from palaver.model.job import Firing, Job, JobAction, JobRequest
from palaver.model.session import Principal
from palaver.model.source import Source, source_of_identity
from palaver.model.value import value
from palaver.platforms.web.adapter import MAIN_CHAT
from palaver.web.routes import WebRequest

_SHOWN_FIRINGS = 10


@value
class JobDetails:
    job: Job
    next: tuple[datetime, ...]
    runs: tuple[Firing, ...] = ()


@value(kw_only=False)
class JobService:
    request: WebRequest

    @property
    def _origin(self) -> Source:
        """Return where the caller's jobs come from: their web chat, or else their account on another platform."""
        caller = self.request.caller
        if caller.web_user:
            return self.request.services.webchat.source(caller.web_user, MAIN_CHAT)
        return source_of_identity(caller.identity)

    async def list_jobs(self, *, ended: bool = False, after: int = 0, limit: int = 100) -> list[JobDetails]:
        store, now = self.request.store, self.request.now

        @transaction
        def read(principal: Principal) -> Statements[list[JobDetails]]:
            found = yield from store.jobs.list_jobs(principal, ended=ended, after=after, limit=limit)
            last = yield from store.firings.last_firings(found, principal)
            return [
                JobDetails(
                    job=job,
                    next=tuple(next_times(job, now)),
                    runs=(last[job.number],) if job.number in last else (),
                )
                for job in found
            ]

        return await self.request.read(read)

    async def get(self, name: str) -> JobDetails:
        now = self.request.now
        return await self.request.read(lambda principal: self._details(name, principal, now))

    async def create(self, asked: JobRequest, *, dry_run: bool = False) -> JobDetails:
        """Make a job of the caller's, or only check it. Raises NotAllowed if they cannot have jobs."""
        now = self.request.now
        job = await self.request.write(lambda principal: self._create(asked, principal, now, dry_run=dry_run))
        return JobDetails(job=job, next=tuple(next_times(job, now)))

    @transaction
    def _create(self, asked: JobRequest, principal: Principal, now: datetime, *, dry_run: bool) -> Statements[Job]:
        engine, origin = self.request.services.engine, self._origin
        role = AccessRole.OWNER if principal.sees_all else (yield from role_of_source(origin, engine.settings.grants))
        needed = engine.settings.command_roles.get("jobs", AccessRole.MEMBER)
        if role is None or role < needed:
            raise NotAllowed("/jobs", needed.text)
        maker = JobMaker(
            principal=principal,
            origin=origin,
            role=role,
            zone=engine.settings.zones.find(origin),
            now=now,
        )
        return (yield from (check_job if dry_run else create_job)(asked, maker, engine.job_rules(origin.profile)))

    async def change(self, name: str, action: JobAction) -> Job:
        """Change a job of the caller's; return it as it is then, or was if it is removed."""
        jobs, now = self.request.store.jobs, self.request.now
        return await self.request.write(lambda principal: jobs.change(name, action, principal, now))

    @transaction
    def _details(self, name: str, principal: Principal, now: datetime) -> Statements[JobDetails]:
        store = self.request.store
        job = yield from store.jobs.find(name, principal)
        runs = yield from store.firings.list_firings(str(job.number), principal, _SHOWN_FIRINGS)
        return JobDetails(job=job, next=tuple(next_times(job, now)), runs=tuple(runs))
