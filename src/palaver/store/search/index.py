"""The full-text index: its documents, its queries, and what both engines implement.

The text of user, assistant, tool, note and summary entries is indexed as people see it, without reasoning and without
the arguments of tool calls. Tags are terms that no text can contain: session, role, platform and person, and one for
what was said in the conversation of a job. So the index itself intersects every filter of a search.
"""

from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum
from hashlib import blake2b
from typing import NamedTuple, Protocol

from palaver.model.query import Clause
from palaver.model.source import encode_id
from palaver.model.stemming import guess_languages, stem_words
from palaver.model.tokenizer import TOKENIZER_VERSION, index_terms, is_run, split_pages, tokenize
from palaver.model.transcript import Entry
from palaver.store.conversations.visibility import Filter
from palaver.store.records import micros

FORMAT = f"4/{TOKENIZER_VERSION}"
"""An index in another format is deleted and rebuilt."""


class Document(NamedTuple):
    """One page of one entry."""

    entry: int
    page: int
    at: int
    body: str
    """The words, then joined identifiers, stems and tags: ` get users name |getusersname|_wuser|_s7|_ruser|`."""


def make_documents(
    entry_id: int, entry: Entry, session: int, platform: str, *, is_job: bool = False
) -> Iterator[Document]:
    if not entry.text:
        return
    tags = [Tag.SESSION.term(session), Tag.ROLE.term(entry.role.value), Tag.PLATFORM.term(platform)]
    if is_job:
        tags.append(Tag.JOB.term(""))
    if entry.sender and entry.sender.id:
        tags.append(Tag.PERSON.term(f"{platform}:{encode_id(entry.sender.id)}"))
    for page, (start, end) in enumerate(split_pages(entry.text)):
        line = tokenize(entry.text[start:end])
        if not line.text.isspace():
            extras = "|".join((*dict.fromkeys(line.wholes), *_stems_of(line.text), *tags))
            yield Document(entry_id, page, micros(entry.at), f"{line.text}|{extras}|")


def _stems_of(line: str) -> list[str]:
    """Return the stems of words that are no stem themselves."""
    words = [word for word in dict.fromkeys(line.split()) if not is_run(word)]
    found = zip(words, stem_words(words, guess_languages(words)), strict=True)
    return list(dict.fromkeys(Tag.STEM.term(stem.text) for word, stems in found for stem in stems if stem.text != word))


def terms_of(body: str) -> list[str]:
    """Return every term of a document, repeated as often as it occurs."""
    line, _, extras = body.partition("|")
    return [*index_terms(line), *extras[:-1].split("|")]


class Tag(StrEnum):
    SESSION = "s"
    ROLE = "r"
    PLATFORM = "m"
    PERSON = "p"
    JOB = "j"
    STEM = "w"

    def term(self, value: str | int) -> str:
        if self in {Tag.PLATFORM, Tag.PERSON}:
            value = blake2b(str(value).encode(errors="surrogatepass"), digest_size=8).hexdigest()
        return f"_{self}{value}"


# Queries


class Option(NamedTuple):
    terms: tuple[str, ...]
    prefix: bool = False
    """The last term matches as a prefix."""


def options_of(clause: Clause) -> list[Option]:
    """Return what documents can have of a clause: its words, their whole, or a word with the same stem."""
    exact = [Option(terms, clause.prefix) for terms in (clause.terms, (clause.whole,)) if any(terms)]
    stems = dict.fromkeys(stem.text for stem in clause.stems)
    others = [(term,) for stem in stems for term in (stem, Tag.STEM.term(stem)) if (term,) != clause.terms]
    return [*exact, *map(Option, others)]


class Condition(NamedTuple):
    """Met by all terms of one option; if there are needles, the body must also contain one of them."""

    options: tuple[Option, ...]
    needles: tuple[str, ...] = ()

    @property
    def prefix(self) -> bool:
        return any(option.prefix for option in self.options)


def any_of(terms: Iterable[str]) -> Condition:
    return Condition(tuple(Option((term,)) for term in terms))


class TermSyntax(NamedTuple):
    """How an engine writes conditions over terms."""

    both: str
    either: str
    quote: str
    prefix: str

    def write(self, conditions: Iterable[Condition]) -> str:
        return self.both.join(f"({self.either.join(self._options(each))})" for each in conditions)

    def _options(self, condition: Condition) -> Iterator[str]:
        for option in condition.options:
            words = self.both.join(f"{self.quote}{term}{self.quote}" for term in option.terms)
            yield f"({words}{self.prefix if option.prefix else ''})"


class IndexQuery(NamedTuple):
    """Every condition must be met."""

    conditions: tuple[Condition, ...]
    sessions: tuple[int, ...] | None
    """If not None, only entries of these sessions match."""
    since: int | None
    until: int | None
    bodies: bool
    """Whether to return the beginning of each body, for ranking."""
    excluded: tuple[str, ...] = ()
    """The body must contain none of these."""

    def also(self, conditions: Iterable[Condition]) -> "IndexQuery":
        """Return the query for documents that also meet these."""
        return self._replace(conditions=(*conditions, *self.conditions))

    def only(self, tag: str) -> "IndexQuery":
        """Return the query for documents that also have a tag."""
        return self.also([any_of([tag])])


def needle_filters(query: IndexQuery, contains: str) -> Iterator[Filter]:
    """Compare the body with the needles; `contains` is the engine's test for one."""
    for condition in query.conditions:
        if condition.needles:
            yield Filter(f"({' OR '.join([contains] * len(condition.needles))})", condition.needles)
    for needle in query.excluded:
        yield Filter(f"NOT ({contains})", (needle,))


class Candidate(NamedTuple):
    """A document that the index found. The database decides whether it may be seen."""

    number: int
    entry: int
    page: int
    at: int
    body: str = ""
    """Its first BODY_CHARS, if the query wants them."""


BODY_CHARS = 65_536


class IndexLost(Exception):
    """The index was deleted, by this or another process. Start again."""


class Index(Protocol):
    """Every method may raise IndexLost."""

    async def catch_up(self, *, purge: bool) -> int:
        """Index the journal to its end and return the number of entries. `purge` also wipes deleted words."""
        ...

    async def candidates(self, query: IndexQuery, after: Candidate | None, limit: int) -> list[Candidate]:
        """Return the newest documents, or the newest older than `after`. Call `catch_up` first."""
        ...

    async def count(self, terms: Sequence[str]) -> tuple[int, list[int]]:
        """Return the number of documents, and about in how many of them each term is."""
        ...

    async def entry_ids(self, after: int, limit: int) -> list[int]:
        """Return ids of indexed entries after `after`, in order."""
        ...

    async def clear(self) -> None: ...

    async def close(self) -> None: ...
