"""Declare an operation with `@operation`: the API, its OpenAPI document and the command line are made from it.

    @operation("GET", "/jobs/{job}", "Show a job, when it runs next, and its last runs", form=job_form)
    @transaction
    def show_job(call: Call, job: str) -> Statements[JobDetails]: ...

The parameters after `call` that are text stand in the path, and are arguments of the command. A parameter `asked` is a
`Schema`: the query or the body of the request, and the options of the command. `form` makes the one JSON form of what
the operation returns.
"""

from collections.abc import Callable, Mapping
from dataclasses import field
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, Concatenate, Generic, ParamSpec, TypeVar, get_type_hints
from zoneinfo import ZoneInfo

import msgspec
from msgspec import Meta

from palaver.db.transaction import Transaction
from palaver.model.epochs import Epochs
from palaver.model.label import Label
from palaver.model.session import Principal
from palaver.model.source import Source
from palaver.model.value import value
from palaver.store.people.api_tokens import Right

if TYPE_CHECKING:
    from palaver.engine.jobs.creation import JobRules

P = ParamSpec("P")
R = TypeVar("R")

CREATED = 201
"""The status of an operation that adds something."""

Timestamp = Annotated[datetime, Meta(tz=True)]
Limit = Annotated[int, Meta(ge=1, le=500, description="Show at most this many.")]


class Schema(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of every JSON object that is taken or given."""


S = TypeVar("S", bound=Schema)


def fill(schema: type[S], source: object, **others: object) -> S:
    """Make a schema from the attributes of the same names, and the others as given."""
    names = [name for name in schema.__struct_fields__ if name not in others and hasattr(source, name)]
    found = {name: getattr(source, name) for name in names}
    plain = {name: given.plain() if isinstance(given, Label) else given for name, given in found.items()}
    return schema(**plain, **others)


@value
class Call:
    """On whose behalf an operation runs, from where and when."""

    principal: Principal
    origin: Source
    """Where the caller writes from; what they make belongs there."""
    now: datetime
    zone: ZoneInfo
    job_rules: "Callable[[str], JobRules]"
    """What this installation can do for a job of a profile."""


@value
class Operation(Generic[P, R]):
    method: str
    path: str
    """Below `/api/v1`; a part in braces is text."""
    summary: str
    work: Callable[Concatenate[Call, P], Transaction[R]]
    form: Callable[[R, Epochs], Schema]
    needs: Right = Right.READ
    example: Mapping[str, object] = field(default_factory=dict[str, object])
    """The body of a request, and so the options of a command."""
    status: int = 200

    @property
    def asked(self) -> type[Schema] | None:
        """Return what it takes beside the parts of its path."""
        return get_type_hints(self.work).get("asked")

    @property
    def answer(self) -> type[Schema]:
        return get_type_hints(self.form)["return"]


def operation(
    method: str,
    path: str,
    summary: str,
    *,
    form: Callable[[R, Epochs], Schema],
    **options: Any,  # noqa: ANN401 - fields of `Operation`
) -> Callable[[Callable[Concatenate[Call, P], Transaction[R]]], Operation[P, R]]:
    def declare(work: Callable[Concatenate[Call, P], Transaction[R]]) -> Operation[P, R]:
        return Operation(method=method, path=path, summary=summary, work=work, form=form, **options)

    return declare
