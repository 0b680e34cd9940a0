"""The form of a dialogue.

    # What it shows
    people: alice (owner), bob (member), carol (stranger)
    options: busy=collect

    alice: how are you?
      Palaver: You said: how are you?
    bob in Kitchen: hello
      Palaver: You said: hello
    alice elsewhere: /link {code}
      Palaver: …
    (2 hours pass)
    (the gateway restarts)

Each line of Palaver is one message in the chat of the line above it; more indented lines go on with it. `…` stands for
anything, `{code}` for a word that is remembered when it is heard, and said again when it is said. Whatever is heard
beyond what stands there is a failure.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

__all__ = ["Dialogue", "Happens", "Says", "read_dialogues"]


@dataclass(frozen=True, kw_only=True)
class Says:
    person: str
    place: str | None
    text: str
    line: int
    heard: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Happens:
    what: str
    line: int


@dataclass(frozen=True, kw_only=True)
class Dialogue:
    title: str
    people: Mapping[str, str]
    options: Mapping[str, str] = field(default_factory=dict[str, str])
    steps: tuple[Says | Happens, ...] = ()

    @property
    def fits_a_terminal(self) -> bool:
        """One person, in one chat."""
        return len(self.people) == 1 and all(
            step.place is None if isinstance(step, Says) else step.what.endswith("pass") for step in self.steps
        )


_TITLE = re.compile(r"# (?P<title>.+)")
_PEOPLE = re.compile(r"(?P<name>\w+) \((?P<role>owner|admin|member|guest|stranger)\)")
_SAYS = re.compile(r"(?P<person>[a-z]+)(?: (?:in (?P<place>\w+)|(?P<else>elsewhere)))?: (?P<text>.*)")
_HEARD = re.compile(r" +Palaver: (?P<text>.*)")
_MORE = re.compile(r" {4,}(?P<text>.*)")


def read_dialogues(path: Path) -> Iterator[Dialogue]:
    lines = path.read_text().splitlines()
    starts = [number for number, line in enumerate(lines) if _TITLE.fullmatch(line)]
    for start, end in zip(starts, [*starts[1:], len(lines)], strict=True):
        yield _dialogue(lines[start:end], start + 1)


def _dialogue(lines: list[str], first: int) -> Dialogue:
    head = _TITLE.fullmatch(lines[0])
    assert head
    people, options = {"alice": "member"}, dict[str, str]()
    steps: list[Says | Happens] = []
    for number, line in enumerate(lines[1:], first + 1):
        if line.startswith("people: "):
            people = {found["name"]: found["role"] for found in _PEOPLE.finditer(line)}
        elif line.startswith("options: "):
            options = dict(pair.split("=") for pair in line.removeprefix("options: ").split())
        elif line.strip():
            _add(steps, line, number)
    return Dialogue(title=head["title"], people=people, options=options, steps=tuple(steps))


def _add(steps: list[Says | Happens], line: str, number: int) -> None:
    last = steps[-1] if steps else None
    if line.startswith("("):
        steps.append(Happens(what=line.strip("()"), line=number))
    elif said := _SAYS.fullmatch(line):
        place = "elsewhere" if said["else"] else said["place"]
        steps.append(Says(person=said["person"], place=place, text=said["text"], line=number))
    elif isinstance(last, Says) and (heard := _HEARD.fullmatch(line)):
        steps[-1] = _hearing(last, (*last.heard, heard["text"]))
    elif isinstance(last, Says) and last.heard and (more := _MORE.fullmatch(line)):
        steps[-1] = _hearing(last, (*last.heard[:-1], f"{last.heard[-1]}\n{more['text']}"))
    else:
        raise ValueError(f"line {number} is no line of a dialogue: {line}")


def _hearing(said: Says, heard: tuple[str, ...]) -> Says:
    return Says(person=said.person, place=said.place, text=said.text, line=said.line, heard=heard)
