"""Which rooms we enter: where we are invited by somebody who may, and those that replace a room of ours."""

from palaver.platforms.matrix.client import Client
from palaver.platforms.matrix.direct import Direct
from palaver.platforms.matrix.events import content_of
from palaver.platforms.matrix.hearing import Invitation
from palaver.platforms.matrix.options import Invites

__all__ = ["answer_invitation", "enter", "is_welcome", "replaced_by"]


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


async def answer_invitation(client: Client, direct: Direct, invitation: Invitation, invites: Invites) -> None:
    """Taken or declined; where nobody's are taken they are left alone, so that a person may answer by hand."""
    room_id, inviter = invitation.room_id, invitation.inviter
    if is_welcome(inviter, client.user_id, invites):
        if await enter(client, room_id, inviter) and invitation.is_direct:
            await direct.add(inviter, room_id)
    elif invites != "nobody":
        await client.ask("POST", "rooms", room_id, "leave", body={})


async def enter(client: Client, room_id: str, through: str) -> bool:
    """The homeserver of whoever told us of it knows the way."""
    server = through.partition(":")[2]
    return await client.ask("POST", "join", room_id, body={}, via=server, server_name=server) is not None


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
