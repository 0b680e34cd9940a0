"""Which rooms we enter: where we are invited by somebody who may, and those that replace a room of ours."""

from palaver.platforms.matrix.calls import Call
from palaver.platforms.matrix.client import Client
from palaver.platforms.matrix.direct import Direct
from palaver.platforms.matrix.events import content_of
from palaver.platforms.matrix.options import Invites

__all__ = ["answer", "is_welcome", "replaced_by"]


def is_welcome(inviter: str, us: str, invites: Invites) -> bool:
    server = inviter.partition(":")[2]
    match invites:
        case "everybody":
            return True
        case "server":
            return server == us.partition(":")[2]
        case "nobody":
            return False
        case listed:
            return inviter in listed or server in listed


async def answer(client: Client, direct: Direct, call: Call, invites: Invites) -> None:
    """Taken or declined; where nobody's are taken they are left alone, so that a person may answer by hand."""
    if not call.inviter or is_welcome(call.inviter, client.user_id, invites):
        if await _enter(client, call) and call.is_direct:
            await direct.add(call.inviter, call.room_id)
    elif invites != "nobody":
        await client.ask("POST", "rooms", call.room_id, "leave", body={})


async def _enter(client: Client, call: Call) -> bool:
    way = {"via": call.server, "server_name": call.server}
    return await client.ask("POST", "join", call.room_id, body={}, **way) is not None


async def replaced_by(client: Client, room_id: str) -> str | None:
    """The room whose place it has taken: it says so itself, and that room says so, too.

    Either alone could be said by anybody, to get at what was said elsewhere.
    """
    made = content_of(await client.ask("GET", "rooms", room_id, "state", "m.room.create", ""))
    old = made.predecessor.room_id
    if not old:
        return None
    closed = content_of(await client.ask("GET", "rooms", old, "state", "m.room.tombstone", ""))
    return old if closed.replacement_room == room_id else None
