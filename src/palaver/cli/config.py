"""`palaver config`: check the configuration, show the settings in effect, and list the files."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from palaver.agents.plugins import agent_options
from palaver.cli.output import pick, print_found, print_result
from palaver.cli.shared_options import Json
from palaver.config.effective import effective_settings
from palaver.config.errors import MalformedConfig, Mistake, refused_at
from palaver.config.loader import Loaded, load_with_sources
from palaver.config.paths import configuration_files, exists
from palaver.config.validation import format_value
from palaver.gateway.agents import cost_warnings, find_unavailable_agents
from palaver.gateway.unusable import find_unusable
from palaver.model.text import counted
from palaver.platforms.plugins import known_platforms, load_factory

EXAMPLES = {
    "check": "palaver config check",
    "show": "palaver config show",
    "path": "palaver config path",
}

app = typer.Typer(help="Check and show the configuration.", rich_markup_mode=None)

File = Annotated[str | None, typer.Argument(metavar="[FILE]", help="Use this file instead of your own.")]


def _environ(file: str | None) -> Mapping[str, str]:
    return os.environ if file is None else {**os.environ, "PALAVER_CONFIG": file}


@app.command(help=f"Check the configuration and list every mistake.\n\n{EXAMPLES['check']}")
def check(file: File = None, *, json: Json = False) -> None:
    try:
        loaded = load_with_sources(Path(), _environ(file), known_platforms(), load_factory, agent_options)
        _check_files(loaded)
    except MalformedConfig as error:
        _print_mistakes(error.mistakes, json=json)
        raise typer.Exit(2) from error
    caps = loaded.sources.nearest(("caps",)).position
    warnings = [*loaded.warnings, *(f"{caps}: {each}" for each in cost_warnings(loaded.config))]
    valid = f"valid, with {counted(len(warnings), 'warning')}" if warnings else "valid"
    fields: dict[str, object] = {"ok": True, "mistakes": [], "cautions": warnings}
    print_result(fields, *warnings, f"The configuration is {valid}.", as_json=json)


def _check_files(loaded: Loaded) -> None:
    """Raise MalformedConfig if a gateway could not use what the configuration names."""
    loaded.config.check_variables()
    refusals = (
        *find_unavailable_agents(loaded.config),
        *loaded.config.unreadable_instructions(),
        *find_unusable(loaded.config),
    )
    mistakes = [refused_at(loaded.sources.nearest(path), path, refusal) for path, refusal in refusals]
    if mistakes:
        raise MalformedConfig(mistakes)


def _print_mistakes(mistakes: tuple[Mistake, ...], *, json: bool) -> None:
    fields = {"ok": False, "mistakes": [_fields(mistake) for mistake in mistakes]}
    print_result(fields, *map(str, mistakes), f"{counted(len(mistakes), 'mistake')}.", as_json=json)


def _fields(mistake: Mistake) -> dict[str, object]:
    return pick(mistake.position, "file line") | pick(mistake, "field problem found allowed example")


@app.command(help=f"Show the settings in effect and where each comes from.\n\n{EXAMPLES['show']}")
def show(file: File = None, *, json: Json = False) -> None:
    settings = list(
        effective_settings(load_with_sources(Path(), _environ(file), known_platforms(), load_factory, agent_options))
    )
    fields = [{"field": field, "value": value, "from": str(spot)} for field, value, spot in settings]
    rows = [(field, format_value(value), str(spot)) for field, value, spot in settings]
    print_found({"settings": fields}, ("field", "value", "from"), rows, as_json=json)


@app.command(help=f"List the configuration files, highest priority first.\n\n{EXAMPLES['path']}")
def path(*, json: Json = False) -> None:
    files = configuration_files(Path.cwd())
    found = [(whose, getattr(files, whose), exists(getattr(files, whose))) for whose in ("user", "project")]
    fields = {"files": [{"whose": whose, "path": file, "exists": there} for whose, file, there in found]}
    rows = [(whose, str(file), "found" if there else "missing") for whose, file, there in found]
    print_found(fields, ("whose", "file", ""), rows, as_json=json)
