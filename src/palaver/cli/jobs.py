"""`palaver jobs`: list, add, show, pause, resume, run and remove scheduled jobs."""

from typing import Annotated

import typer

from palaver.cli import shared_options
from palaver.cli.explain_subject import account_platforms
from palaver.cli.output import pick, print_facts, print_found, print_heading, print_json, print_line, print_result
from palaver.cli.shared_options import OPERATOR, Json, StoreOption, ZoneName, ask, find_zone, terminal_source
from palaver.config.loader import load
from palaver.config.model import Config
from palaver.db.transaction import Statements, transaction
from palaver.engine.jobs.creation import JobMaker, JobRules, check_job, create_job, offered_models
from palaver.engine.jobs.describe import (
    change_text,
    firing_text,
    local_text,
    named,
    next_text,
    next_times,
    schedule_text,
)
from palaver.engine.jobs.scripts import Scripts
from palaver.model.access import AccessRole
from palaver.model.job import Firing, Job, JobAction, JobRequest
from palaver.model.source import readable_identity
from palaver.platforms.plugins import known_platforms
from palaver.store.store import Store

EXAMPLES = {
    "list": "palaver jobs list --all",
    "add": 'palaver jobs add "every day at 18:00" "What is the weather tomorrow?" --to telegram',
    "show": "palaver jobs show 3",
    "pause": "palaver jobs pause 3",
    "resume": "palaver jobs resume 3",
    "run": "palaver jobs run 3",
    "remove": "palaver jobs remove 3",
}
_SHOWN_FIRINGS = 10

app = typer.Typer(help="List and change scheduled jobs.", rich_markup_mode=None)

_Which = Annotated[str, typer.Argument(metavar="JOB", help="The number or name of a job.")]


@app.command("list", help=f"List the jobs of everybody.\n\n{EXAMPLES['list']}")
def list_jobs(
    *,
    ended: Annotated[bool, typer.Option("--all", help="Also list jobs that have ended.")] = False,
    store: StoreOption = None,
    json: Json = False,
) -> None:
    @transaction
    def read(opened: Store) -> Statements[list[tuple[Job, Firing | None]]]:
        found = yield from opened.jobs.list_jobs(OPERATOR, ended=ended, limit=10_000)
        last = yield from opened.firings.last_firings(found, OPERATOR)
        return [(job, last.get(job.number)) for job in found]

    found = ask(store, lambda opened: opened.read(read(opened)), [], nothing="There are no jobs.")
    now, zone = shared_options.now(), find_zone()
    rows = [
        (
            str(job.number),
            job.name,
            readable_identity(job.owner),
            schedule_text(job),
            next_text(job, now, zone).removeprefix("next "),
            job.targets,
            firing_text(last, zone) if last else "",
        )
        for job, last in found
    ]
    fields = {"jobs": [_fields(job) | {"last": _firing_fields(last)} for job, last in found]}
    print_found(fields, ("job", "name", "of", "runs", "next", "to", "last run"), rows, as_json=json)


@app.command("add", help=f"Add a job of yours, as the owner at the terminal.\n\n{EXAMPLES['add']}")
def add_job(
    when: Annotated[
        str,
        typer.Argument(help="30m, 18:00 or tomorrow at 9am (once), every 2h, every day at 18:00, cron, or ISO time."),
    ],
    prompt: Annotated[str, typer.Argument(help="What the agent does then.")] = "",
    *,
    name: Annotated[str, typer.Option(help="A name. Default: the beginning of the prompt.")] = "",
    to: Annotated[str, typer.Option(help="Where the answer goes: telegram, telegram:-100, local, all.")] = "origin",
    repeat: Annotated[int | None, typer.Option(min=-1, help="Run this often. Default: no limit.")] = None,
    here: Annotated[bool, typer.Option("--here", help="Run in your terminal conversation.")] = False,
    mirror: Annotated[bool, typer.Option("--mirror", help="Note what is sent in the conversation there.")] = False,
    always: Annotated[bool, typer.Option("--always", help="Send the answer even if it is [SILENT].")] = False,
    model: Annotated[str, typer.Option(help="Let this model answer.")] = "",
    folder: Annotated[str, typer.Option("--dir", help="The working directory of its tools.")] = "",
    script: Annotated[str, typer.Option(help="First run this file of the folder jobs.scripts.")] = "",
    no_model: Annotated[bool, typer.Option("--no-model", help="Send the output of the script as it is.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show when it would run.")] = False,
    zone_name: ZoneName = "",
    store: StoreOption = None,
    json: Json = False,
) -> None:
    config, now, zone = load(), shared_options.now(), find_zone(zone_name)
    request = JobRequest(
        when=when,
        prompt=prompt,
        name=name,
        to=to,
        repeat=repeat,
        attached=here,
        mirrors=mirror,
        model=model,
        workdir=folder,
        script=script,
        uses_model=not no_model,
        skips_silent=not always,
    )
    origin = terminal_source("main", config.store)
    maker = JobMaker(principal=OPERATOR, origin=origin, role=AccessRole.OWNER, zone=zone, now=now)
    step = (check_job if dry_run else create_job)(request, maker, _rules(config, with_models=bool(model)))
    job = ask(store, lambda opened: opened.transact(step), make=True)
    times = [local_text(each, zone) for each in next_times(job, now)]
    if json:
        print_json({"job": _fields(job), "next": next_times(job, now)})
        return
    print_line(f"{'It would run' if dry_run else f'{named(job)} runs'} {schedule_text(job)}:")
    for each in times:
        print_line(each)


