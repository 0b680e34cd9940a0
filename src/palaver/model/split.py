"""Splitting: cut a long text into messages, keeping code fences and tables readable, and address them."""

import re
from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import field, replace
from enum import Enum

from palaver.model.command import with_bang
from palaver.model.errors import BadArgument
from palaver.model.key import ScopedSetting
from palaver.model.markup import Block, Markup
from palaver.model.source import Source, account_text
from palaver.model.text import can_cut, last_cut
from palaver.model.turn import Choice, Outbound, QuoteMode, outbound_to
from palaver.model.value import value

_PARAGRAPH = re.compile(r"\n\s*\n")
_LINE = re.compile(r"\n")
_SENTENCE = re.compile(r"""[.!?…]["'”’)\]*_]*\s+|[。！？；][」』”’）]*""")  # noqa: RUF001
_SPACE = re.compile(r"\s+")
_WORD = re.compile(r"\S+")
_LINK = re.compile(r"!?\[[^\[\]\n]*\]\([^()\s]*\)")

_FENCE_LIKE = re.compile(r"[ \t>]*+(?:(?:[-+*]|\d{1,9}[.)])[ ]++)*(?:`{3}|~{3})")
_QUOTE = re.compile(r"(?:[ ]{0,3}>[ ]?)*")
_MARGIN = re.compile(r"[\s>]*+")
_BLANK_LINES = re.compile(r"(?:[ \t]*+\n)*")
_SPACES = re.compile(r"[^\S\n]*(?:\n[\s>]*)?")


class Unit(Enum):
    """The unit in which a platform limits message length."""

    CODE_POINTS = "code points"
    UTF16 = "UTF-16 units"
    UTF8 = "UTF-8 bytes"

    def measure(self, text: str) -> int:
        if self is Unit.CODE_POINTS or text.isascii():
            return len(text)
        if self is Unit.UTF16:
            return len(text.encode("utf-16-le", "surrogatepass")) // 2
        return len(text.encode("utf-8", "surrogatepass"))

    @property
    def widest(self) -> int:
        """The largest size of one code point."""
        return self.measure("\U0010ffff")


@value
class Piece:
    """A part of a text, and the message that carries it: it reopens and closes what the cuts fall into."""

    body: str
    text: str


def split(text: str, limit: int, unit: Unit = Unit.CODE_POINTS) -> tuple[Piece, ...]:
    """Split `text` into pieces whose bodies join to it and whose texts measure at most `limit`.

    Blank pieces are left out, because platforms refuse a blank message. Blank text is one blank piece.
    """
    if limit < unit.widest:
        allowed = f"{unit.widest} or more, so that every character fits"
        raise BadArgument(
            "The limit {found} is too small", found=f"{limit} {unit.value}", allowed=allowed, example="4096"
        )
    if unit.measure(text) <= limit and not _FRAME.search(text):
        return (Piece(body=text, text=text),) if text else ()
    pieces = tuple(_Splitter(text, limit, unit).pieces())
    return tuple(piece for piece in pieces if not piece.text.isspace()) or pieces[:1]


_FRAME = re.compile(r"```|~~~|\|")  # Every fence or table contains one of these.


def paragraphs(text: str) -> list[str]:
    """Split at blank lines, except within code fences and tables."""
    markup = Markup(text, lambda _: True)
    breaks = [found.span() for found in _PARAGRAPH.finditer(text) if not markup.block_around(found.end())]
    starts, ends = [0, *(end for _, end in breaks)], [*(start for start, _ in breaks), len(text)]
    return [part for start, end in zip(starts, ends, strict=True) if (part := text[start:end].strip("\n")).strip()]


