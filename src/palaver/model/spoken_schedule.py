"""Find when something is wanted in what somebody said, for example after `remind me`."""

import re
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime
from typing import NamedTuple
from zoneinfo import ZoneInfo

from palaver.model.errors import InvalidInput
from palaver.model.schedule import CALENDAR_DAY, DAY_NAME, parse_schedule
from palaver.model.text import one_line

SCHEDULE_WORDS = 12
"""The longest schedule that can stand before a prompt without quotes, in words."""
_MAX_SAID_WORDS = 40
_SCHEDULE_START = re.compile(
    r"in|at|on|every|daily|hourly|weekly|today|tomorrow|the|day|next|this|noon|midnight|@|mon|tue|wed|thu|fri|sat|sun"
    rf"|[0-9]+:[0-9]|[0-9]+ ?[ap]\.?m|{CALENDAR_DAY}",
    re.IGNORECASE,
)
_UNIT = "(?:second|sec|minute|min|hour|hr|day|week|weekend|month|year|decade)s?"
_NEAR = "(?:at|by|around|before|after|from|until|till)"
_LIKE_TIMES = (
    rf"{_NEAR} [0-9]{{1,4}}(?:[:.h][0-9]{{2}})?(?: ?o['\u2019]?clock)?",
    rf"(?:{_NEAR} )?[0-9]{{1,2}}(?::[0-9]{{2}})? ?[ap][.]?m",
    rf"(?:{_NEAR} )?(?:[0-9]{{1,2}}:[0-9]{{2}}|noon|midday|midnight|[0-9]{{1,2}}h(?:[0-9]{{2}})?)",
    r"[0-9]{1,2} ?o['\u2019]?clock",
    "at (?:one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|lunch|dinner|breakfast)",
    "(?:at )?(?:half|quarter|[a-z0-9]+ minutes) (?:past|to (?=[0-9]))|(?:at )?quarter to",
    "(?:in the |this |every |next )?(?:morning|afternoon|evening|night)s?|tonight|soon|later",
    r"today|tom+or+ow|tmrw?|2morrow|(?:the )?day after",
    rf"(?:on|next|this|every|from|until) {DAY_NAME}s?(?:(?:, ?| and ){DAY_NAME}s?)*",
    r"(?<!the )(?<!my )(?<!our )(?:mon|tues|wednes|thurs|fri|satur|sun)days?(?!['\u2019]s)",
    rf"(?:on )?(?:the )?(?:{CALENDAR_DAY}|[0-9]{{1,2}}(?:st|nd|rd|th))",
    r"(?:on )?[0-9]{1,2}(?:/[0-9]{1,2}(?:/[0-9]+)?|\.[0-9]{1,2}\.[0-9]*)",
    "(?:on|at|before|after) (?:christmas|easter|new year)",
    rf"in (?:about |around )?(?:[a-z]+ |[a-z]+ [a-z]+ |[0-9.,½]+ ?)?(?:{_UNIT}|[mhdws])",
    rf"[0-9]+ {_UNIT} (?:later|from now)|(?:next|this|each|per|once a|twice a|other) {_UNIT}",
    r"every (?:other |[0-9]+ )?\w+|hourly|daily|weekly|monthly|yearly|weekdays|weekends|twice",
    r"(?-i:in [A-Z]\w+/\w+|UTC|GMT|CES?T|E[SD]?T|P[SD]?T|C[SD]T|M[SD]T|BST|JST|IST|[A-Z][a-z]+ time)",
)
_LIKE_SOME_TIME = re.compile(rf"(?<!\w)(?:{'|'.join(_LIKE_TIMES)})(?!\w)", re.IGNORECASE)
"""What could say when, whether a schedule can be made of it or not."""
_JOINT = re.compile(r"\b(?:to|that|about)\b", re.IGNORECASE)
_FILLERS = re.compile(r"\b(?:me|please|for|and|up|again|sharp|exactly)\b|[\s,:;.-]+", re.IGNORECASE)
_BEGINS_A_TIME = re.compile(
    r"(?:in|on|at|by|from|before|after|around|until|the|next|this|every|each|day|when|once|half|quarter|early|late"
    r"|first|last|end|mid|[0-9]\S*)\b",
    re.IGNORECASE,
)
_GOES_ON = re.compile(
    r"\s*(?:(?:,|-|\u2013|and|or|to|till|until|for|from)?\s*[0-9]|(?:until|till|except|but|starting|from)\b)",
    re.IGNORECASE,
)
_WORD = re.compile(r"\s*\S+")
_NUMBER_BEFORE = re.compile(r"(?<!\S)[0-9]+\s*(?:and|or|,|-|on)?\s*$", re.IGNORECASE)
_BARE_HOUR_OF_WHAT = re.compile(r"(?:(?!(?:to|that|about|and|please|on|for|me)\b)\w|$^)", re.IGNORECASE)
_NOT_UNDERSTOOD = ("is not a schedule", "is not a duration")
_SHOWN = 60
_IN_NO_ZONE = re.compile(r"\S in (?!UTC$|[A-Z][A-Za-z_]+/[A-Z]\S*$)")
_JOINS = re.compile(r"^(?:(?:for|to|that|about|of|and|please|me)\b|[\s,:;-])+", re.IGNORECASE)
_LAST_JOINS = re.compile(r"(?:\b(?:for|to|please|and|at|on)\b|[\s,:;.!?-])+$", re.IGNORECASE)


