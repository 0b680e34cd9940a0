"""Feedback: thumbs up and down on answers, kept with the turn, one per person."""

from collections.abc import Collection
from datetime import datetime

from palaver.db.transaction import TURNS, Notify, Statements, transaction
from palaver.model.errors import NotFound
from palaver.model.feedback import Feedback, Rating, ruling_of
from palaver.model.session import Principal
from palaver.model.source import Source
from palaver.model.turn import outbound_to
from palaver.store.conversations.visibility import get_visible
from palaver.store.queue.answered import find_turn
from palaver.store.queue.inbox import ASKED_IN_CHAT
from palaver.store.records import chat_columns, instant, micros, outbound_of, placeholders


@transaction
def react(
    source: Source, identity: str, message: str, rating: Rating, at: datetime, *, removed: bool
) -> Statements[str | None]:
    """Keep a reaction to a message of ours as feedback with its turn, or take it back.

    If the message asks for an approval, return the command that the reaction stands for instead.
    """
    if not removed and (said := (yield from _ruling(source, message, rating))):
        return said
    turn = yield from find_turn(source, message)
    if turn is not None:
        only = rating if removed and rating is not Rating.NONE else None
        yield from store_rating(turn, identity, Rating.NONE if removed else rating, at, only=only)
    return None


def _ruling(source: Source, message: str, rating: Rating) -> Statements[str | None]:
    """Return what a reaction says to the open question that this message asks."""
    rows = yield (
        f"SELECT o.body FROM {ASKED_IN_CHAT} AND o.receipt = ?",
        (*chat_columns(outbound_to(source, "")), message),
    )
    rulings = (ruling_of(rating, outbound_of(body).choices) for (body,) in rows)
    return next((each for each in rulings if each), None)


@transaction
def store_rating(
    turn: int, identity: str, rating: Rating, at: datetime, *, only: Rating | None = None
) -> Statements[None]:
    """Store it unless a later one is there; with `only`, replace no other rating than that."""
    yield (
        "INSERT INTO feedback (turn_no, identity, rating, at) VALUES (?, ?, ?, ?) ON CONFLICT (turn_no, identity)"
        " DO UPDATE SET rating = excluded.rating, at = excluded.at WHERE feedback.at <= excluded.at"
        " AND coalesce(CAST(? AS BIGINT), feedback.rating) = feedback.rating",
        (turn, identity, int(rating), micros(at), None if only is None else int(only)),
    )
    yield Notify(TURNS)


@transaction
def rate(
    session: str, turn: int, identity: str, rating: Rating, now: datetime, principal: Principal
) -> Statements[None]:
    """Rate an answer in a session that the principal can see; NONE takes the rating back."""
    found = yield from get_visible(session, principal)
    if not (yield "SELECT 1 FROM turns WHERE no = ? AND session_no = ?", (turn, found.number)):
        raise NotFound("turn", str(turn))
    yield from store_rating(turn, identity, rating, now)


@transaction
def list_feedback(turns: Collection[int]) -> Statements[list[Feedback]]:
    """Return what people think of the answers of these turns, without what was taken back."""
    rows = yield (
        f"SELECT turn_no, identity, rating, at FROM feedback WHERE rating <> 0 AND turn_no IN ({placeholders(turns)})"
        " ORDER BY turn_no, identity",
        tuple(turns),
    )
    return [Feedback(turn=turn, identity=who, rating=Rating(rating), at=instant(at)) for turn, who, rating, at in rows]
