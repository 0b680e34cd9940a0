"""`palaver jobs`: list, show, pause, resume, run and remove scheduled jobs; `add_job` adds them."""

from typing import Annotated

import typer

from palaver.cli import shared_options
from palaver.cli.output import pick, print_facts, print_found, print_heading, print_json, print_line, print_result
from palaver.cli.shared_options import OPERATOR, Json, StoreOption, ask_database, find_zone
from palaver.db.transaction import Statements, transaction
from palaver.engine.jobs.describe import (
    change_text,
    firing_text,
    local_text,
    next_text,
    next_times,
    schedule_text,
)
from palaver.model.job import Firing, Job, JobAction
from palaver.model.source import readable_identity
from palaver.store.jobs import firings, jobs

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
    def read() -> Statements[list[tuple[Job, Firing | None]]]:
        found = yield from jobs.list_jobs(OPERATOR, ended=ended, limit=10_000)
        last = yield from firings.last_firings(found, OPERATOR)
        return [(job, last.get(job.number)) for job in found]

    found = ask_database(store, lambda opened: opened.read(read()), [], nothing="There are no jobs.")
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
    fields = {"jobs": [fields_of(job) | {"last": _firing_fields(last)} for job, last in found]}
    print_found(fields, ("job", "name", "of", "runs", "next", "to", "last run"), rows, as_json=json)


@app.command("show", help=f"Show a job, when it runs next, and its last runs.\n\n{EXAMPLES['show']}")
def show_job(which: _Which, *, store: StoreOption = None, json: Json = False) -> None:
    @transaction
    def read() -> Statements[tuple[Job, list[Firing]]]:
        job = yield from jobs.find(which, OPERATOR)
        return job, (yield from firings.list_firings(str(job.number), OPERATOR, _SHOWN_FIRINGS))

    job, last = ask_database(store, lambda opened: opened.read(read()))
    now, zone = shared_options.now(), find_zone()
    if json:
        runs = [_firing_fields(firing) for firing in last]
        print_json({"job": fields_of(job), "next": next_times(job, now), "runs": runs})
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
        ("run", [firing_text(firing, zone) for firing in last]),
    ):
        for line in lines:
            print_line(f"{title}: {line}")


def _change(which: str, action: JobAction, store: str | None, *, as_json: bool) -> None:
    now = shared_options.now()
    job = ask_database(store, lambda opened: opened.transact(jobs.change(which, action, OPERATOR, now)))
    later = ", or when a gateway starts" if action is JobAction.RUN and job.requested is None else ""
    print_result({"job": fields_of(job)}, f"{change_text(job, action)}{later}.", as_json=as_json)


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


def fields_of(job: Job) -> dict[str, object]:
    return {
        **pick(job, "number name owner state prompt targets created next_due paused repeats attached mirrors"),
        "schedule": job.schedule.text,
        "description": job.schedule.describe(),
        "model": job.model and job.model.model,
        **pick(job, "workdir script uses_model skips_silent"),
    }


def _firing_fields(firing: Firing | None) -> dict[str, object] | None:
    return firing and {**pick(firing, "at run reason message turn"), "delivery": firing.delivery}