class _Splitter:
    def __init__(self, text: str, limit: int, unit: Unit) -> None:
        self._text = text
        self._limit = limit
        self._measure = unit.measure
        self._markup = Markup(text, lambda frame: unit.measure(frame) <= limit // 2)

    def pieces(self) -> Iterator[Piece]:
        cuts = [0, *self._cuts()]
        return map(self._piece, cuts, cuts[1:])

    def _piece(self, start: int, end: int) -> Piece:
        body = self._text[start:end]
        cut = self._markup.block_around(end)
        # A reopened list item must not begin with a blank line: it would end there.
        words = start + next(_BLANK_LINES.finditer(body)).end()
        begin = words if self._markup.item_opening(words) else start
        text = self._prefix(begin) + self._mark(begin, end) + (cut.closing(body) if cut else "")
        return Piece(body=body, text=text)

    def _mark(self, start: int, end: int) -> str:
        """Return a part of the text with the marks that the cuts fall between reopened and closed."""
        body = self._text[start:end]
        margin = _MARGIN if self._begins_line(start) else _SPACES
        # Marks count only directly before and after words.
        first, last = next(margin.finditer(body)).end(), len(body.rstrip())
        if first >= last:
            return body
        opened, cut = "".join(self._marks(start)), "".join(reversed(self._marks(end)))
        return body[:first] + opened + body[first:last] + cut + body[last:]

    def _marks(self, index: int) -> tuple[str, ...]:
        marks = self._markup.open_marks(index)
        return marks if self._measure("".join(marks)) <= self._limit // 8 else ()

    def _prefix(self, start: int) -> str:
        """Return what a piece that begins here begins with: the frame of a block, or of a list item or quote."""
        block, begins_line = self._markup.block_around(start), self._begins_line(start)
        if block:
            return block.prefix + ("" if begins_line else block.margin)
        if begins_line:
            lead = self._markup.item_opening(start)
        else:
            line = self._text.rfind("\n", 0, start) + 1
            lead = next(_QUOTE.finditer(self._text, line, start))[0]
        return lead if self._measure(lead) <= self._limit // 8 else ""

    def _begins_line(self, index: int) -> bool:
        return not index or self._text[index - 1] == "\n"

    def _cuts(self) -> Iterator[int]:
        end = 0
        while end < len(self._text):
            start, room = end, self._limit - self._measure(self._prefix(end))
            end = self._end(start, room)
            while (excess := self._measure(self._piece(start, end).text) - self._limit) > 0:
                room -= excess
                end = self._end(start, room)
            end = (not self._markup.item_opening(start) and self._markup.first_orphan(start, end)) or end
            yield end

    def _end(self, start: int, room: int) -> int:
        stop = self._reach(start, room)
        if stop == len(self._text) and self._measure(self._piece(start, stop).text) <= self._limit:
            return stop
        block = self._markup.block_around(stop)
        if block and block.start > start and self._fits_in_one(block):
            return block.start
        if block:
            stop = self._reach(start, room - self._measure(block.closer))
        if stop == len(self._text):
            return stop
        clear = self._before_fence_line(start, stop)
        return self._cut_in_block(block, start, clear) if block else self._cut_in_prose(start, clear)

    def _reach(self, start: int, room: int) -> int:
        """Return where a piece of this size that begins at `start` ends."""
        end = min(len(self._text), start + room)
        if self._measure(self._text[start:end]) <= room:
            return end
        size = range(end - start)
        return start + bisect_right(size, room, key=lambda n: self._measure(self._text[start : start + n])) - 1

    def _fits_in_one(self, block: Block) -> bool:
        if block.end - block.start > self._limit + 1:
            return False
        closer = block.closer if block.end > len(self._text) else ""
        frame = self._prefix(block.start) + closer
        return self._measure(self._text[block.start : block.end] + frame) <= self._limit

    def _before_fence_line(self, start: int, stop: int) -> int:
        """Move a cut before a line that looks like a fence, because half of it could become one."""
        line = self._text.rfind("\n", start, stop) + 1
        return line if line > start and _FENCE_LIKE.match(self._text, line) else stop

    def _cut_in_block(self, block: Block, start: int, stop: int) -> int:
        floor, top = max(start, block.body) + 1, min(stop, block.last - 1)
        half = (start + stop) // 2
        cut = self._last(_PARAGRAPH, max(floor, half), top) or self._last(_LINE, floor, top)
        if cut or block.start > start:
            return cut or block.start
        return self._cut_at_word(start + 1, top if top > start else stop, start)

    def _cut_in_prose(self, start: int, stop: int) -> int:
        block = self._markup.block_before(stop)
        floor = max(start + 1, block.end if block else 0)
        late = max(floor, (start + stop) // 2)
        return (
            self._last(_PARAGRAPH, late, stop)
            or self._last(_LINE, late, stop)
            or self._last(_SENTENCE, late, stop)
            or self._last_outside_marks(late, stop)
            or self._cut_at_word(floor, stop, start)
        )

    def _cut_at_word(self, floor: int, stop: int, start: int) -> int:
        if self._text[stop].isspace() and self._is_clean(stop):
            return stop
        cut = self._last(_SPACE, floor, stop)
        if cut and (cut == stop or self._fits_word(cut)):
            return cut
        return self._cut_in_word(start, stop)

    def _fits_word(self, start: int) -> bool:
        """Return whether the word that starts here fits into a piece that starts here."""
        word = _WORD.match(self._text, start, start + self._limit + 1)
        block = self._markup.block_around(start)
        frame = block.prefix + block.margin + block.closer if block else ""
        return word is None or self._measure(frame + word[0]) <= self._limit

    def _cut_in_word(self, start: int, stop: int) -> int:
        cut = last_cut(self._text, start, stop)
        if self._starts_fence(cut):
            run = len(self._text[start:cut].rstrip(" `~"))
            cut = last_cut(self._text, start, start + run - 1)
        while cut > start and self._markup.is_inside_mark(cut):
            cut = last_cut(self._text, start, cut - 1)
        return cut if cut > start else stop

    def _last(self, boundary: re.Pattern[str], floor: int, stop: int) -> int | None:
        ends = [match.end() for match in boundary.finditer(self._text, floor - 1, stop)]
        return next(filter(self._is_clean, reversed(ends)), None)

    def _last_outside_marks(self, floor: int, stop: int) -> int | None:
        """Return the last space in `floor..stop`, on one line, that is outside emphasis, inline code and links."""
        near = max(0, floor - self._limit)
        line = max(near, self._text.rfind("\n", near, floor) + 1)
        masked = _LINK.sub(lambda span: "x" * len(span[0]), self._text[line : stop + self._limit])
        ends = [line + match.end() for match in _SPACE.finditer(masked, floor - 1 - line, stop - line)]
        return next((end for end in reversed(ends) if self._is_clean(end) and not self._marks(end)), None)

    def _is_clean(self, index: int) -> bool:
        is_torn = self._markup.is_inside_mark(index) or self._starts_fence(index)
        return can_cut(self._text, index) and not is_torn

    def _starts_fence(self, index: int) -> bool:
        """Return whether the rest of the line, cut here, would read as a fence."""
        return self._text[index - 1] != "\n" and _FENCE_LIKE.match(self._text, index) is not None


MAX_PARTS = 64
CUT = "(This answer is too long for this chat and was cut here. The transcript has up to a million characters of it.)"
DEFAULT_LIMIT = 4000


@value
class ReplyAccount:
    """What replies need to know about one of our accounts."""

    unit: Unit = Unit.CODE_POINTS
    limit: int = DEFAULT_LIMIT
    """The longest message."""
    room: int = DEFAULT_LIMIT
    """The longest message to which a mark can still be added if it has to be sent twice."""
    one_line: bool = False
    """Each line is a message of its own."""
    one_paragraph: bool = False
    """Each paragraph is a message of its own."""
    for_people: bool = True
    has_places: bool = True
    """People have more than one place on this platform."""
    bang_commands: Collection[str] = ()
    """The names of commands, where people type `!new` for `/new`."""
    forwards_to: "tuple[ReplyPlace, ...]" = ()

    def place(self, source: Source, quotes: QuoteMode = QuoteMode.GROUPS) -> "ReplyPlace":
        """Return a place at this account."""
        return ReplyPlace(source=source, account=self, quotes=quotes)

    def forwards(self, source: Source) -> bool:
        """Tell whether replies go to other chats. What goes to the account as a place is no reply."""
        return bool(self.forwards_to) and source.chat != source.account


_UNKNOWN_ACCOUNT = ReplyAccount(limit=2**31, for_people=False)


@value
class ReplyPlace:
    """Where a reply goes, and by which account."""

    source: Source
    account: ReplyAccount = _UNKNOWN_ACCOUNT
    quotes: QuoteMode = QuoteMode.GROUPS

    def notices(
        self, text: str, *, question: str = "", draft: str | None = None, choices: tuple[Choice, ...] = ()
    ) -> list[Outbound]:
        """Return the messages that carry a text of the gateway, which names commands as people type them there.

        A question before it stays as it is: it shows what a tool would do.
        """
        asked = f"{question}\n" if question else ""
        return self.messages(f"{asked}{with_bang(text, self.account.bang_commands)}", draft=draft, choices=choices)

    def messages(
        self, text: str, *, draft: str | None = None, choices: tuple[Choice, ...] = (), most: int = MAX_PARTS
    ) -> list[Outbound]:
        """Return the messages that carry the text. The first replaces a draft, the last has the choices."""
        if not text.strip():
            return []
        first, *rest = self._pieces(text, most)
        answer = outbound_to(self.source, first, reply_to=self.source.message_id, edits=draft)
        messages = [
            answer if self.quotes is answer.quotes else replace(answer, quotes=self.quotes),
            *(outbound_to(self.source, piece) for piece in rest),
        ]
        if choices:
            messages[-1] = replace(messages[-1], choices=choices)
        return messages

    def _pieces(self, text: str, most: int) -> list[str]:
        # The rest is in none of the kept pieces: no piece holds more than `room` characters.
        room = self.account.room
        beginning = text[: (most + 1) * room]
        pieces = self._cut(self._parts(beginning))
        if self.account.one_paragraph and len(pieces) > most:
            pieces = self._cut((beginning,))
        if len(pieces) <= most and beginning == text:
            return pieces
        end = [piece.text for piece in split(CUT, room, self.account.unit)][:most]
        return [*pieces[: most - len(end)], *end]

    def _parts(self, text: str) -> Iterable[str]:
        if self.account.one_line:
            return filter(str.strip, text.splitlines())
        return paragraphs(text) if self.account.one_paragraph else (text,)

    def _cut(self, parts: Iterable[str]) -> list[str]:
        return [piece.text for part in parts for piece in split(part, self.account.room, self.account.unit)]


@value
class ReplyRoutes:
    """How to reply to any source. A value, so that a transaction can reply to what it finds."""

    accounts: Mapping[str, ReplyAccount] = field(default_factory=dict[str, ReplyAccount])
    """Our accounts by the text of each."""
    quotes: ScopedSetting[QuoteMode] = field(default_factory=lambda: ScopedSetting(default=QuoteMode.GROUPS))

    def account(self, source: Source) -> ReplyAccount:
        return self.accounts.get(account_text(source.platform, source.account), _UNKNOWN_ACCOUNT)

    def reaches_people(self, source: Source) -> bool:
        return self.account(source).for_people and bool(source.chat or source.participant)

    def has_places(self, source: Source) -> bool:
        account = self.account(source)
        return account.for_people and account.has_places

    def is_forwarded(self, source: Source) -> bool:
        """Tell whether replies go to other chats."""
        return self.account(source).forwards(source)

    def places(self, source: Source) -> tuple[ReplyPlace, ...]:
        account = self.account(source)
        if account.forwards(source):
            return account.forwards_to
        return (account.place(source, self.quotes.find(source)),)

    def notices(
        self,
        source: Source,
        text: str,
        *,
        question: str = "",
        draft: str | None = None,
        choices: tuple[Choice, ...] = (),
    ) -> list[Outbound]:
        """Return the messages that carry a text of the gateway to where answers to the source go."""
        return [
            message
            for place in self.places(source)
            for message in place.notices(text, question=question, draft=draft, choices=choices)
        ]

    def notice(self, place: Source, text: str) -> Outbound:
        """Return a short notice as the one message that is sent to just this place."""
        return outbound_to(place, with_bang(text, self.account(place).bang_commands))
