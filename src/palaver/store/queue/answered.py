"""Find the message that somebody replies or reacts to, by the id that the platform gave it."""

from dataclasses import replace

from palaver.db.transaction import Row, Statements, transaction
from palaver.model.source import Source, identity_of, message_address
from palaver.model.transcript import Quote
from palaver.model.turn import outbound_to
from palaver.store.queue.inbox import ORIGINAL, SAME_MESSAGE
from palaver.store.records import REPLIES, SELECT_RECEIVED, chat_columns, outbound_in, readable, received_of


@transaction
def find_turn(source: Source, message: str) -> Statements[int | None]:
    """Return the turn whose answer this message of ours is."""
    rows = yield from _find_answer(source, message)
    return rows[0][0] // REPLIES if rows else None


@transaction
def find_quote(source: Source, message: str) -> Statements[Quote | None]:
    """Return what a message of the same chat says, for a platform that tells only its id."""
    for sent in readable(outbound_in, (yield from _find_answer(source, message))):
        return Quote(text=sent.text, is_ours=True) if sent.text else None
    rows = yield (
        f"{SELECT_RECEIVED} WHERE {SAME_MESSAGE} AND {ORIGINAL} AND length(i.body) > 0",
        message_address(replace(source, message_id=message)),
    )
    for received in readable(received_of, rows):
        said = received.inbound
        return Quote(text=said.text, author=identity_of(said.source), name=said.labels.user) if said.text else None
    return None


def _find_answer(source: Source, message: str) -> Statements[list[Row]]:
    return (
        yield (
            "SELECT id, body FROM outbox WHERE id > 0 AND account = ? AND server = ? AND chat = ? AND receipt = ?"
            " ORDER BY id DESC LIMIT 1",
            (*chat_columns(outbound_to(source, "")), message),
        )
    )
