"""`palaver tour`: the decisions, each shown by the command that explains it."""

import shlex
from collections.abc import Callable, Sequence

from palaver.cli.output import print_heading, print_line

__all__ = ["STOPS", "tour"]

STOPS = (
    (
        "Which conversation does a message belong to? In a group, each person has their own.",
        "explain key --platform telegram --kind group --chat -100 --user 7",
    ),
    (
        "A topic of that group is shared by everybody in it. Thread 7 is not user 7.",
        "explain key --platform telegram --kind group --chat -100 --thread 7 --user 42",
    ),
    (
        "When does it start fresh? At 2 in the night that has no 2 o'clock, for example.",
        (
            "explain reset --policy daily --at-hour 2 --zone Europe/Berlin"
            " --last-active 2026-03-29T01:30:00+01:00 --now 2026-03-29T03:00:00+02:00"
        ),
    ),
    (
        "Where can an answer go? A target is checked when it is set, not when it fires.",
        'explain target "telegram:-100:42,matrix:!room:example.org,local"',
    ),
    (
        "When does a schedule fire? Half past two exists twice on this day, the job runs once.",
        'explain schedule "30 2 * * *" --zone Europe/Berlin --now 2026-10-24T00:00:00Z',
    ),
    (
        "And a mistake gets an answer one can act on.",
        "explain target telegarm:-100",
    ),
)


def tour(run: Callable[[Sequence[str]], int]) -> None:
    """Show every stop: what it is about, the command, and what the command really prints."""
    print_heading("Palaver decides with small pure functions. Each can be asked why.")
    for about, command in STOPS:
        print_line("")
        print_line(about)
        print_heading(f"$ palaver {command}")
        run(shlex.split(command))
    print_line("")
    print_line("Next: palaver chat to talk, palaver explain --help to ask why.")
