"""Find code fences, tables and emphasis in Markdown, so that a cut can close and reopen them."""

import re
import unicodedata
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from operator import itemgetter

from palaver.model.value import value

_LINE = re.compile(r"^(?P<quote>(?:[ ]{0,3}>[ ]?)*)(?P<indent>[ \t]*+)(?P<rest>[^\n]*+)\n?", re.MULTILINE)
_QUOTE = re.compile(r"[ ]{0,3}>[ ]?")
_BREAKS = re.compile(r"\n*+")
_ITEM = re.compile(r"(?:[-+*]|\d{1,9}[.)])(?:[ ]{1,4}(?=[^ \n])|(?= ))")
_HEADING = re.compile(r"#{1,6}[ \t]")
_FENCE = re.compile(r"(?P<fence>`{3,}+(?=[^`\n]*+$)|~{3,}+)(?P<info>[^\n]*+)", re.MULTILINE)
_TABLE = re.compile(
    r"""
      (?P<head>
        [^|\n]*+\|[^\n]*+\n                                                        # | a | b |
        (?=[^|\n]*+\|)[ \t]*+\|?[ \t]*+:?-++:?[ \t]*+(?:\|[ \t]*+:?-++:?[ \t]*+)*\|?[ \t\r]*+(?:\n|\Z)
      )
      (?P<rows>(?:(?![ ]{0,3}(?:`{3}|~{3}))[^|\n]*+\|[^\n]*+(?:\n|\Z))*)
    """,
    re.VERBOSE,
)
_MARK = re.compile(r"\\[\\`*_~]|`+|\*+|_+|~~")
_TICKS = re.compile(r"`+")


@value
class Block:
    """A code fence or a table. Every cut inside repeats its frame; the best cuts lie between `body` and `last`."""

    start: int
    body: int
    last: int
    end: int
    prefix: str
    closer: str
    margin: str = ""
    """What a line begins with that continues in the middle of another one."""

    def closing(self, body: str) -> str:
        return self.closer.removeprefix("\n") if body.endswith("\n") else self.closer


class Markup:
    """The blocks of a text, and which marks are open at each place of its prose.

    `fits` tells whether a frame is short enough to repeat it in every piece.
    """

    def __init__(self, text: str, fits: Callable[[str], bool]) -> None:
        self._scan = _Scan(text, fits)
        self.blocks = tuple(self._scan.read())
        self._item_lines = list(self._scan.items)
        self._starts = [block.start for block in self.blocks]
        self._inside, changes = _marks(text, self._scan.paragraphs)
        self._places = [place for place, _ in changes]
        self._open = [marks for _, marks in changes]

    def block_before(self, index: int) -> Block | None:
        position = bisect_left(self._starts, index)
        return self.blocks[position - 1] if position else None

    def block_around(self, index: int) -> Block | None:
        block = self.block_before(index)
        return block if block and index < block.end else None

    def is_inside_mark(self, index: int) -> bool:
        """Tell whether a cut here would tear a mark apart or leave nothing between two."""
        return index in self._inside

    def open_marks(self, index: int) -> tuple[str, ...]:
        """Return the marks that are open here, outermost first."""
        position = bisect_right(self._places, index)
        return self._open[position - 1] if position else ()

    def item_opening(self, index: int) -> str:
        """Return what reopens the list item of a line that would be code without its list."""
        return self._scan.items.get(index, ("", 0))[0]

    def first_orphan(self, start: int, end: int) -> int | None:
        """Return the first line after `start` that would be code because its list began before `start`."""
        position = bisect_right(self._item_lines, start)
        line = self._item_lines[position] if position < len(self._item_lines) else end
        return line if line < end and self._scan.items[line][1] < start else None


@value
class _OpenFence:
    start: int
    body: int
    quote: str
    indent: str
    offset: int
    """How far the text of the list item around is indented."""
    fence: str
    info: str

    def frame(self, last: int, end: int, fits: Callable[[str], bool], *, closed: bool) -> Block:
        item = _reopen_item(len(self.indent)) if len(self.indent) >= _CODE_INDENT or not closed else ""
        bare = f"{self.quote}{self.indent}{self.fence}"
        lead = self.quote + item + bare if item else bare
        openers = (f"{lead}{self.info.rstrip()}\n", f"{lead}\n")
        margin = self.quote + (self.indent if item else "")
        prefix = next((opener for opener in openers if fits(f"{opener}{margin}\n{bare}")), "")
        closer, margin = (f"\n{bare}", margin) if prefix else ("", "")
        return Block(start=self.start, body=self.body, last=last, end=end, prefix=prefix, closer=closer, margin=margin)


_CODE_INDENT = 4
_MAX_DEPTH = 32


