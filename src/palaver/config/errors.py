"""Mistakes in a configuration file: where, what was found, what is allowed, and an example."""

from collections.abc import Sequence

from pydantic import SecretStr
from pydantic_core import SchemaSerializer, core_schema

from palaver.config.nodes import Node, Position, dotted_path
from palaver.model.errors import InvalidInput, invalid_message
from palaver.model.value import FieldPath, value


@value
class Mistake:
    position: Position
    field: str = ""
    """For example `platforms.telegram.busy`; empty for a mistake in the file as a whole."""
    problem: str
    found: str
    allowed: str
    example: str
    fix: str | None = None
    """What to do, instead of "Use <allowed>"."""

    def __str__(self) -> str:
        return f"{self.position}: {self.sentence}"

    @property
    def sentence(self) -> str:
        """Say what is wrong, without the place."""
        facts = {"found": self.found, "allowed": self.allowed, "example": self.example}
        return invalid_message(self.problem, fix=self.fix, **facts)


def mistake_at(
    node: Node, path: FieldPath, problem: str, *, found: str, allowed: str, example: str, fix: str | None = None
) -> Mistake:
    """Describe a mistake at `path`, which `{field}` in `problem` stands for."""
    name = dotted_path(path)
    problem = problem.replace("{field}", name)
    return Mistake(
        position=node.position, field=name, problem=problem, found=found, allowed=allowed, example=example, fix=fix
    )


def refused_at(node: Node, path: FieldPath, refusal: InvalidInput) -> Mistake:
    """Describe what a plugin or the model rejected."""
    return mistake_at(
        node,
        path,
        f"{{field}}: {refusal.problem}",
        found=refusal.found,
        allowed=refusal.allowed,
        example=refusal.example,
        fix=refusal.fix,
    )


class MalformedConfig(InvalidInput):
    """Report the first mistake, count the others, carry all of them."""

    def __init__(self, mistakes: Sequence[Mistake]) -> None:
        first = mistakes[0]
        super().__init__(
            f"{first.position}: {first.problem}",
            found=first.found,
            allowed=first.allowed,
            example=first.example,
            fix=first.fix,
        )
        self.mistakes = tuple(mistakes)

    def __str__(self) -> str:
        others = len(self.mistakes) - 1
        return f"{self.mistakes[0]}{f' ({others} more: run palaver config check)' if others else ''}"


class UnsetSecret(SecretStr):
    """Stands for a secret whose environment variable is not set. Reading it raises what is missing."""

    __pydantic_serializer__ = SchemaSerializer(
        core_schema.any_schema(serialization=core_schema.to_string_ser_schema())  # its stars, without being read
    )

    def __init__(self, raw: str, mistake: Mistake) -> None:
        super().__init__(raw)
        self.mistake = mistake

    def get_secret_value(self) -> str:
        raise MalformedConfig([self.mistake])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, UnsetSecret) and self.mistake == other.mistake

    def __hash__(self) -> int:
        return hash(self.mistake.field)
