"""A fate for people: what happened, one line after the other."""

from datetime import datetime, timedelta

from palaver.cli.output import print_heading, print_text
from palaver.cli.when import ago
from palaver.commands.timeline import Tone, steps_of, title_of
from palaver.domain.text import visible
from palaver.ports.fates import Fate
from palaver.stores.archive.legible import moment_text

__all__ = ["print_fate"]

_STYLES = {Tone.PLAIN: "", Tone.WELL: "green", Tone.OPEN: "yellow", Tone.BAD: "bold red"}
_MINUTE = 60


def print_fate(fate: Fate, present: datetime, *, content: bool) -> None:
    steps = steps_of(fate, present)
    began = steps[0].at
    print_heading(visible(title_of(fate)))
    print_text((f"{moment_text(began)} ({ago(began, present)})", "dim"))
    width = max(len(step.what) for step in steps)
    for step in steps:
        offset = _offset(step.at - began) if step.exact else ""
        print_text(
            (f"{offset:>9}  ", "dim"), (f"{step.what:<{width}}  ", "cyan"), (visible(step.sentence), _STYLES[step.tone])
        )
        if content and step.text:
            for line in step.text.splitlines():
                print_text((" " * (width + 13), ""), (visible(line), "italic"))


def _offset(span: timedelta) -> str:
    seconds = span.total_seconds()
    return f"+{seconds:.2f} s" if abs(seconds) < _MINUTE else f"+{timedelta(seconds=round(seconds))}"
