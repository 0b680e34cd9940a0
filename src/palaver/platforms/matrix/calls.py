"""Calls: rooms that we are called to and have not answered, written down with how far we have read."""

import msgspec

__all__ = ["Call", "Calls", "position_of", "read_position"]


class Call(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    room_id: str
    server: str
    """One that knows the way."""
    inviter: str = ""
    """Nobody, where a room of ours was closed for this one."""
    is_direct: bool = False


Calls = dict[str, Call]
"""By the ids of the rooms, the oldest first."""


def position_of(user_id: str, batch: str, calls: Calls) -> str:
    """What the store keeps: whose position it is, then the position, then what is still to be answered."""
    text = f"{user_id} {batch}"
    return f"{text} {msgspec.json.encode([*calls.values()]).decode()}" if calls else text


def read_position(text: str | None, user_id: str) -> tuple[str | None, Calls]:
    """Nothing where it was of another account."""
    whose, _, rest = (text or "").partition(" ")
    if whose != user_id:
        return None, {}
    batch, _, written = rest.partition(" ")
    try:
        calls = msgspec.json.decode(written or "[]", type=list[Call])
    except msgspec.DecodeError:
        calls = []
    return batch, {call.room_id: call for call in calls}
