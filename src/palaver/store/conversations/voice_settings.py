"""Whether answers are spoken, as a setting of the conversation that stays when it is reset."""

from palaver.db.transaction import Statements, transaction
from palaver.model.key import SessionKey
from palaver.store.records import details_of, json_text

_SPOKEN = "spoken"


@transaction
def is_spoken(key: SessionKey) -> Statements[bool]:
    rows = yield "SELECT settings FROM routes WHERE key = ?", (key.text,)
    return bool(rows) and details_of(rows[0][0]).get(_SPOKEN) is True


@transaction
def set_spoken(key: SessionKey, *, is_on: bool) -> Statements[None]:
    """Set it for a conversation that has a route."""
    rows = yield "SELECT settings FROM routes WHERE key = ?", (key.text,)
    settings = {**details_of(rows[0][0]), _SPOKEN: is_on} if rows else {}
    yield "UPDATE routes SET settings = ? WHERE key = ?", (json_text(settings), key.text)
