"""`palaver jobs add`: add a scheduled job, or only show when it would run."""

from typing import Annotated

import typer

from palaver.cli import shared_options
from palaver.cli.explain_subject import account_platforms
from palaver.cli.jobs import EXAMPLES, fields_of
from palaver.cli.output import print_json, print_line
from palaver.cli.shared_options import OPERATOR, Json, StoreOption, ZoneName, ask, find_zone, terminal_source
from palaver.config.loader import load
from palaver.config.model import Config
from palaver.engine.jobs.creation import JobMaker, JobRules, check_job, create_job, offered_models
from palaver.engine.jobs.describe import local_text, named, next_times, schedule_text
from palaver.engine.jobs.scripts import Scripts
from palaver.model.access import AccessRole
from palaver.model.job import JobRequest
from palaver.platforms.plugins import known_platforms

app = typer.Typer(rich_markup_mode=None)


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
        print_json({"job": fields_of(job), "next": next_times(job, now)})
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
        grants=config.settings().grants,
    )
