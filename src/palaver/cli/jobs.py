"""`palaver jobs`: list, show, add, pause, resume, run and remove scheduled jobs."""

from functools import partial

from palaver.cli.operations import OperationGroup, Shown
from palaver.cli.output import print_facts, print_heading, print_line, print_note, print_rows
from palaver.engine.jobs.describe import change_text, firing_text, local_text, named, next_text, schedule_text
from palaver.model.job import JobAction
from palaver.model.source import readable_identity
from palaver.operations.jobs import CHANGES, JobDetails, JobPage, add_job, list_jobs, show_job

commands = OperationGroup("jobs", "List and change scheduled jobs.")
app, EXAMPLES = commands.app, commands.examples


def _print_jobs(found: JobPage, shown: Shown) -> None:
    rows = [
        (
            str(each.job.number),
            each.job.name,
            readable_identity(each.job.owner),
            schedule_text(each.job),
            next_text(each.job, shown.now, shown.zone).removeprefix("next "),
            each.job.targets,
            firing_text(each.runs[0], shown.zone) if each.runs else "",
        )
        for each in found.jobs
    ]
    if rows:
        print_rows(("job", "name", "of", "runs", "next", "to", "last run"), rows)
    if found.after:
        print_note(f"There can be more: --after {found.after}")


def _print_job(found: JobDetails, shown: Shown) -> None:
    job = found.job
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
    for each in found.next:
        print_line(f"next: {local_text(each, shown.zone)}")
    for run in found.runs:
        print_line(f"run: {firing_text(run, shown.zone)}")


def _print_added(found: JobDetails, shown: Shown) -> None:
    what = "It would run" if shown.asked.dry_run else f"{named(found.job)} runs"
    print_line(f"{what} {schedule_text(found.job)}:")
    for each in found.next:
        print_line(local_text(each, shown.zone))


def _print_change(action: JobAction, found: JobDetails, _: Shown) -> None:
    later = ", or when a gateway starts" if action is JobAction.RUN and found.job.requested is None else ""
    print_line(f"{change_text(found.job, action)}{later}.")


commands.add("list", list_jobs, _print_jobs, absent=JobPage(), nothing="There are no jobs.")
commands.add("show", show_job, _print_job, example=["3"])
commands.add("add", add_job, _print_added)
for _action, _operation in CHANGES.items():
    commands.add(_action.value, _operation, partial(_print_change, _action), example=["3"])