def _reopen_item(width: int) -> str:
    """Return an empty list item, nested until a line indented by `width` belongs to it."""
    return "- " * max(0, width // 2 - 2) + "-\n"


class _Scan:
    """Read a text line by line, as CommonMark does: quotes, list items, fences, tables, paragraphs."""

    def __init__(self, text: str, fits: Callable[[str], bool]) -> None:
        self._text = text
        self._fits = fits
        self._depth = 0
        self._offsets: list[int] = []
        self._fence: _OpenFence | None = None
        self._in_paragraph = False
        self.paragraphs: list[tuple[int, int]] = []
        self._list_start = 0
        self.items: dict[int, tuple[str, int]] = {}
        """By line: what reopens its list item, and where the list begins."""

    def read(self) -> Iterator[Block]:
        at = 0
        while at < len(self._text) and (line := _LINE.match(self._text, at)):
            at = line.end()
            if not line[0].strip():
                at = next(_BREAKS.finditer(self._text, at)).end()
            if self._fence:
                ended = self._end_fence(self._fence, line)
                if ended:
                    self._fence = None
                    yield ended
                if not ended or ended.end > line.start():
                    continue
            table = self._read_line(line)
            if table:
                at = table.end
                yield table
        if self._fence:
            # An unclosed fence extends past the end of the text, so that the last piece is closed too.
            beyond = len(self._text) + 1
            yield self._fence.frame(beyond, beyond, self._fits, closed=True)

    def _end_fence(self, fence: _OpenFence, line: re.Match[str]) -> Block | None:
        content = _unquote(line[0], fence.quote.count(">"))
        text = content.strip() if content else ""
        width = _width(content) if content and text else fence.offset
        if content is None or width < fence.offset:
            return fence.frame(line.start(), line.start(), self._fits, closed=False)
        closing = _FENCE.fullmatch(text)
        if closing is None or closing["info"] or not closing["fence"].startswith(fence.fence):
            return None
        if width - fence.offset >= _CODE_INDENT:
            return None
        return fence.frame(line.start(), line.end(), self._fits, closed=True)

    def _read_line(self, line: re.Match[str]) -> Block | None:
        depth = line["quote"].count(">")
        if depth != self._depth:
            self._depth, self._offsets, self._in_paragraph = depth, [], False
        if not line["rest"].strip():
            self._in_paragraph = False
            return None
        at, width = self._enter_items(line)
        indent = width - (self._offsets[-1] if self._offsets else 0)
        fence = _FENCE.match(self._text, at)
        if indent >= _CODE_INDENT and not self._in_paragraph:
            return None
        if fence and indent < _CODE_INDENT:
            self._open_fence(line, fence, width)
            return None
        table = _TABLE.match(self._text, line.start())
        if table:
            self._in_paragraph = False
            return self._table(table)
        self._add_prose(at, line.end())
        return None

    def _enter_items(self, line: re.Match[str]) -> tuple[int, int]:
        """Leave the list items that end before a line, enter those that begin in it; return where its text begins."""
        at, width = line.start("rest"), _width(line["indent"])
        while self._offsets and self._offsets[-1] > width:
            self._offsets.pop()
        if self._offsets and width >= _CODE_INDENT:
            self.items[line.start()] = (line["quote"] + _reopen_item(width), self._list_start)
        if not self._offsets:
            self._list_start = line.start()
        while (item := _ITEM.match(self._text, at, line.end())) and self._can_enter(width):
            at, width = item.end(), width + len(item[0]) + (item[0][-1] != " ")
            self._offsets.append(width)
            self._in_paragraph = False
        return at, width

    def _can_enter(self, width: int) -> bool:
        return len(self._offsets) < _MAX_DEPTH and width - (self._offsets[-1] if self._offsets else 0) < _CODE_INDENT

    def _open_fence(self, line: re.Match[str], fence: re.Match[str], width: int) -> None:
        self._in_paragraph = False
        self._fence = _OpenFence(
            start=line.start(),
            body=line.end(),
            quote=line["quote"],
            indent=" " * width,
            offset=self._offsets[-1] if self._offsets else 0,
            fence=fence["fence"],
            info=fence["info"],
        )

    def _table(self, found: re.Match[str]) -> Block:
        head, end = found["head"], found.end()
        prefix = head if self._fits(head) else ""
        return Block(start=found.start(), body=found.end("head"), last=end, end=end, prefix=prefix, closer="")

    def _add_prose(self, start: int, end: int) -> None:
        if _HEADING.match(self._text, start):
            self._in_paragraph = False
            self.paragraphs.append((start, end))
        elif self._in_paragraph:
            self.paragraphs[-1] = (self.paragraphs[-1][0], end)
        else:
            self._in_paragraph = True
            self.paragraphs.append((start, end))


def _unquote(line: str, depth: int) -> str | None:
    """Return a line without its outer quote marks, or None if it has fewer."""
    for _ in range(depth):
        mark = _QUOTE.match(line)
        if mark is None:
            return None
        line = line[mark.end() :]
    return line


def _width(line: str) -> int:
    indent = line[: len(line) - len(line.lstrip(" \t"))]
    return len(indent.expandtabs(_CODE_INDENT))


@value
class _Span:
    """What lies between an opening mark and its closing mark."""

    start: int
    inner_start: int
    inner_end: int
    end: int
    mark: str


class _Run:
    """A row of equal marks; spans take their marks from its inner end."""

    def __init__(self, text: str, found: re.Match[str], start: int, end: int) -> None:
        self.char = found[0][0]
        self.start, self.end = found.span()
        self.length = self.end - self.start
        before = text[self.start - 1] if self.start > start else " "
        after = text[self.end] if self.end < end else " "
        left = not after.isspace() and (not _is_punctuation(after) or before.isspace() or _is_punctuation(before))
        right = not before.isspace() and (not _is_punctuation(before) or after.isspace() or _is_punctuation(after))
        inner = self.char == "_"
        self.opens = left and not (inner and right and not _is_punctuation(before))
        self.closes = right and not (inner and left and not _is_punctuation(after))

    def is_closed_by(self, closer: "_Run") -> bool:
        if self.char != closer.char:
            return False
        either = (self.opens and self.closes) or (closer.opens and closer.closes)
        return not either or (self.length + closer.length) % 3 > 0 or (self.length % 3 == 0 == closer.length % 3)


def _is_punctuation(char: str) -> bool:
    return unicodedata.category(char)[0] in "PS"


_DEEPEST = 64
"""No text for people nests deeper; marks below that are not reopened, so that hostile text costs linear time."""


def _marks(text: str, paragraphs: list[tuple[int, int]]) -> tuple[frozenset[int], list[tuple[int, tuple[str, ...]]]]:
    """Return the places inside marks, and at each place where marks open or close those that are open from there."""
    spans = [span for start, end in paragraphs for span in _spans(text, start, end)]
    steps = [(span.inner_start, span.mark) for span in spans] + [(span.inner_end, "") for span in spans]
    open_marks: list[str] = []
    changes: list[tuple[int, tuple[str, ...]]] = []
    for place, mark in sorted(steps, key=itemgetter(0)):
        if mark:
            open_marks.append(mark)
        else:
            open_marks.pop()
        changes.append((place, tuple(open_marks) if len(open_marks) <= _DEEPEST else ()))
    inside = frozenset(place for span in spans for place in _places_inside(text, span))
    return inside, changes


def _places_inside(text: str, span: _Span) -> Iterator[int]:
    first, last = span.inner_start, span.inner_end
    if span.mark[0] == "`":
        inner = text[first:last]
        first, last = first + len(inner) - len(inner.lstrip()), last - len(inner) + len(inner.rstrip())
        for ticks in _TICKS.finditer(text, span.inner_start, span.inner_end):
            yield from range(ticks.start(), ticks.end() + 1)
    yield from range(span.start + 1, first + 1)
    yield from range(last, span.end)


def _spans(text: str, start: int, end: int) -> list[_Span]:
    ticks: dict[int, list[int]] = {}
    for found in _TICKS.finditer(text, start, end):
        ticks.setdefault(len(found[0]), []).append(found.start())
    spans: list[_Span] = []
    runs: list[_Run] = []
    at = start
    while mark := _MARK.search(text, at, end):
        at = mark.end()
        if mark[0][0] == "`":
            starts = ticks.get(len(mark[0]), [])
            position = bisect_left(starts, at)
            # Reopened at the beginning of a line, three of them would be a fence unless the line also closes them.
            if position < len(starts) and not (mark[0].startswith("```") and "\n" in text[at : starts[position]]):
                close, at = starts[position], starts[position] + len(mark[0])
                spans.append(_Span(start=mark.start(), inner_start=mark.end(), inner_end=close, end=at, mark=mark[0]))
        elif mark[0][0] != "\\":
            runs.append(_Run(text, mark, start, end))
    return spans + _emphasis(runs)


def _emphasis(runs: list[_Run]) -> list[_Span]:
    """Pair marks by CommonMark's rules, in time linear in their number."""
    spans: list[_Span] = []
    openers: list[_Run] = []
    searched: dict[tuple[str, bool, int], int] = {}
    for run in runs:
        while run.closes and run.start < run.end:
            kind = (run.char, run.opens, run.length % 3)
            position = len(openers) - 1
            while position >= 0 and openers[position].start >= searched.get(kind, 0):
                if openers[position].is_closed_by(run):
                    break
                position -= 1
            else:
                searched[kind] = run.start
                break
            opener = openers[position]
            size = 2 if min(opener.end - opener.start, run.end - run.start) > 1 else 1
            spans.append(
                _Span(
                    start=opener.end - size,
                    inner_start=opener.end,
                    inner_end=run.start,
                    end=run.start + size,
                    mark=run.char * size,
                )
            )
            opener.end -= size
            run.start += size
            del openers[position + (opener.start < opener.end) :]
        if run.opens and run.start < run.end:
            openers.append(run)
    return spans
