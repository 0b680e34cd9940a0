"""Hearing: what happens in the rooms we are in, one batch after the other, in order and without gaps."""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import chain, repeat
from typing import Any, cast

import aiohttp
from nio.api import MessageDirection
from nio.events import InviteMemberEvent, MegolmEvent
from nio.exceptions import EncryptionError, LocalProtocolError
from nio.responses import ErrorResponse, RoomInfo, RoomMessagesResponse, SyncError, SyncResponse
from nio.rooms import MatrixInvitedRoom, MatrixRoom

from palaver.model.source import GROUP
from palaver.model.turn import account_text
from palaver.model.value import value
from palaver.platforms.matrix.client import Call, Client
from palaver.platforms.matrix.errors import asking, is_lost, refusal, unheard
from palaver.platforms.matrix.events import Event, event_of
from palaver.platforms.matrix.parse import Scene
from palaver.platforms.matrix.rooms import DIRECT, Direct
from palaver.protocols.adapter import PlatformBusy, PlatformDown, PlatformError

__all__ = [
    "FILTER",
    "FIRST",
    "MOST_PAGES",
    "PAGE",
    "PAUSES",
    "Batch",
    "Errands",
    "Heard",
    "Hearing",
    "Waiting",
]

log = logging.getLogger(__name__)

_WAIT = 30_000
"""Milliseconds that the homeserver may wait for something new."""
FIRST = 600.0
"""Seconds for the first answer, which may be large."""
PAGE = 100
MOST_PAGES = 100
_MOST_CLOSED = 100
_SILENT: dict[str, Any] = {"types": []}
FILTER: dict[str, Any] = {
    "presence": _SILENT,
    "account_data": {"types": [DIRECT]},
    "room": {
        "account_data": _SILENT,
        "ephemeral": _SILENT,
        # Whoever speaks is told of again each time: we may have been restarted since.
        "state": {"lazy_load_members": True, "include_redundant_members": True},
        "timeline": {"limit": 50},
    },
}


@value
class Heard:
    event: Event
    scene: Scene
    closed: MegolmEvent | None = None
    """The event as it came, where it could not be decrypted."""


Waiting = dict[str, Heard]
"""What could not be read yet, by the ids of the events, the oldest first."""


@value
class Batch:
    position: str
    heard: Sequence[Heard]
    invitations: Sequence[Call]
    entered: Sequence[str]
    """Rooms that we have come into."""


class Hearing:
    def __init__(self, client: Client, direct: Direct, account: str | None, waiting: Waiting, *, threads: bool) -> None:
        self._client = client
        self._direct = direct
        self._account = account
        self._threads = threads
        self._noted: dict[str, list[Heard]] = {}
        self._waiting = waiting
        self._late: set[str] = set()
        """Rooms that we were invited to before we first listened: what was said there meanwhile is past."""
        self._is_first = True
        client.add_event_callback(self._note, None)  # pyright: ignore[reportArgumentType] - None is for any event

    async def batch(self, since: str | None) -> Batch:
        """What is new. Without a position, or with one that the homeserver does not know, nothing that was said is."""
        self._noted.clear()
        answer = await self._sync(since)
        if since and is_lost(answer) and is_lost(answer := await self._sync(since)):
            told = {"action": "matrix.position_lost", "account": account_text("matrix", self._account)}
            log.warning("how far we have read is not known there; what was said meanwhile is passed over", extra=told)
            return await self.batch(None)
        if not isinstance(answer, SyncResponse):
            raise unheard(answer)
        self._is_first = False
        for each in answer.account_data_events:
            if getattr(each, "type", None) == DIRECT:
                self._direct.learn(getattr(each, "content", {}))
        for room_id in answer.rooms.leave:
            self._client.rooms.pop(room_id, None)
        if since is None:
            self._late.update(answer.rooms.invite)
            self._noted.clear()
        opened = await self._opened()
        heard = list[Heard]()
        for room_id, info in answer.rooms.join.items():
            events = await self._room(room_id, info, since)
            room = self._client.rooms.get(room_id)
            if room and _may_be_more(info, self._noted.get(room_id, ())):
                room.summary = None
            heard += await self._placed(room_id, events)
        self._wait_for(each for each in heard if each.closed and each.event.sender != self._client.user_id)
        return Batch(
            position=answer.next_batch,
            heard=[*opened, *heard],
            invitations=[*self._invitations(answer)],
            entered=[room_id for room_id, events in self._noted.items() if _entrance(events) is not None],
        )

    async def _sync(self, since: str | None) -> SyncResponse | SyncError:
        """The first time the homeserver takes as long as it needs to put everything together, nearly."""
        with asking():
            if not self._is_first:
                return await self._client.sync(_WAIT, FILTER, since)
            async with asyncio.timeout(FIRST):
                return await self._client.sync(0, FILTER, since, full_state=True)

    async def _room(self, room_id: str, info: RoomInfo, since: str | None) -> list[Heard]:
        """Of a room that we have just come into, only what was said after we were invited."""
        noted = self._noted.get(room_id, [])
        if info.timeline.limited and since and _entrance(noted) is None:
            noted = [*await self._gap(room_id, info.timeline.prev_batch, since), *noted]
            self._noted[room_id] = noted
        entrance = _entrance(noted)
        if entrance is None:
            return noted
        invited = [at for at, each in enumerate(noted[:entrance]) if _membership(each) == "invite"]
        return noted[(entrance if room_id in self._late or not invited else invited[-1]) + 1 :]

    async def _placed(self, room_id: str, events: Sequence[Heard]) -> list[Heard]:
        """Whether it was said in a direct chat shows only when everything is known that was new with it."""
        room = self._client.rooms.get(room_id)
        if room is None or not events:
            return [*events]
        await self._direct.count(room)
        kinds = (self._direct.kind(room, each.event.sender) for each in events)
        return [replace(each, scene=replace(each.scene, kind=kind)) for each, kind in zip(events, kinds, strict=True)]

    async def _gap(self, room_id: str, start: str | None, since: str) -> list[Heard]:
        """What was said between two batches and is in neither, oldest first."""
        room, found = self._client.rooms[room_id], list[Heard]()
        for _ in range(MOST_PAGES):
            if not start:
                break
            with asking():
                answer = await self._client.room_messages(room_id, start, since, MessageDirection.back, PAGE)
            if not isinstance(answer, RoomMessagesResponse):
                _raise_passing(answer)
                break
            found += [heard for each in answer.chunk if (heard := self._heard(room, each))]
            start = answer.end if answer.chunk and answer.end != start else None
        else:
            if start:
                told = {"action": "matrix.gap", "account": account_text("matrix", self._account)}
                log.warning("more was said in a room meanwhile than is fetched; what is older is lost", extra=told)
        return found[::-1]

    def _note(self, room: MatrixRoom, event: Any) -> None:  # noqa: ANN401 - nio has no word for all of them
        if not isinstance(room, MatrixInvitedRoom) and (heard := self._heard(room, event)):
            self._noted.setdefault(room.room_id, []).append(heard)

    def _heard(self, room: MatrixRoom, event: Any) -> Heard | None:  # noqa: ANN401
        read = event_of(event.source)
        if read is None:
            return None
        closed = event if isinstance(event, MegolmEvent) else None
        return Heard(event=read, scene=self._scene(room, read.sender), closed=closed)

    def _scene(self, room: MatrixRoom, sender: str) -> Scene:
        us = self._client.user_id
        return Scene(
            account=self._account,
            us=us,
            our_name=_name(room, us),
            chat_id=room.room_id,
            kind=GROUP,
            title=room.named_room_name(),
            name=_name(room, sender),
            threads=self._threads,
        )

    async def _opened(self) -> list[Heard]:
        """What could not be read when it came, and can be now that its key is here; until it is safe it waits on."""
        found = list[Heard]()
        for each in self._waiting.values():
            opened = self._client.read(each.closed) if each.closed else None
            if opened and (read := event_of(opened.source)):
                found += await self._placed(each.scene.chat_id, [Heard(event=read, scene=each.scene)])
        return found

    def _wait_for(self, closed: Iterable[Heard]) -> None:
        self._waiting.update({each.event.event_id: each for each in closed})
        for oldest in [*self._waiting][:-_MOST_CLOSED]:
            del self._waiting[oldest]

    def _invitations(self, answer: SyncResponse) -> Sequence[Call]:
        found = list[Call]()
        for room_id, info in answer.rooms.invite.items():
            for each in cast("list[object]", info.invite_state):
                if isinstance(each, InviteMemberEvent) and each.state_key == self._client.user_id:
                    content = cast("dict[str, object]", each.content)
                    is_direct = content.get("is_direct") is True
                    server = each.sender.partition(":")[2]
                    found.append(Call(room_id=room_id, server=server, inviter=each.sender, is_direct=is_direct))
        return found


