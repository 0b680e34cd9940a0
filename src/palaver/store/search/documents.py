"""Documents: what of an entry is indexed, and what a search asks of it.

Indexed are the words of user, assistant, tool, note and summary entries, as people see them: not reasoning, not the
arguments of tool calls. With the words go tags, terms no text can contain: the session, the role, the platform, the
person. So whatever narrows a search is intersected inside the index.
"""

from collections.abc import Iterable, Iterator, Sequence
from hashlib import blake2b
from typing import NamedTuple, Protocol

from palaver.model.ids import encode_id
from palaver.model.query import Clause, Query
from palaver.model.tokenizer import TOKENIZER_VERSION, index_terms, split_pages, tokenize
from palaver.model.transcript import Entry
from palaver.store.conversations.visibility import Filter
from palaver.store.records import micros
from palaver.store.search.search import SearchFilter

__all__ = [
    "FORMAT",
    "Candidate",
    "Document",
    "Index",
    "IndexLost",
    "Need",
    "Wanted",
    "all_of",
    "documents_of",
    "session_tag",
    "terms_of",
    "want",
]


def all_of(parts: Iterable[Filter]) -> Filter:
    found = list(parts)
    sql = " AND ".join(part.sql for part in found) or "1 = 1"
    return Filter(sql, tuple(value for part in found for value in part.values))


FORMAT = f"2/{TOKENIZER_VERSION}"
"""An index in another format is thrown away."""


class Document(NamedTuple):
    """One page of one entry."""

    entry: int
    page: int
    at: int
    body: str
    """The line of words, then wholes and tags: ` get user name |getusername|_s7|_ruser|`."""


def documents_of(entry_id: int, entry: Entry, session: int, platform: str) -> Iterator[Document]:
    if not entry.text:
        return
    tags = [session_tag(session), _tag("r", entry.role.value), _hashed("m", platform)]
    if entry.sender and entry.sender.id:
        tags.append(_hashed("p", f"{platform}:{encode_id(entry.sender.id)}"))
    for page, (start, end) in enumerate(split_pages(entry.text)):
        line = tokenize(entry.text[start:end])
        if not line.text.isspace():
            extras = "|".join((*dict.fromkeys(line.wholes), *tags))
            yield Document(entry_id, page, micros(entry.at), f"{line.text}|{extras}|")


def terms_of(body: str) -> list[str]:
    """Every term of a document, as often as it comes."""
    line, _, extras = body.partition("|")
    return [*index_terms(line), *extras[:-1].split("|")]


def session_tag(number: int) -> str:
    return _tag("s", str(number))


def _tag(kind: str, value: str) -> str:
    return f"_{kind}{value}"


def _hashed(kind: str, value: str) -> str:
    return _tag(kind, blake2b(value.encode(errors="surrogatepass"), digest_size=8).hexdigest())


# What is asked


class Need(NamedTuple):
    """Fulfilled by all terms of one of the options; if there are needles, one of them in the body decides."""

    options: tuple[tuple[str, ...], ...]
    prefix: bool = False
    """The last term of each option may go on."""
    needles: tuple[str, ...] = ()


class Wanted(NamedTuple):
    """Every need must be met, and of each group of tags one."""

    needs: tuple[Need, ...]
    tags: tuple[tuple[str, ...], ...]
    sessions: tuple[int, ...] | None
    """In one of these, if it is confined to any."""
    since: int | None
    until: int | None


def want(query: Query, narrowed: SearchFilter, sessions: Sequence[int] | None) -> Wanted:
    """`sessions` are those the search is confined to, if there are few enough to name them."""
    roles = tuple(_tag("r", role.value) for role in sorted(narrowed.roles))
    platforms = () if narrowed.platform is None else (_hashed("m", narrowed.platform),)
    people = tuple(_hashed("p", person) for person in sorted(narrowed.people))
    return Wanted(
        tuple(map(_need, query.clauses)),
        tuple(filter(None, (roles, platforms, people))),
        None if sessions is None else tuple(sessions),
        None if narrowed.since is None else micros(narrowed.since),
        None if narrowed.until is None else micros(narrowed.until),
    )


def _need(clause: Clause) -> Need:
    single = clause.whole or (clause.words[0] if clause.prefix and len(clause.words) == 1 else "")
    ends = ("", "") if clause.prefix else (" ", "|")
    singles = (f" {single}{ends[0]}", f"|{single}{ends[1]}") if single else ()
    needles = dict.fromkeys((*((clause.phrase,) if clause.phrase else ()), *singles))
    options = (clause.terms, (clause.whole,)) if clause.whole else (clause.terms,)
    return Need(options, clause.prefix, tuple(needles))


class Candidate(NamedTuple):
    """A document the index found; whether it may be seen is for the truth to say."""

    number: int
    entry: int
    page: int
    at: int
    body: str = ""
    """Its beginning, where that was asked for."""


class IndexLost(Exception):
    """The index was thrown away, by us or by somebody else: whatever was going on begins anew."""


class Index(Protocol):
    """What both engines do in their own way. Everything may raise IndexLost."""

    async def catch_up(self, *, tidy: bool) -> int:
        """Read the journal to its end; gives how many entries. `tidy`: leave nothing of what was removed, anywhere."""
        ...

    async def candidates(self, wanted: Wanted, after: Candidate | None, limit: int, *, bodies: bool) -> list[Candidate]:
        """The newest by the time of the entry, or the newest older than `after`; of an index that is caught up."""
        ...

    async def entries(self, after: int, limit: int) -> list[int]:
        """The ids of entries that are indexed, in order, behind `after`."""
        ...

    async def clear(self) -> None: ...

    async def close(self) -> None: ...
