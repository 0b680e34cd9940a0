"""The text of a mail: HTML as text, and the words of the sender apart from the history that they quote."""

import re
from collections.abc import Sequence
from html import unescape
from typing import NamedTuple

_HEADINGS = {f"h{level}" for level in range(1, 7)}
_BLOCKS = _HEADINGS | {
    "p",
    "div",
    "br",
    "tr",
    "li",
    "ul",
    "ol",
    "table",
    "pre",
    "hr",
    "blockquote",
    "section",
    "article",
}
_SILENT = frozenset({"head", "style", "script", "title", "template"})
_VOID = frozenset({"area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "wbr"})
_HIDDEN = re.compile(r"\shidden\b|display\s*:\s*none|visibility\s*:\s*hidden|font-size\s*:\s*0(?![.\d])", re.IGNORECASE)
_START = re.compile(r"\sstart\s*=\s*[\"']?(\d{1,6})", re.IGNORECASE)
_LINK = re.compile(r"\shref\s*=\s*[\"']?(https?:[^\s\"'<>]+)", re.IGNORECASE)
# Linear in every text, which Python's own parser of HTML is not: no part can match what another part has given back.
_TOKEN = re.compile(
    r"<(?P<end>/?)(?P<tag>[a-zA-Z][\w:-]*+)(?P<attributes>[^<>]*+)>|<[!?][^<>]*+>|(?P<text>(?:[^<]++|<(?![a-zA-Z/!?]))+|<)"
)
_BLANK_LINES = re.compile(r"\n(?:[ \t]*\n){2,}")
_MAX_UNCLOSED = 50
_MAX_QUOTED = 5
_MAX_HTML = 500_000
_MAX_ATTRIBUTES = 2_000


class _HtmlText:
    """Collects what a person sees. Lines of a <blockquote> begin with `> `."""

    def __init__(self) -> None:
        self._lines: list[list[str]] = [[]]
        self._open: list[tuple[str, bool]] = []
        self._hidden = 0
        self._quoted = 0
        self._link = ""
        self._next_numbers: list[int | None] = []
        """The number of the next item in each open list; None if its items have none."""
        self._cell: int | None = None
        """The line on which the last cell of this row began."""
        self._begins_cell = False
        self._last = -1
        """The last line with text."""

    def read(self, html: str) -> None:
        for token in _TOKEN.finditer(html):
            if token["text"]:
                self._text(unescape(token["text"]))
            elif token["tag"]:
                self._break(token["tag"].lower())
                (self._close if token["end"] else self._start)(token["tag"].lower(), token["attributes"])

    @property
    def lines(self) -> list[str]:
        return ["".join(pieces).rstrip() for pieces in self._lines]

    def _start(self, tag: str, attributes: str) -> None:
        attributes = attributes[:_MAX_ATTRIBUTES]
        self._start_item(tag, attributes)
        if tag in _VOID:
            return
        is_hidden = tag in _SILENT or bool(_HIDDEN.search(attributes))
        self._open.append((tag, is_hidden))
        self._hidden += is_hidden
        self._quoted += tag == "blockquote"
        if tag == "a":
            found = _LINK.search(attributes)
            self._link = unescape(found[1]) if found else ""

    def _start_item(self, tag: str, attributes: str) -> None:
        """Begin a list, an item of one, or a row or cell of a table."""
        match tag:
            case "ul":
                self._next_numbers.append(None)
            case "ol":
                found = _START.search(attributes)
                self._next_numbers.append(int(found[1]) if found else 1)
            case "li":
                number = self._next_numbers[-1] if self._next_numbers else None
                self._add("- " if number is None else f"{number}. ")
                if number is not None:
                    self._next_numbers[-1] = number + 1
            case "td" | "th":
                self._start_cell()
            case "tr" | "table":
                self._cell = None
            case _:
                pass

    def _start_cell(self) -> None:
        """Stay on the line of the cell before, if that has no more than one."""
        if self._cell is not None and self._last <= self._cell:
            del self._lines[self._cell + 1 :]
        elif self._lines[-1]:
            self._lines.append([])
        self._cell = len(self._lines) - 1
        self._begins_cell = True

    def _close(self, tag: str, _: str) -> None:
        if tag == "a":
            is_written_out = self._lines[-1][-1:] == [self._link]
            self._add(f" ({self._link})" if self._link and not is_written_out else "")
            self._link = ""
        if not any(name == tag for name, _ in self._open[-_MAX_UNCLOSED:]):
            return
        name = ""
        while name != tag:
            name, is_hidden = self._open.pop()
            self._hidden -= is_hidden
            self._quoted -= name == "blockquote"
            if name in {"ol", "ul"}:
                self._next_numbers.pop()
            elif name == "table":
                self._cell = None

    def _text(self, text: str) -> None:
        first, *others = text.split("\n") if self._is_preformatted else [re.sub(r"\s+", " ", text)]
        self._add(first)
        for line in others:
            self._break("br")
            self._add(line)

    @property
    def _is_preformatted(self) -> bool:
        return any(name == "pre" for name, _ in self._open[-_MAX_UNCLOSED:])

    def _add(self, text: str) -> None:
        line = self._lines[-1]
        if self._hidden or not (text.strip() if self._begins_cell else text):
            return
        if self._begins_cell:
            text = self._between_cells(line) + text.lstrip()
        if not line:
            text = text if self._is_preformatted else text.lstrip(" ")
            line.extend(("> " * min(self._quoted, _MAX_QUOTED), text) if text else ())
        else:
            line.append(text)
        self._last = len(self._lines) - 1 if line else self._last

    def _between_cells(self, line: list[str]) -> str:
        self._begins_cell = False
        while line and not line[-1].strip():
            line.pop()
        if line:
            line[-1] = line[-1].rstrip()
        return " | " if line else ""

    def _break(self, tag: str) -> None:
        is_new = tag in _BLOCKS and not self._hidden and (self._lines[-1] or tag in {"br", "p"})
        if is_new and not (self._begins_cell and tag in {"p", "div"}):
            self._begins_cell = False
            self._lines.append([])


def html_to_text(html: str) -> str:
    found = _HtmlText()
    found.read(_without_html_comments(html[:_MAX_HTML]))
    return _BLANK_LINES.sub("\n\n", "\n".join(found.lines)).strip()


def _without_html_comments(html: str) -> str:
    first, *others = html.split("<!--")
    # What follows a comment that never ends is hidden, too.
    return first + "".join(part.partition("-->")[2] for part in others)


def unflow(text: str, *, joins_words: bool) -> str:
    """Join the lines that `format=flowed` (RFC 3676) broke; `joins_words` is its DelSp."""
    joined: list[str] = []
    is_open = False
    last_marks = ""
    for line in text.split("\n"):
        marks = line[: len(line) - len(line.lstrip(">"))]
        content = line[len(marks) :].removeprefix(" ")
        if is_open and marks == last_marks:
            joined[-1] += content
        else:
            joined.append(f"{marks} {content}" if marks else content)
        is_open = content.endswith(" ") and content != _SIGNATURE
        last_marks = marks
        if is_open and joins_words:
            joined[-1] = joined[-1][:-1]
    return "\n".join(joined)


class Words(NamedTuple):
    new: str
    """What the sender wrote."""
    history: str = ""
    """What it quotes, without marks."""


_SIGNATURE = "-- "
_ORIGINAL = re.compile(
    r"^-{3,} ?(?:Original|Ursprüngliche|Mensaje original|Message d'origine|Messaggio originale|Mensagem original"
    r"|Oorspronkelijk|Oprindelig|Opprinnelig|Ursprungligt|Alkuperäinen|Wiadomość oryginalna|Oryginalna wiadomość"
    r"|Původní zpráva|Pôvodná správa|Eredeti üzenet|Mesaj original|Özgün İleti|Orijinal Mesaj|Исходное сообщение"
    r"|Оригинальное сообщение|Вихідне повідомлення|Оригінальне повідомлення|原始邮件|邮件原件|原始郵件|元のメッセージ"
    r"|원본 메시지)",
    re.IGNORECASE,
)
_FORWARDED = re.compile(r"^-{3,}[^-]|.*:$")
"""Before the headers of a mail that the sender wants to show."""
_FROM = re.compile(
    r"^[>*\s]*(?:From|Von|De|De la|Da|Mittente|Van|Fra|Från|Lähettäjä|Od|Nadawca|Šalje|Feladó|Expeditorul|Kimden"
    r"|Gönderen|Saatja|От|От кого|Отправитель|Від|Від кого|Από|发件人|寄件者|寄件人|差出人|送信元|送信者"
    r"|보낸 사람)\*?\s?[:\uff1a]",
    re.IGNORECASE,
)
_FIELD = re.compile(r"^[>*\s]*[^\W\d_a-zß-ÿ][\w -]{1,20}\*?\s?[:\uff1a]")
_FIELDS_OF_A_HEADER = 3
_ATTRIBUTION_LINES = 3
_DATE_OR_ADDRESS = re.compile(r"[\d@]")
_OF_A_PROGRAM = re.compile(r"@|(?<!\d)\d{4}(?!\d)|\d[:.]\d\d|\d[./-]\d+[./-]\d")
"""What the line has that a mail program writes above a quote: an address, a year, a time or a whole date."""
_SENTENCE_BEFORE = re.compile(
    r"[^\d@]*(?:\w{4}(?<!Prof)[.…]|[!?])[\"')\u2019\u201d]*\s+[^\W\d_a-zß-ÿ]|[^\d@]*[\u3002\uff01\uff1f]"
)
_INDENTED = re.compile(r"(?: {4}|\t)\s*\S")
_ENDS = (":", "\uff1a")


def split_history(text: str) -> Words:
    """Separate the quoted history: after the words, or before them. An answer between quoted lines stays as it is."""
    lines = text.split("\n")
    end = _start_of_original(lines)
    new, quoted = _without_quote(lines[:end])
    words = "\n".join(_without_signature(new)).strip()
    if not words:  # a forwarded mail, or a quote alone: that is what it says
        return Words(text.strip())
    return Words(words, "\n".join(re.sub(r"^(?:> ?)+", "", line) for line in (*quoted, *lines[end:])).strip())


def _without_signature(lines: list[str]) -> list[str]:
    return lines[: lines.index(_SIGNATURE)] if _SIGNATURE in lines else lines


def _start_of_original(lines: Sequence[str]) -> int:
    """Return the line where a mail program appended the answered mail with its headers, or the end."""
    for number, line in enumerate(lines):
        if _ORIGINAL.match(line) or _is_above_indented(lines, number):
            return number
        if _FROM.match(line) and number and not _FORWARDED.match(lines[number - 1]):
            block = lines[number : number + 2 * _FIELDS_OF_A_HEADER]
            if sum(bool(_FIELD.match(each)) for each in block) >= _FIELDS_OF_A_HEADER:
                is_ruled = not lines[number - 1].strip("_-* \t")
                return number - 1 if is_ruled else number
    return len(lines)


def _is_above_indented(lines: Sequence[str], number: int) -> bool:
    """Return whether it names who wrote the answered mail, and when, and that is indented, as by Outlook on a Mac."""
    line = lines[number].strip()
    if not (line.endswith(_ENDS) and "@" in line and _OF_A_PROGRAM.search(line.replace("@", ""))):
        return False
    below = next((each for each in lines[number + 1 : number + 4] if each.strip()), "")
    return bool(_INDENTED.match(below))


def _without_quote(lines: list[str]) -> tuple[list[str], list[str]]:
    """Return the lines without one block of quoted lines at their end or beginning, and that block."""
    marked = [number for number, line in enumerate(lines) if line.lstrip().startswith(">")]
    if not marked:
        return lines, []
    first = marked[0]
    last = marked[-1]
    between = [line for line in lines[first : last + 1] if line.strip() and not line.lstrip().startswith(">")]
    start = _start_of_attribution(lines, first)
    after = lines[last + 1 :]
    before = lines[:start]
    has_after, has_before = (any(line.strip() for line in part) for part in (after, before))
    if between or (has_after and has_before):
        return lines, []
    return (after if has_after else before), lines[start : last + 1]


def _start_of_attribution(lines: Sequence[str], quote: int) -> int:
    """Return where a line such as `On Monday, 5 May, Ann wrote:` begins, which can be wrapped, or else the quote."""
    end = quote
    while end and not lines[end - 1].strip():
        end -= 1
    if not end or not lines[end - 1].rstrip().endswith(_ENDS):
        return quote
    start = end - 1
    has_date = bool(_DATE_OR_ADDRESS.search(lines[start]))
    while start and end - start < _ATTRIBUTION_LINES:
        above = lines[start - 1].strip()
        is_part = _DATE_OR_ADDRESS.search(above) if has_date else above
        if not is_part or above.endswith((".", "!", "?", *_ENDS)):
            break
        start = start - 1
        has_date = has_date or bool(_DATE_OR_ADDRESS.search(above))
    whole = " ".join(line.strip() for line in lines[start:end])
    return start if _OF_A_PROGRAM.search(whole) and not _SENTENCE_BEFORE.match(whole) else quote