def _name(room: MatrixRoom, user_id: str) -> str | None:
    user = room.users.get(user_id)
    return user.display_name if user else None


def _membership(heard: Heard) -> str | None:
    """What we have become in the room by it."""
    event = heard.event
    return event.content.membership if (event.type, event.state_key) == ("m.room.member", heard.scene.us) else None


def _entrance(events: Sequence[Heard]) -> int | None:
    """Where we came in, last; to change a name is no entrance."""
    return next(
        (
            at
            for at in reversed(range(len(events)))
            if _membership(events[at]) == "join" and events[at].event.unsigned.prev_content.membership != "join"
        ),
        None,
    )


def _may_be_more(info: RoomInfo, events: Iterable[Heard]) -> bool:
    """Whether somebody may have come into the room, or gone, without our being told how many are there now."""
    told = info.summary
    if told and (told.joined_member_count, told.invited_member_count) != (None, None):
        return False
    return bool(info.timeline.limited) or any(each.event.type == "m.room.member" for each in events)


def _raise_passing(answer: ErrorResponse) -> None:
    """Where we may not look any more there is nothing to be heard; all else is tried again."""
    if answer.status_code != "M_FORBIDDEN":
        raise refusal(answer) or unheard(answer)


PAUSES = (1.0, 5.0, 25.0, 125.0, 625.0)
"""Seconds between tries of what gets no answer; the last one again and again."""


class Errands:
    def __init__(self) -> None:
        self._running: set[asyncio.Task[None]] = set()

    def run(self, doing: Coroutine[None, None, object]) -> "asyncio.Task[None]":
        task = asyncio.create_task(_quietly(doing))
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return task

    def insist(self, doing: Callable[[], Coroutine[None, None, object]]) -> "asyncio.Task[None]":
        """What may be done twice: again, for as long as the homeserver asks for patience, or does not answer."""
        return self.run(_patiently(doing))

    async def end(self) -> None:
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)


async def _patiently(doing: Callable[[], Coroutine[None, None, object]]) -> None:
    pauses = chain(PAUSES, repeat(PAUSES[-1]))
    while True:
        try:
            await doing()
        except PlatformBusy as busy:
            await asyncio.sleep(busy.after)
        except PlatformDown:
            await asyncio.sleep(next(pauses))
        else:
            return


async def _quietly(doing: Coroutine[None, None, object]) -> None:
    with suppress(PlatformError, aiohttp.ClientError, TimeoutError, EncryptionError, LocalProtocolError):
        await doing
