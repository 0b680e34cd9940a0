"""Render Markdown with the marks of a platform that has a markup of its own, such as *bold*."""

from collections.abc import Callable, Iterable
from itertools import takewhile

from palaver.model.value import value
from palaver.protocols.markdown.spans import Layout, Open, Opens, Piece, to_pieces
from palaver.protocols.markdown.tree import Style


@value
class Marks:
    """The marks before and after a text; empty for a style that the platform does not have."""

    bold: str = ""
    italic: str = ""
    struck: str = ""
    code: str = ""
    code_block: str = ""
    has_languages: bool = False
    """A code block can name its language."""
    link: Callable[[str], tuple[str, str]] = lambda _: ("", "")
    """Return what stands before and after the text of a link to this URL."""
    escape: Callable[[str], str] = str
    """Escape text that is not code."""
    escape_code: Callable[[str], str] = str
    layout: Layout = Layout()

    def around(self, span: Open) -> tuple[str, str]:
        if span.kind is Style.LINK:
            return self.link(span.detail)
        mark = {Style.BOLD: self.bold, Style.ITALIC: self.italic, Style.STRUCK: self.struck}.get(span.kind, "")
        return mark, mark


def to_marks(text: str, marks: Marks) -> str:
    writer = _Writer(marks)
    for piece in to_pieces(text, marks.layout):
        writer.add(piece)
    return writer.finish()


class _Writer:
    """Writes marks next to words, as platforms want them: spaces stay outside, and a line closes all of its marks."""

    def __init__(self, marks: Marks) -> None:
        self._marks = marks
        self._written: list[str] = []
        self._space = ""
        """Read and not written yet: it goes behind the marks that close."""
        self._opens: Opens = ()

    def add(self, piece: Piece) -> None:
        kind = piece.opens[-1].kind if piece.opens else None
        if kind is Style.CODE_BLOCK:
            self._put(self._code_block(piece), ())
        elif kind is Style.CODE and self._marks.code and self._marks.code not in piece.text:
            self._put(f"{self._marks.code}{self._marks.escape_code(piece.text)}{self._marks.code}", ())
        elif kind is Style.CODE:
            self._put(self._marks.escape(piece.text), ())
        else:
            self._put(self._marks.escape(piece.text) if piece.is_content else piece.text, piece.opens)

    def finish(self) -> str:
        self._turn_to(())
        return "".join(self._written)

    def _put(self, text: str, opens: Opens) -> None:
        body = text.strip()
        if not body:
            if "\n" in text:
                self._close(0)
            self._space += text
            return
        start = text.index(body)
        self._space += text[:start]
        self._turn_to(opens)
        self._written.append(body)
        self._space = text[start + len(body) :]

    def _turn_to(self, opens: Opens) -> None:
        shared = len([*takewhile(lambda pair: pair[0] == pair[1], zip(self._opens, opens, strict=False))])
        self._close(shared)
        self._written += [self._space, *(self._marks.around(each)[0] for each in opens[shared:])]
        self._space, self._opens = "", opens

    def _close(self, kept: int) -> None:
        closed: Iterable[Open] = reversed(self._opens[kept:])
        self._written += [self._marks.around(each)[1] for each in closed]
        self._opens = self._opens[:kept]

    def _code_block(self, piece: Piece) -> str:
        fence = self._marks.code_block
        if not fence or fence in piece.text:
            return self._marks.escape(piece.text)
        language = piece.opens[-1].detail.split(maxsplit=1)[:1] if self._marks.has_languages else []
        return f"{fence}{''.join(language)}\n{self._marks.escape_code(piece.text)}\n{fence}"
