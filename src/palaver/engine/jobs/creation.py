"""Make a job: check everything that can be checked before it fires."""

from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from datetime import datetime
from pathlib import Path
from zoneinfo import ZoneInfo

from palaver.db.transaction import Lock, Statements, transaction
from palaver.engine.context import EngineContext, Resources
from palaver.engine.delivery.targets import OutputFile, TargetRules, reachable_places
from palaver.engine.jobs.scripts import Scripts
from palaver.model.access import AccessRole, Basis, Grant, can_send_elsewhere
from palaver.model.errors import BadArgument, NotAllowed
from palaver.model.job import Job, JobRequest
from palaver.model.platform import Platform
from palaver.model.schedule import parse_schedule
from palaver.model.session import ModelOverride, Principal, find_models, model_name
from palaver.model.source import DM, Source, identity_of
from palaver.model.target import Origin, Target, parse_targets
from palaver.model.value import value
from palaver.protocols.agent import Agent, Choosing
from palaver.store import accounts
from palaver.store.jobs import jobs
from palaver.store.people import access_rules


@value
class JobRules:
    """What this gateway can do for a job."""

    platforms: Mapping[str, Platform] = field(default_factory=dict[str, Platform])
    accounts: Mapping[str, Platform] = field(default_factory=dict[str, Platform])
    """The platform of each account that can send, by the text of the account."""
    per_person: int = 50
    scripts: Scripts | None = None
    """None if jobs cannot run scripts."""
    models: Sequence[ModelOverride] = ()
    grants: Sequence[Grant] = ()
    """The configured ones, beside those in the store."""
    role: AccessRole = AccessRole.MEMBER
    """The lowest role that can have jobs."""


def job_rules(ctx: EngineContext, resources: Resources, profile: str) -> JobRules:
    return JobRules(
        platforms=ctx.replies.platforms,
        accounts=ctx.replies.senders,
        per_person=ctx.settings.limits.jobs_per_person,
        scripts=resources.scripts,
        models=offered_models(ctx.agents.of(profile)),
        grants=ctx.settings.grants,
        role=ctx.settings.command_roles.get("jobs", AccessRole.MEMBER),
    )


def offered_models(agent: Agent) -> Sequence[ModelOverride]:
    return agent.models() if isinstance(agent, Choosing) else ()


@value
class JobMaker:
    """Who makes a job, and where. It runs on their behalf."""

    principal: Principal
    origin: Source
    role: AccessRole
    zone: ZoneInfo
    now: datetime
    basis: Basis | None = Basis.IDENTITY

    @property
    def owner(self) -> str:
        """Return the identity that it belongs to."""
        return identity_of(self.origin) or self.principal.name


@transaction
def create_job(request: JobRequest, maker: JobMaker, rules: JobRules) -> Statements[Job]:
    """Check and store a job. Raises InvalidInput or NotAllowed; then nothing is stored."""
    job = yield from check_job(request, maker, rules)
    yield Lock(f"jobs of {min(maker.principal.identities, default=maker.owner)}")
    owners = {*maker.principal.identities, maker.owner}
    count = yield from jobs.count_active(owners)
    if count >= rules.per_person:
        raise BadArgument(
            f"You already have {count} jobs.",
            found=str(count),
            allowed=f"at most {rules.per_person}",
            example="/jobs remove 3",
            fix="Remove one first.",
        )
    yield from jobs.trim_ended(owners)
    name = yield from jobs.free_name(job.name, owners)
    number = yield from jobs.add(replace(job, name=name))
    stored = yield from jobs.get(number)
    return stored or job


@transaction
def check_job(request: JobRequest, maker: JobMaker, rules: JobRules) -> Statements[Job]:
    """Return the job as it would be stored, without a number."""
    targets = parse_targets(request.to, rules.platforms)
    check_rights(targets, maker.role)
    if request.script or request.workdir:
        _check_files(request, maker, rules)
    homes = yield from accounts.list_homes(maker.origin.profile, access_rules.load(rules.grants))
    reachable_places(targets, target_rules(maker.origin, homes, rules.accounts, request.title, maker.now))
    schedule = parse_schedule(request.when, maker.zone, maker.now)
    if not request.uses_model and not request.script:
        raise BadArgument(
            "A job without a model needs a script.", found="", allowed="--script", example="--script report.sh"
        )
    return Job(
        number=0,
        owner=maker.owner,
        name=request.title,
        schedule=schedule,
        prompt=request.prompt.strip(),
        targets=",".join(target.text for target in targets),
        origin=_without_message(maker.origin),
        created=maker.now,
        role=maker.role,
        basis=maker.basis,
        next_due=schedule.next_after(maker.now),
        repeats=request.repeat,
        attached=request.attached,
        mirrors=request.mirrors,
        model=_model(request.model, rules.models) if request.model else None,
        workdir=request.workdir or None,
        script=request.script or None,
        uses_model=request.uses_model,
        skips_silent=request.skips_silent,
    )


def check_rights(targets: Sequence[Target], role: AccessRole | None) -> None:
    """Raise NotAllowed if a job of somebody in this role cannot send there: members only back to their own chat."""
    if any(not isinstance(target, Origin) for target in targets) and not can_send_elsewhere(role):
        raise NotAllowed("A job that sends to another chat or to a file", AccessRole.ADMIN.text)


def _check_files(request: JobRequest, maker: JobMaker, rules: JobRules) -> None:
    if maker.role < AccessRole.ADMIN:
        raise NotAllowed("A job with a script or a working directory", AccessRole.ADMIN.text)
    if request.workdir and not Path(request.workdir).is_absolute():
        raise BadArgument(
            "The working directory has to be an absolute path, not",
            found=request.workdir,
            allowed="an absolute path",
            example="/srv/reports",
        )
    if request.script:
        if rules.scripts is None:
            raise BadArgument(
                "Jobs cannot run scripts here:",
                found=request.script,
                allowed="jobs without a script",
                fix="Set jobs.scripts in the configuration to the folder that has them.",
                example="",
            )
        rules.scripts.find(request.script, names_others=maker.origin.chat_kind == DM)


def _model(name: str, offered: Sequence[ModelOverride]) -> ModelOverride:
    found, names = find_models(name, offered), [*map(model_name, offered)]
    if len(found) != 1:
        problem = "Several models are called" if found else "This agent has no model called"
        allowed = ", ".join(names) or "the agent's default model"
        raise BadArgument(problem, found=name, allowed=allowed, example=names[0] if names else "")
    return found[0]


def target_rules(
    origin: Source, homes: Sequence[Source], senders: Mapping[str, Platform], name: str, at: datetime
) -> TargetRules:
    """Return what decides where the targets of a job lead."""
    return TargetRules(
        accounts=senders,
        profile=origin.profile,
        homes=homes,
        origin=origin,
        file=OutputFile(owner=identity_of(origin) or origin.platform, name=name, at=at),
    )


def _without_message(source: Source) -> Source:
    return source if source.message_id is None else replace(source, message_id=None)
