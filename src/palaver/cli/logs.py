"""`palaver logs`: what the gateway logged, filtered and followed."""

import json as json_module
import sys
import time
from contextlib import suppress
from functools import partial
from typing import Annotated
from zoneinfo import ZoneInfo

import typer

from palaver.cli.output import print_note, print_text
from palaver.cli.shared_options import filled, find_zone, moment
from palaver.config.loader import load
from palaver.config.model import Config
from palaver.gateway.log_file import follow_log, log_end, read_log
from palaver.model.log_line import LogFilter, LogLevel, LogLine
from palaver.model.text import escape_invisible

EXAMPLES = {"logs": "palaver logs --level warning --since 1h"}

app = typer.Typer(rich_markup_mode=None)

_PAUSE_SECONDS = 0.3
_STYLES = {"warning": "yellow", "error": "red", "critical": "bold red"}

Follow = Annotated[bool, typer.Option("--follow", "-f", help="Keep running and print new lines. Ctrl-C ends it.")]
Level = Annotated[LogLevel, typer.Option("--level", help="Only this level and above.")]
Action = Annotated[
    str,
    typer.Option(
        "--action", help="Only this action, such as turn.failed; turn means all that begin with turn.", callback=filled
    ),
]
Since = Annotated[str, typer.Option("--since", help="Only after this date, time, or age such as 1h.", callback=filled)]
Limit = Annotated[int, typer.Option("--limit", min=1, max=100_000, help="Show at most this many lines.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object per line.")]


@app.command(
    help="Show what the gateway logged: no message text, names or secrets. docs/logs.md lists the actions."
    f"\n\n{EXAMPLES['logs']}"
)
def logs(
    *,
    follow: Follow = False,
    level: Level = LogLevel.DEBUG,
    action: Action = "",
    since: Since = "",
    limit: Limit = 200,
    json: AsJson = False,
) -> None:
    config = load()
    wanted = LogFilter(level=level, action=action, since=moment("--since", since, EXAMPLES["logs"]))
    show = _print_json if json else partial(_print_line, zone=find_zone())
    end = log_end(config.data_dir)
    found = read_log(config.data_dir, wanted, limit, end)
    for line in found:
        show(line)
    if follow:
        with suppress(KeyboardInterrupt):
            for line in follow_log(config.data_dir, wanted, end, _wait):
                show(line)
    elif not found:
        print_note(_explain_nothing(config))


def _wait() -> None:
    sys.stdout.flush()
    time.sleep(_PAUSE_SECONDS)


def _print_json(line: LogLine) -> None:
    print(json_module.dumps(line.fields))


def _print_line(line: LogLine, zone: ZoneInfo) -> None:
    print_text(
        (f"{line.at.astimezone(zone):%Y-%m-%d %H:%M:%S} ", "dim"),
        (f"{line.level:<8} ", _STYLES.get(line.level, "green")),
        (escape_invisible(line.sentence), ""),
        (escape_invisible(f" action={line.action} {line.details}".rstrip() if line.action else ""), "dim"),
    )


def _explain_nothing(config: Config) -> str:
    if not config.log.keep_megabytes:
        return "No log is kept: log.keep_megabytes is 0. With systemd, journalctl shows what the gateway logged."
    if not log_end(config.data_dir).inode:
        return f"No gateway has logged anything in {config.data_dir} yet. palaver up starts one."
    return "No line matches. Leave out options to see more."