def _rules(config: Config, *, with_models: bool) -> JobRules:
    folder, models = config.jobs.scripts, ()
    if with_models:
        from palaver.gateway.agents import AgentPool  # noqa: PLC0415 - slow to import, and rarely needed

        models = offered_models(AgentPool().agents(config).usual)
    return JobRules(
        platforms=known_platforms(),
        accounts=account_platforms(config),
        per_person=config.limits.jobs_per_person,
        scripts=Scripts(folder=folder, environ={}) if folder else None,
        models=models,
        grants=config.options().grants,
    )


@app.command("show", help=f"Show a job, when it runs next, and its last runs.\n\n{EXAMPLES['show']}")
def show_job(which: _Which, *, store: StoreOption = None, json: Json = False) -> None:
    @transaction
    def read(opened: Store) -> Statements[tuple[Job, list[Firing]]]:
        job = yield from opened.jobs.find(which, OPERATOR)
        return job, (yield from opened.firings.list_firings(str(job.number), OPERATOR, _SHOWN_FIRINGS))

    job, firings = ask(store, lambda opened: opened.read(read(opened)))
    now, zone = shared_options.now(), find_zone()
    if json:
        runs = [_firing_fields(firing) for firing in firings]
        print_json({"job": _fields(job), "next": next_times(job, now), "runs": runs})
        return
    print_heading(f"{job.number} {job.name}")
    facts = {
        "of": readable_identity(job.owner),
        "runs": schedule_text(job),
        "state": job.state,
        "to": job.targets,
        "prompt": job.prompt,
        "model": job.model.model if job.model else "",
        "script": job.script or "",
        "directory": job.workdir or "",
    }
    print_facts([(name, fact) for name, fact in facts.items() if fact])
    for title, lines in (
        ("next", [local_text(each, zone) for each in next_times(job, now)]),
        ("run", [firing_text(firing, zone) for firing in firings]),
    ):
        for line in lines:
            print_line(f"{title}: {line}")


def _change(which: str, action: JobAction, store: str | None, *, as_json: bool) -> None:
    now = shared_options.now()
    job = ask(store, lambda opened: opened.transact(opened.jobs.change(which, action, OPERATOR, now)))
    later = ", or when a gateway starts" if action is JobAction.RUN and job.requested is None else ""
    print_result({"job": _fields(job)}, f"{change_text(job, action)}{later}.", as_json=as_json)


@app.command("pause", help=f"Pause a job.\n\n{EXAMPLES['pause']}")
def pause_job(which: _Which, *, store: StoreOption = None, json: Json = False) -> None:
    _change(which, JobAction.PAUSE, store, as_json=json)


@app.command("resume", help=f"Resume a paused job with its next time.\n\n{EXAMPLES['resume']}")
def resume_job(which: _Which, *, store: StoreOption = None, json: Json = False) -> None:
    _change(which, JobAction.RESUME, store, as_json=json)


@app.command("run", help=f"Run a job as soon as a gateway is up, besides its schedule.\n\n{EXAMPLES['run']}")
def run_job(which: _Which, *, store: StoreOption = None, json: Json = False) -> None:
    _change(which, JobAction.RUN, store, as_json=json)


@app.command("remove", help=f"Remove a job.\n\n{EXAMPLES['remove']}")
def remove_job(which: _Which, *, store: StoreOption = None, json: Json = False) -> None:
    _change(which, JobAction.REMOVE, store, as_json=json)


def _fields(job: Job) -> dict[str, object]:
    return {
        **pick(job, "number name owner state prompt targets created next_due paused repeats attached mirrors"),
        "schedule": job.schedule.text,
        "description": job.schedule.describe(),
        "model": job.model and job.model.model,
        **pick(job, "workdir script uses_model skips_silent"),
    }


def _firing_fields(firing: Firing | None) -> dict[str, object] | None:
    return firing and {**pick(firing, "at run reason message turn"), "delivery": firing.delivery}
