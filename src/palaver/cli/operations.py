"""Make a command of an operation: its arguments and options are the fields that the operation asks for."""

from collections.abc import Callable, Sequence
from datetime import datetime
from inspect import Parameter, Signature, signature
from shlex import quote
from types import NoneType
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, get_args, get_origin
from zoneinfo import ZoneInfo

import msgspec
import typer
from msgspec.structs import FieldInfo
from typer.models import OptionInfo

from palaver.cli import shared_options
from palaver.cli.output import print_json
from palaver.cli.shared_options import (
    OPERATOR,
    Json,
    StoreOption,
    ask_database,
    find_zone,
    load_config,
    terminal_source,
)
from palaver.db.transaction import DatabaseClient
from palaver.model.epochs import NO_EPOCHS
from palaver.model.value import value
from palaver.operations.operation import CREATED, Call, Operation

if TYPE_CHECKING:
    from palaver.engine.jobs.creation import JobRules

R = TypeVar("R")


@value
class Shown:
    """What people are shown of an operation, and when and where they are."""

    asked: Any
    """What was asked for."""
    now: datetime
    zone: ZoneInfo


class OperationGroup:
    """A group of commands that are made of operations."""

    def __init__(self, name: str, line: str) -> None:
        self.app = typer.Typer(name=name, help=line, rich_markup_mode=None)
        self.examples: dict[str, str] = {}
        """What a mistake is answered with, by the command."""

    def add(
        self,
        command: str,
        operation: Operation[..., R],
        show: Callable[[R, Shown], None],
        *,
        absent: R | None = None,
        nothing: str = "",
        example: Sequence[str] = (),
    ) -> None:
        """Add a command; `show` prints what the operation returns to people. The rest is as in `ask`.

        `example` has its arguments. A command that adds something makes the store.
        """
        path = [name for name in signature(operation.work).parameters if name not in {"call", "asked"}]
        fields = msgspec.structs.fields(operation.asked) if operation.asked else ()

        def run(*, store: str | None, json: bool, **given: Any) -> None:  # noqa: ANN401 - by the signature below
            arguments = {name: given.pop(name) for name in path}
            zone = find_zone(given.get("zone") or "")
            if operation.asked:
                arguments["asked"] = operation.asked(**given)
            shown = Shown(asked=arguments.get("asked"), now=shared_options.now(), zone=zone)

            epochs = NO_EPOCHS

            async def do(opened: DatabaseClient) -> R:
                nonlocal epochs
                epochs = opened.epochs
                work = operation.work(_call(shown), **arguments)
                return await (opened.read(work) if operation.method == "GET" else opened.transact(work))

            found = ask_database(store, do, absent, nothing=nothing, make=operation.status == CREATED)
            if json:
                print_json(msgspec.to_builtins(operation.form(found, epochs)))
            else:
                show(found, shown)

        parameters = [
            *(_parameter(name, Annotated[str, typer.Argument(metavar=name.upper())]) for name in path),
            *map(_option, fields),
            _parameter("store", StoreOption, None),
            _parameter("json", Json, default=False),
        ]
        run.__dict__["__signature__"] = Signature(parameters)
        run.__annotations__ = {each.name: each.annotation for each in parameters}
        words = ["palaver", str(self.app.info.name), command, *example, *_example_options(operation)]
        self.examples[command] = " ".join(words)
        self.app.command(command, help=f"{operation.summary}.\n\n{self.examples[command]}")(run)


def _call(shown: Shown) -> Call:
    def job_rules(_: str) -> "JobRules":
        config = load_config()
        # Slow to import, and rarely needed.
        from palaver.cli.explain_subject import account_platforms  # noqa: PLC0415
        from palaver.engine.jobs.creation import JobRules, offered_models  # noqa: PLC0415
        from palaver.engine.jobs.scripts import Scripts  # noqa: PLC0415
        from palaver.gateway.agents import AgentPool  # noqa: PLC0415
        from palaver.platforms.plugins import known_platforms  # noqa: PLC0415

        return JobRules(
            platforms=known_platforms(),
            accounts=account_platforms(config),
            per_person=config.limits.jobs_per_person,
            scripts=Scripts(folder=folder, environ={}) if (folder := config.jobs.scripts) else None,
            models=offered_models(AgentPool().agents(config).usual) if shown.asked.model else (),
            grants=config.settings().grants,
        )

    origin = terminal_source("main", shared_options.store_url(None))
    return Call(principal=OPERATOR, origin=origin, now=shown.now, zone=shown.zone, job_rules=job_rules)


def _parameter(name: str, annotation: object, default: object = Parameter.empty) -> Parameter:
    return Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _described(annotation: Any) -> tuple[Any, dict[str, Any]]:  # noqa: ANN401 - any annotation
    """Return the type without what `Annotated` says, and what it says; a number that can be missing says it inside."""
    if get_origin(annotation) is Annotated:
        base, *metas = get_args(annotation)
        kind, said = _described(base)
        for meta in metas:
            found: dict[str, Any] = {"help": meta.description, "min": meta.ge, "max": meta.le, **(meta.extra or {})}
            said |= {name: given for name, given in found.items() if given is not None}
        return kind, said
    if NoneType in get_args(annotation):
        kind, said = _described(get_args(annotation)[0])
        return kind | None, said
    return annotation, {}


def _option(schema_field: FieldInfo) -> Parameter:
    """Make an argument of a field without a default, or that says so; an option of every other."""
    kind, said = _described(schema_field.type)
    is_argument = said.pop("is_argument", schema_field.required)
    option = said.pop("option", f"--{schema_field.name.replace('_', '-')}")
    if is_argument:
        said["metavar"] = schema_field.name.upper()
        return _parameter(schema_field.name, Annotated[kind, typer.Argument(**said)], _default(schema_field))
    switches_off = " /" if schema_field.default is True else ""
    said["show_default"] = bool(schema_field.default) and not switches_off
    return _parameter(
        schema_field.name, Annotated[kind, typer.Option(switches_off + option, **said)], _default(schema_field)
    )


def _default(schema_field: FieldInfo) -> object:
    return Parameter.empty if schema_field.required else schema_field.default


def _example_options(operation: Operation[..., Any]) -> list[str]:
    """Return the example of the request as it is typed."""
    words: list[str] = []
    for each in msgspec.structs.fields(operation.asked) if operation.asked else ():
        if each.name in operation.example:
            named = get_args(_option(each).annotation)[1]
            words += [str(named.default)] if isinstance(named, OptionInfo) else []
            words.append(quote(str(operation.example[each.name])))
    return words
