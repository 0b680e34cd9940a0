"""The form of a dialogue.

    # What it shows
    people: alice (owner), bob (member), carol (stranger)
    options: busy=collect groups=shared

    alice: how are you?
      Palaver: You said: how are you?
    bob in Kitchen: @bot hello
      Palaver: You said: hello
      Palaver to alice: …
    bob replies in Kitchen: and you?
      Palaver: You said: and you?
    alice replies to 'how are you?': /branch
      Palaver: …
    alice elsewhere: /link {code}
      Palaver: …
      Palaver to alice: …
    (alice edits "hello" to "good morning")
    (alice deletes "hello")
    (2 hours pass)
    (the gateway restarts)

Without `people` it is alice alone, a member. `in Kitchen` is a group, `elsewhere` a direct chat on another platform,
everything else a direct chat. Each line of Palaver is one message, in the chat of the line above it or in the one that
it names; more indented lines go on with it. `…` stands for anything, `{code}` for a word that is remembered when it is
heard, and is the same from then on. What else can happen stands in play.py, which options there are in rules.py.
Anything that is heard beyond what stands there is a failure.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

__all__ = ["Dialogue", "Happens", "Heard", "Place", "Says", "read_dialogues"]

ELSEWHERE = "elsewhere"


@dataclass(frozen=True, kw_only=True)
class Place:
    """The direct chat of a person, here or elsewhere, or a group."""

    person: str = ""
    name: str | None = None

    @property
    def is_elsewhere(self) -> bool:
        return self.name == ELSEWHERE

    @property
    def is_group(self) -> bool:
        return not self.person


@dataclass(frozen=True, kw_only=True)
class Heard:
    place: Place
    text: str


@dataclass(frozen=True, kw_only=True)
class Says:
    person: str
    place: Place
    text: str
    line: int
    replies: str | None = None
    """To what, in the chat; to what was heard last, if it is empty."""
    heard: tuple[Heard, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Happens:
    what: str
    place: Place
    """Where somebody spoke last."""
    line: int
    heard: tuple[Heard, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Dialogue:
    title: str
    people: Mapping[str, str]
    options: Mapping[str, str] = field(default_factory=dict[str, str])
    steps: tuple[Says | Happens, ...] = ()

    @property
    def fits_a_terminal(self) -> bool:
        """One person in one chat, who changes nothing afterwards and knows nothing of restarts."""
        happened = [step.what for step in self.steps if isinstance(step, Happens)]
        return (
            len(self.people) == 1
            and all(step.place.name is None for step in self.steps)
            and all(step.replies is None for step in self.steps if isinstance(step, Says))
            and not any(re.search("edits|deletes|restarts|news for", what) for what in happened)
        )


_TITLE = re.compile(r"# (?P<title>.+)")
_PEOPLE = re.compile(r"(?P<name>\w+) \((?P<role>owner|admin|member|guest|stranger)\)")
_SAYS = re.compile(
    r"(?P<person>[a-z]+)(?P<replies> replies(?: to '(?P<to>[^']+)')?)?"
    r"(?: (?:in (?P<group>\w+)|(?P<else>elsewhere)))?: (?P<text>.*)"
)
_HEARD = re.compile(r" +Palaver(?: to (?P<person>[a-z]+)(?: (?P<else>elsewhere))?| in (?P<group>\w+))?: (?P<text>.*)")
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
        steps.append(Happens(what=line.strip("()"), place=last.place if last else Place(), line=number))
    elif said := _SAYS.fullmatch(line):
        text, replies = said["text"], (said["to"] or "") if said["replies"] else None
        steps.append(Says(person=said["person"], place=_place(said), text=text, line=number, replies=replies))
    elif last and (heard := _HEARD.fullmatch(line)):
        place = _place(heard) if heard["person"] or heard["group"] else last.place
        steps[-1] = replace(last, heard=(*last.heard, Heard(place=place, text=heard["text"])))
    elif last and last.heard and (more := _MORE.fullmatch(line)):
        longer = replace(last.heard[-1], text=f"{last.heard[-1].text}\n{more['text']}")
        steps[-1] = replace(last, heard=(*last.heard[:-1], longer))
    else:
        raise ValueError(f"line {number} is no line of a dialogue: {line}")


def _place(found: re.Match[str]) -> Place:
    if found["group"]:
        return Place(name=found["group"])
    return Place(person=found["person"], name=found["else"])