class FoundSchedule(NamedTuple):
    schedule: str
    """Empty if none is certain."""
    prompt: str
    problem: str = ""
    """What is not certain about the time, as a sentence."""


def find_schedule(text: str, zone: ZoneInfo, now: datetime, answer: str = "") -> FoundSchedule:
    """Find the schedule anywhere in what somebody said, for example after `remind me`; the rest is the prompt.

    Whatever could say when has to be a part of it, or it would run at another time than was meant. `answer` is what
    somebody said who was asked for the time.
    """
    return _Said(" ".join(text.split()), zone, now).find(answer)


_Span = tuple[int, int]


class _Said:
    """What somebody said, and the places in it that could say when."""

    def __init__(self, text: str, zone: ZoneInfo, now: datetime) -> None:
        self.text, self.zone, self.now = text, zone, now
        self.found = self._longest_schedule()
        before, after = self.found or (len(text), len(text))
        matches = [*_LIKE_SOME_TIME.finditer(text, 0, before), *_LIKE_SOME_TIME.finditer(text, after)]
        spans: list[_Span] = [match.span() for match in matches]
        self.times = sorted([*spans, self.found] if self.found else spans)
        joints = (at.start() for at in _JOINT.finditer(text) if not self._is_in_time(at.start()))
        self.joint = next(joints, 0)
        """Where `to`, `that` or `about` begins what it is about; 0 for nowhere."""
        self.unread = self._unread()

    def find(self, answer: str) -> FoundSchedule:
        if answer:
            return self._answered(answer)
        parts = [self._of(span) for span in self.times]
        schedule = self._joined(parts)
        if schedule and not self.unread:
            return FoundSchedule(schedule, self._without(self.times))
        unread = [self.unread] if self.unread and (schedule or not parts) else []
        return FoundSchedule("", self._without([]), self._not_understood(unread) if unread else self._problem(parts))

    def _answered(self, answer: str) -> FoundSchedule:
        """Let the answer complete what was said, or else replace it."""
        alone = find_schedule(answer, self.zone, self.now)
        fits = {self._joined([self._of(span), alone.schedule or answer]) for span in self.times} - {""}
        if len(fits) > 1 or not (fits or alone.schedule):
            unknown = f"I do not understand {_shown(answer)} as a time."
            return FoundSchedule("", self._without([]), alone.problem or unknown)
        is_whole = self.found and not fits
        spans = [span for span in self.times if span == self.found or span[0] < self.joint or not is_whole]
        rest = self._without([*spans, self.unread] if self.unread else spans)
        added = alone.prompt if alone.schedule else ""
        return FoundSchedule(fits.pop() if fits else alone.schedule, f"{rest} {added}".strip())

    def _of(self, span: _Span) -> str:
        return self.text[slice(*span)].strip(",.!?;: ")

    def _without(self, spans: Sequence[_Span]) -> str:
        return _JOINS.sub("", _LAST_JOINS.sub("", " ".join(_outside(spans, self.text).split())))

    def _longest_schedule(self) -> _Span | None:
        words = [match.span() for match in re.finditer(r"\S+", self.text)][:_MAX_SAID_WORDS]
        for length in range(min(len(words), SCHEDULE_WORDS), 0, -1):
            for first in range(len(words) - length + 1):
                span = words[first][0], words[first + length - 1][1]
                # A length alone is none, as in `walk 5 m`.
                is_start = first == 0 or self._of(words[first - 1]).lower() == "for"
                if (is_start or _SCHEDULE_START.match(self._of(span))) and self._is_schedule(self._of(span)):
                    return span
        return None

    def _is_schedule(self, text: str) -> bool:
        if _IN_NO_ZONE.search(text):
            return False
        with suppress(InvalidInput):
            parse_schedule(text, self.zone, self.now)
            return True
        return False

    def _joined(self, parts: Sequence[str]) -> str:
        """Return the parts as one schedule, in either order; nothing if they are none."""
        orders = (" ".join(parts), " ".join(reversed(parts)))
        return next((text for text in orders if text and self._is_schedule(text)), "")

    def _unread(self) -> _Span | None:
        """Return what stands where the time is said, and was not understood as a part of it."""
        if self.joint and (not self.times or self.times[0][0] < self.joint):
            left = _FILLERS.sub(" ", _outside(self.times, self.text[: self.joint])).strip()
            if left and (len(left.split()) == 1 or _BEGINS_A_TIME.match(left)):
                return 0, self.joint
        return next((span for each in self.times if (span := self._goes_on(each))), None)

    def _is_in_time(self, at: int) -> bool:
        return any(start <= at < end for start, end in self.times)

    def _goes_on(self, span: _Span) -> _Span | None:
        """Return a time with a number beside it, as in `tomorrow 9`, `9am and 5` or `tomorrow ring at 9 doors`."""
        start, end = span
        following = _WORD.match(self.text, end)
        if _GOES_ON.match(self.text, end) and not self._is_in_time(end + 1):
            return start, (following.end() if following else end)
        before = _NUMBER_BEFORE.search(self.text[:start])
        if before and not re.search("[0-9]", self._of(span)):
            return before.start(), end
        is_bare = len(self.times) > 1 and re.fullmatch("at [0-9]+", self._of(span), re.IGNORECASE)
        if is_bare and following and not self._is_in_time(end + 1) and _BARE_HOUR_OF_WHAT.match(following[0].lstrip()):
            return start, following.end()
        return None

    def _problem(self, parts: Sequence[str]) -> str:
        for text in (" ".join(parts), " ".join(reversed(parts))):
            try:
                parse_schedule(text, self.zone, self.now)
            except InvalidInput as error:
                if not error.problem.endswith(_NOT_UNDERSTOOD):
                    return f"{error.problem.replace('{found}', _shown(error.found))}."
        return self._not_understood(self.times)

    def _not_understood(self, spans: Sequence[_Span]) -> str:
        together = list[_Span]()
        for start, end in spans:
            is_next = together and not self.text[together[-1][1] : start].strip(" ,")
            together.append((together.pop()[0] if is_next else start, end))
        shown = " and ".join(_shown(self._of(span)) for span in together)
        return f"I do not understand {shown} as {'a' if len(together) == 1 else 'one'} time." if together else ""


def _outside(spans: Sequence[_Span], text: str) -> str:
    """Return a text without its spans."""
    rest, at = list[str](), 0
    for start, end in sorted(spans):
        rest.append(text[at:start])
        at = max(at, end)
    return " ".join([*rest, text[at:]])


def _shown(text: str) -> str:
    return f"“{one_line(text, _SHOWN)}”"
