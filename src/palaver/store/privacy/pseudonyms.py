"""The key of the pseudonyms that agents see instead of ids, and whom a pseudonym stands for."""

from collections.abc import Iterator
from itertools import chain
from typing import NamedTuple

from palaver.db.transaction import Row, Statements, transaction
from palaver.model.errors import NotFound
from palaver.model.label import Label
from palaver.model.prompt import PSEUDONYM, Pseudonyms
from palaver.model.source import Source, identity_text, named_identity, source_of_identity
from palaver.store.meta import load_secret, read_meta
from palaver.store.records import readable, source_in

_KEY = "pseudonym key"


class Original(NamedTuple):
    """What a pseudonym stands for."""

    kind: str
    """`user`, `chat`, `thread`, `server`, or `key` of a conversation."""
    platform: str
    id: str


@transaction
def load_pseudonyms() -> Statements[Pseudonyms]:
    """Return the pseudonyms of this installation. Their key is made at first use and never leaves the store."""
    return Pseudonyms(bytes.fromhex((yield from load_secret(_KEY, 32))))


@transaction
def resolve(pseudonym: str) -> Statements[Original]:
    """Return the id that has this pseudonym among those the store knows. Raises NotFound."""
    key = yield from read_meta(_KEY)
    pseudonyms = Pseudonyms(bytes.fromhex(key)) if key else None
    people: list[Row] = yield "SELECT identity FROM identities UNION SELECT identity FROM participants", ()
    places: list[Row] = yield "SELECT '', origin FROM sessions UNION SELECT '', address FROM routes", ()
    homes: list[Row] = yield "SELECT '', address FROM home_channels", ()
    keys_of_chats: list[Row] = yield "SELECT DISTINCT key FROM sessions", ()
    known = [*readable(_identified, people), *readable(source_in, (*places, *homes))]
    platforms = sorted({source.platform for source in known})
    originals = chain(
        chain.from_iterable(map(_ids, known)),
        (Original("key", platform, key) for (key,) in keys_of_chats for platform in platforms),
    )
    found = next((each for each in originals if pseudonyms and pseudonyms.of(*each) == pseudonym), None)
    if found is None:
        raise NotFound("pseudonym", pseudonym)
    return found


@transaction
def reveal(text: str) -> Statements[str]:
    """Return a text of the agent's for people: with ids, and the names that are known, in place of pseudonyms."""
    for pseudonym in sorted(set(PSEUDONYM.findall(text))):
        try:
            found = yield from resolve(pseudonym)
        except NotFound:
            continue
        identity = identity_text(found.platform, found.id)
        names = yield "SELECT name FROM identities WHERE identity = ? AND name IS NOT NULL", (identity,)
        named = named_identity(identity, Label(names[0][0]) if names else None)
        text = text.replace(pseudonym, named.partition(":")[2])
    return text


def _identified(row: Row) -> Source:
    return source_of_identity(row[0])


def _ids(source: Source) -> Iterator[Original]:
    """Yield every id of a source that the agent can see."""
    for kind, identity in (
        ("user", source.participant),
        ("chat", source.chat),
        ("chat", source.parent_chat_id),
        ("thread", source.thread_id),
        ("server", source.scope_id),
    ):
        if identity:
            yield Original(kind, source.platform, identity)
