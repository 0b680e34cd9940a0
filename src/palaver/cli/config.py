"""`palaver config`: check the configuration, show the settings in effect, and list the files."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from palaver.agents.plugins import agent_options
from palaver.cli.output import counted, print_json, print_line, print_rows
from palaver.config.effective import effective_settings
from palaver.config.errors import MalformedConfig, Mistake
from palaver.config.loader import Loaded, load_with_sources
from palaver.config.nodes import dotted_path
from palaver.config.paths import configuration_files, exists
from palaver.config.validation import format_value
from palaver.gateway.agents import find_unavailable_agents
from palaver.platforms.plugins import known_platforms, load_factory

EXAMPLES = {
    "check": "palaver config check",
    "show": "palaver config show",
    "path": "palaver config path",
}

app = typer.Typer(help="Check and show the configuration.", rich_markup_mode=None)

File = Annotated[
    str | None, typer.Argument(metavar="[FILE]", help="Use this file instead of your own.", show_default=False)
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def _environ(file: str | None) -> Mapping[str, str]:
    return os.environ if file is None else {**os.environ, "PALAVER_CONFIG": file}


@app.command(help=f"Check the configuration and list every mistake.\n\n{EXAMPLES['check']}")
def check(file: File = None, *, json: Json = False) -> None:
    try:
        loaded = load_with_sources(Path(), _environ(file), known_platforms(), load_factory, agent_options)
        _check_agents(loaded)
    except MalformedConfig as error:
        _print_mistakes(error.mistakes, json=json)
        raise typer.Exit(2) from error
    if json:
        print_json({"ok": True, "mistakes": [], "cautions": list(loaded.warnings)})
    else:
        for warning in loaded.warnings:
            print_line(warning)
        print_line("The configuration is valid.")


def _check_agents(loaded: Loaded) -> None:
    """Raise MalformedConfig if a configured agent cannot start."""
    mistakes = [
        Mistake(
            position=loaded.sources.nearest(way).position,
            field=dotted_path(way),
            problem=f"{dotted_path(way)}: {refusal.problem}",
            found=refusal.found,
            allowed=refusal.allowed,
            example=refusal.example,
        )
        for way, refusal in find_unavailable_agents(loaded.config)
    ]
    if mistakes:
        raise MalformedConfig(mistakes)


def _print_mistakes(mistakes: tuple[Mistake, ...], *, json: bool) -> None:
    if json:
        print_json({"ok": False, "mistakes": [_fields(mistake) for mistake in mistakes]})
        return
    for mistake in mistakes:
        print_line(str(mistake))
    print_line(f"{counted(len(mistakes), 'mistake')}.")


def _fields(mistake: Mistake) -> dict[str, object]:
    return {
        "file": None if mistake.position.file is None else str(mistake.position.file),
        "line": mistake.position.line,
        "field": mistake.field,
        "problem": mistake.problem,
        "found": mistake.found,
        "allowed": mistake.allowed,
        "example": mistake.example,
    }


@app.command(help=f"Show the settings in effect and where each comes from.\n\n{EXAMPLES['show']}")
def show(file: File = None, *, json: Json = False) -> None:
    settings = list(
        effective_settings(load_with_sources(Path(), _environ(file), known_platforms(), load_factory, agent_options))
    )
    if json:
        rows = [{"field": field, "value": value, "from": str(spot)} for field, value, spot in settings]
        print_json({"settings": rows})
        return
    print_rows(["field", "value", "from"], ((field, format_value(value), str(spot)) for field, value, spot in settings))


@app.command(help=f"List the configuration files, highest priority first.\n\n{EXAMPLES['path']}")
def path(*, json: Json = False) -> None:
    files = configuration_files(Path.cwd())
    found = [("user", files.user, exists(files.user)), ("project", files.project, exists(files.project))]
    if json:
        print_json({"files": [{"whose": whose, "path": str(file), "exists": there} for whose, file, there in found]})
        return
    print_rows(
        ["whose", "file", ""], [(whose, str(file), "found" if there else "missing") for whose, file, there in found]
    )
