"""Splitting: cut a long text into messages, keeping code fences and tables readable, and address them."""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Mapping
from dataclasses import field, replace
from enum import Enum

from palaver.model.errors import BadArgument
from palaver.model.source import Source
from palaver.model.text import can_cut, last_cut
from palaver.model.turn import Choice, Outbound, account_text, outbound_to
from palaver.model.value import value

_PARAGRAPH = re.compile(r"\n\s*\n")
_LINE = re.compile(r"\n")
_SENTENCE = re.compile(r"""[.!?…]["'”’)\]*_]*\s+|[。！？；][」』”’）]*""")  # noqa: RUF001
_SPACE = re.compile(r"\s+")
_WORD = re.compile(r"\S+")
_CODE_OR_LINK = re.compile(r"(?<!`)(`+)(?!`)[^`\n]+\1|!?\[[^\[\]\n]*\]\([^()\s]*\)")

_FENCE_LIKE = re.compile(r" {0,3}(?:`{3}|~{3})")
_FENCE_LINE = re.compile(r"^ {0,3}(?P<fence>`{3,}+|~{3,}+)(?P<info>[^\n]*)\n?", re.MULTILINE)
_OPENING = re.compile(
    r"""
    ^(?:
      (?P<indent>[ ]{0,3}+)(?P<fence>`{3,}+(?=[^`\n]*+$)|~{3,}+)(?P<info>[^\n]*+)\n?
    |
      (?P<head>
        [^|\n]*+\|[^\n]*+\n                                                        # | a | b |
        (?=[^|\n]*+\|)[ \t]*+\|?[ \t]*+:?-++:?[ \t]*+(?:\|[ \t]*+:?-++:?[ \t]*+)*+\|?[ \t\r]*+(?:\n|\Z)
      )
      (?P<rows>(?:(?![ ]{0,3}(?:`{3}|~{3}))[^|\n]*+\|[^\n]*+(?:\n|\Z))*+)
    )
    """,
    re.MULTILINE | re.VERBOSE,
)


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
    """A part of the text, with a prefix and suffix that reopen and close the block it was cut from."""

    prefix: str
    body: str
    suffix: str

    @property
    def text(self) -> str:
        return self.prefix + self.body + self.suffix


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
        return (Piece(prefix="", body=text, suffix=""),) if text else ()
    blocks = tuple(_blocks(text, lambda frame: unit.measure(frame) <= limit // 2))
    pieces = tuple(_Splitter(text, limit, unit, blocks).pieces())
    return tuple(piece for piece in pieces if not piece.text.isspace()) or pieces[:1]


_FRAME = re.compile(r"```|~~~|\|")  # Every fence or table contains one of these.


@value
class _Block:
    """A code fence or a table. Every cut inside repeats its frame; the best cuts lie between `body` and `last`."""

    start: int
    body: int
    last: int
    end: int
    prefix: str
    closer: str

    def closing(self, body: str) -> str:
        return self.closer.removeprefix("\n") if body.endswith("\n") else self.closer


def _blocks(text: str, fits: Callable[[str], bool]) -> Iterator[_Block]:
    at = 0
    while opening := _OPENING.search(text, at):
        block = _fence(opening, fits) if opening["fence"] else _table(opening, fits)
        yield block
        at = block.end


def _fence(opening: re.Match[str], fits: Callable[[str], bool]) -> _Block:
    text, bare = opening.string, opening["indent"] + opening["fence"]
    lines = _FENCE_LINE.finditer(text, opening.end())
    closings = (line for line in lines if line["fence"].startswith(opening["fence"]) and not line["info"].strip())
    closing = next(closings, None)
    # An unclosed fence extends past the end of the text, so that the last piece is closed too.
    last, end = closing.span() if closing else (len(text) + 1, len(text) + 1)
    openers = (f"{bare}{opening['info'].rstrip()}\n", f"{bare}\n")
    prefix = next((opener for opener in openers if fits(f"{opener}\n{bare}")), "")
    closer = f"\n{bare}" if prefix else ""
    return _Block(start=opening.start(), body=opening.end(), last=last, end=end, prefix=prefix, closer=closer)


def _table(opening: re.Match[str], fits: Callable[[str], bool]) -> _Block:
    head, end = opening["head"], opening.end()
    prefix = head if fits(head) else ""
    return _Block(start=opening.start(), body=opening.end("head"), last=end, end=end, prefix=prefix, closer="")


class _Splitter:
    def __init__(self, text: str, limit: int, unit: Unit, blocks: tuple[_Block, ...]) -> None:
        self._text = text
        self._limit = limit
        self._measure = unit.measure
        self._blocks = blocks
        self._starts = [block.start for block in blocks]

    def pieces(self) -> Iterator[Piece]:
        cuts = [0, *self._cuts()]
        return map(self._piece, cuts, cuts[1:])

    def _piece(self, start: int, end: int) -> Piece:
        opened, cut = self._block_around(start), self._block_around(end)
        body = self._text[start:end]
        return Piece(prefix=opened.prefix if opened else "", body=body, suffix=cut.closing(body) if cut else "")

    def _cuts(self) -> Iterator[int]:
        end = 0
        while end < len(self._text):
            block = self._block_around(end)
            end = self._end(end, self._limit - self._measure(block.prefix if block else ""))
            yield end

    def _end(self, start: int, room: int) -> int:
        stop = self._reach(start, room)
        if stop == len(self._text) and self._measure(self._piece(start, stop).text) <= self._limit:
            return stop
        block = self._block_around(stop)
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

    def _block_before(self, index: int) -> _Block | None:
        position = bisect_left(self._starts, index)
        return self._blocks[position - 1] if position else None

    def _block_around(self, index: int) -> _Block | None:
        block = self._block_before(index)
        return block if block and index < block.end else None

    def _fits_in_one(self, block: _Block) -> bool:
        if block.end - block.start > self._limit + 1:
            return False
        closer = block.closer if block.end > len(self._text) else ""
        return self._measure(self._text[block.start : block.end] + closer) <= self._limit

    def _before_fence_line(self, start: int, stop: int) -> int:
        """Move a cut before a line that looks like a fence, because half of it could become one."""
        line = self._text.rfind("\n", start, stop) + 1
        return line if line > start and _FENCE_LIKE.match(self._text, line) else stop

    def _cut_in_block(self, block: _Block, start: int, stop: int) -> int:
        floor, top = max(start, block.body) + 1, min(stop, block.last - 1)
        half = (start + stop) // 2
        cut = self._last(_PARAGRAPH, max(floor, half), top) or self._last(_LINE, floor, top)
        if cut or block.start > start:
            return cut or block.start
        return self._cut_at_word(start + 1, top if top > start else stop, start)

    def _cut_in_prose(self, start: int, stop: int) -> int:
        block = self._block_before(stop)
        floor = max(start + 1, block.end if block else 0)
        late = max(floor, (start + stop) // 2)
        return (
            self._last(_PARAGRAPH, late, stop)
            or self._last(_LINE, late, stop)
            or self._last(_SENTENCE, late, stop)
            or self._last_outside_code(late, stop)
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
        block = self._block_around(start)
        frame = block.prefix + block.closer if block else ""
        return word is None or self._measure(frame + word[0]) <= self._limit

    def _cut_in_word(self, start: int, stop: int) -> int:
        cut = last_cut(self._text, start, stop)
        if self._starts_fence(cut):
            run = len(self._text[start:cut].rstrip(" `~"))
            cut = last_cut(self._text, start, start + run - 1)
        return cut if cut > start else stop

    def _last(self, boundary: re.Pattern[str], floor: int, stop: int) -> int | None:
        ends = [match.end() for match in boundary.finditer(self._text, floor - 1, stop)]
        return next(filter(self._is_clean, reversed(ends)), None)

    def _last_outside_code(self, floor: int, stop: int) -> int | None:
        """Return the last space in `floor..stop`, on one line, that is outside inline code and links."""
        near = max(0, floor - self._limit)
        line = max(near, self._text.rfind("\n", near, floor) + 1)
        masked = _CODE_OR_LINK.sub(lambda span: "x" * len(span[0]), self._text[line : stop + self._limit])
        ends = [line + match.end() for match in _SPACE.finditer(masked, floor - 1 - line, stop - line)]
        return next(filter(self._is_clean, reversed(ends)), None)

    def _is_clean(self, index: int) -> bool:
        return can_cut(self._text, index) and not self._starts_fence(index)

    def _starts_fence(self, index: int) -> bool:
        """Return whether the rest of the line, cut here, would read as a fence."""
        return self._text[index - 1] != "\n" and _FENCE_LIKE.match(self._text, index) is not None


MAX_PARTS = 64
CUT = "(This answer is too long for this chat and was cut here. The transcript has all of it.)"
DEFAULT_LIMIT = 4000


@value
class ReplyPlace:
    """Where a reply goes, and how long each of its messages may be."""

    source: Source
    unit: Unit = Unit.CODE_POINTS
    room: int = DEFAULT_LIMIT
    one_line: bool = False
    """Each line is a message of its own."""

    def messages(self, text: str, *, draft: str | None = None, choices: tuple[Choice, ...] = ()) -> list[Outbound]:
        """Return the messages that carry the text. The first replaces a draft, the last has the choices."""
        if not text.strip():
            return []
        messages = [outbound_to(self.source, piece) for piece in self._pieces(text)]
        messages[0] = replace(messages[0], reply_to=self.source.message_id, edits=draft)
        if choices:
            messages[-1] = replace(messages[-1], choices=choices)
        return messages

    def _pieces(self, text: str) -> list[str]:
        # The rest is in none of the kept pieces: no piece holds more than `room` characters.
        beginning = text[: (MAX_PARTS + 1) * self.room]
        lines = filter(str.strip, beginning.splitlines()) if self.one_line else (beginning,)
        pieces = [piece.text for line in lines for piece in split(line, self.room, self.unit)]
        if len(pieces) <= MAX_PARTS and beginning == text:
            return pieces
        end = [piece.text for piece in split(CUT, self.room, self.unit)][:MAX_PARTS]
        return [*pieces[: MAX_PARTS - len(end)], *end]


@value
class ReplyAccount:
    """What replies need to know about one of our accounts."""

    unit: Unit = Unit.CODE_POINTS
    limit: int = DEFAULT_LIMIT
    """The longest message."""
    room: int = DEFAULT_LIMIT
    """The longest message to which a mark can still be added if it has to be sent twice."""
    one_line: bool = False
    for_people: bool = True
    has_places: bool = True
    """People have more than one place on this platform."""
    forwards_to: tuple[ReplyPlace, ...] = ()


_UNKNOWN_ACCOUNT = ReplyAccount(limit=2**31, for_people=False)


@value
class ReplyRoutes:
    """How to reply to any source. A value, so that a transaction can reply to what it finds."""

    accounts: Mapping[str, ReplyAccount] = field(default_factory=dict[str, ReplyAccount])
    """Our accounts by the text of each."""

    def account(self, source: Source) -> ReplyAccount:
        return self.accounts.get(account_text(source.platform, source.account), _UNKNOWN_ACCOUNT)

    def reaches_people(self, source: Source) -> bool:
        return self.account(source).for_people and bool(source.chat or source.participant)

    def has_places(self, source: Source) -> bool:
        account = self.account(source)
        return account.for_people and account.has_places

    def is_forwarded(self, source: Source) -> bool:
        """Tell whether replies go to other chats. What goes to the account as a place is no reply."""
        return bool(self.account(source).forwards_to) and source.chat != source.account

    def places(self, source: Source) -> tuple[ReplyPlace, ...]:
        account = self.account(source)
        if self.is_forwarded(source):
            return account.forwards_to
        return (ReplyPlace(source=source, unit=account.unit, room=account.room, one_line=account.one_line),)

    def messages(
        self, source: Source, text: str, *, draft: str | None = None, choices: tuple[Choice, ...] = ()
    ) -> list[Outbound]:
        places = self.places(source)
        return [message for place in places for message in place.messages(text, draft=draft, choices=choices)]
