"""Have a model that was not trained for tools write the arguments of a call.

Which tool is called is not its decision: the play names the tool. The model continues a list of examples with the
arguments, and a grammar allows nothing else, as in the agent `local`. The tool gets what the model wrote.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from palaver.agents.llama_tools import without_markers
from palaver.model.tools import ASK_USER
from tests.demonstration.picture import COLOURS

__all__ = ["FORMS", "PAINT", "REMEMBER", "SEND_FILE", "Form", "Json"]

Json = dict[str, Any]
PAINT, REMEMBER, SEND_FILE = "studio__paint", "remember", "send_file"
_FILE_ID = re.compile("⟦file ([0-9a-f]+):")


@dataclass(frozen=True, kw_only=True)
class Form:
    """What the model continues, in which form, and how that becomes arguments."""

    prompt: Callable[[Sequence[Json]], str]
    grammar: Callable[[Sequence[Json]], str]
    read: Callable[[str], Mapping[str, object]]

    def arguments(self, written: str) -> str:
        return json.dumps(self.read(written))


def _last(messages: Sequence[Json], role: str) -> str:
    """Return the last words of somebody, without what the gateway adds to them."""
    said = next((message["content"] for message in reversed(messages) if message["role"] == role), "")
    return " ".join(without_markers(said).split())


def _note(messages: Sequence[Json]) -> str:
    return (
        "Message: Remember that I live in Paris.\nNote: The person lives in Paris.\n\n"
        "Message: Please remember that my favorite drink is tea.\nNote: The person's favorite drink is tea.\n\n"
        f"Message: {_last(messages, 'user')}\nNote:"
    )


def _question(messages: Sequence[Json]) -> str:
    return (
        "Message: Make tea. Ask me which kind.\nQuestion: Which kind of tea?\nChoices: green, black\n\n"
        "Message: Book a table. Ask me for the day.\nQuestion: For which day?\nChoices: Friday, Saturday\n\n"
        "Message: Paint a house. Ask me for the color.\nQuestion: Which color?\nChoices: red, yellow\n\n"
        f"Message: {_last(messages, 'user')}\nQuestion:"
    )


def _read_question(written: str) -> Mapping[str, object]:
    question, _, choices = written.strip().partition("\nChoices: ")
    return {"question": question, "choices": choices.split(", ")}


def _colour(messages: Sequence[Json]) -> str:
    return (
        "Answer: yellow\nColor: yellow\n\nAnswer: red\nColor: red\n\nAnswer: blue\nColor: blue\n\n"
        f"Answer: {_last(messages, 'tool')}\nColor:"
    )


def _ids(messages: Sequence[Json]) -> list[str]:
    return _FILE_ID.findall(" ".join(str(message["content"]) for message in messages))


def _one_of(words: Sequence[str]) -> str:
    return "root ::= " + " | ".join(f'" {word}"' for word in words)


FORMS = {
    REMEMBER: Form(
        prompt=_note,
        grammar=lambda _: r"""root ::= " The person" [a-z ']{5,50} ".\n" """,
        read=lambda written: {"text": written.strip()},
    ),
    ASK_USER: Form(
        prompt=_question,
        grammar=lambda _: (
            r"""root ::= " " [A-Z] [a-z ]{4,50} "?\nChoices: " word ", " word "\n" """ + "\nword ::= [a-zA-Z]{3,12}"
        ),
        read=_read_question,
    ),
    PAINT: Form(
        prompt=_colour, grammar=lambda _: _one_of([*COLOURS]), read=lambda written: {"colour": written.strip()}
    ),
    SEND_FILE: Form(
        prompt=lambda messages: f"Files: {', '.join(_ids(messages))}\nSend:",
        grammar=lambda messages: _one_of(_ids(messages)[-1:]),
        read=lambda written: {"file": written.strip()},
    ),
}
