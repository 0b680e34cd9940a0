"""Describe jobs and their runs to people and agents, with times on the clock of a zone."""

from datetime import datetime, tzinfo

from palaver.model.job import Firing, Job, JobAction, RunState
from palaver.model.schedule import next_occurrences
from palaver.model.source import Source
from palaver.model.target import Origin
from palaver.model.text import counted, listed

SHOWN_TIMES = 5


def schedule_text(job: Job) -> str:
    if job.repeats is None:
        return job.schedule.summary()
    return f"{job.schedule.summary()}, {counted(job.repeats, 'time')}"


def local_text(moment: datetime, zone: tzinfo) -> str:
    return f"{moment.astimezone(zone):%a %Y-%m-%d %H:%M %Z}"


def next_times(job: Job, now: datetime, count: int = SHOWN_TIMES) -> list[datetime]:
    """Return when a job runs next, as far as it is not paused and has not ended."""
    if job.next_due is None or job.paused:
        return []
    most = count if job.repeats is None else min(count, job.repeats)
    return [job.next_due, *next_occurrences(job.schedule, max(job.next_due, now), most - 1)][:most]


_DONE = {
    JobAction.PAUSE: "is paused",
    JobAction.RESUME: "runs again",
    JobAction.RUN: "runs now",
    JobAction.REMOVE: "is removed",
}


def named(job: Job) -> str:
    return f"Job {job.number} “{job.name}”"


def change_text(job: Job, action: JobAction) -> str:
    """Say what was done to a job."""
    if action is JobAction.RESUME and job.next_due is None:
        return f"{named(job)} has ended: its time came while it was paused"
    if action is JobAction.RUN and job.requested is not None:
        return f"{named(job)} already has a run that waits to begin, so no other is added"
    return f"{named(job)} {_DONE[action]}"


def next_text(job: Job, now: datetime, zone: tzinfo) -> str:
    """Say when a job runs next, or why it does not."""
    times = next_times(job, now, 1)
    return f"next {local_text(times[0], zone)}" if times else job.state


def targets_text(job: Job, here: Source) -> str:
    """Say where the answers of a job go, to somebody in a chat."""
    origin = "this chat" if job.is_from(here) else "the chat where it was made"
    return listed([origin if each == Origin.text else each for each in job.targets.split(",")])


def job_line(job: Job, last: Firing | None, now: datetime, zone: tzinfo, here: Source) -> str:
    result = f"; last {firing_text(last, zone)}" if last else ""
    head = f"{job.number} “{job.name}”: {schedule_text(job)}, {next_text(job, now, zone)}"
    return f"{head}, to {targets_text(job, here)}{result}"


def firing_text(firing: Firing, zone: tzinfo) -> str:
    """Say when a firing was due, what became of its run, and apart from that what became of the delivery."""
    delivery = f", {firing.delivery}" if firing.run in {RunState.DONE, RunState.FAILED} else ""
    reason = f" ({firing.reason})" if firing.reason else ""
    return f"{local_text(firing.at, zone)}: {firing.run}{reason}{delivery}"
