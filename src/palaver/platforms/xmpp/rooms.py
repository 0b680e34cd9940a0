"""Rooms (XEP-0045): enter them, and know who is in them."""

import asyncio
import logging
from collections.abc import Callable
from datetime import datetime
from xml.etree.ElementTree import Element, SubElement

from palaver.platforms.xmpp.parse import CLIENT, MUC, MUC_USER, OCCUPANT, bare, error_condition, resource

log = logging.getLogger(__name__)

_JOIN_SECONDS = 20.0
_MAX_NICKS = 5
_OURS = "110"
_NICK_CHANGED = "303"
_REMOVED = frozenset({"301", "307", "321", "322"})


class Rooms:
    """The rooms of one connection."""

    def __init__(self, send: Callable[[Element], None]) -> None:
        self._send = send
        self.nicks: dict[str, str] = {}
        """Our nick in each room that we are in."""
        self.ids: dict[str, str] = {}
        """Us in each room that gives people ids; the other people's are in `_people`."""
        self._people: dict[str, str] = {}
        """The address in the room, with the nick, of each person with an id."""
        self._jids: dict[str, str] = {}
        """The address of each person in a room, if the room tells it."""
        self._entering: dict[str, asyncio.Future[str]] = {}
        self.left: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done once a room has ended that we are in: we have to enter it again."""

    def jid_of(self, occupant: str) -> str | None:
        return self._jids.get(occupant) or None

    def address_of(self, chat: str) -> str | None:
        """Return where to write to a chat. A person in a room can have another nick by now, or have left."""
        return self._people.get(chat) if resource(chat) and bare(chat) in self.nicks else chat

    async def enter(self, room: str, nick: str, since: datetime | None) -> bool:
        """Enter a room, under another nick if somebody has ours. Return whether we are in.

        `since` is from when on the room sends what it remembers. Without it, we read its archive.
        """
        problem = ""
        for attempt in range(_MAX_NICKS):
            problem = await self._try(room, nick + "_" * attempt, since)
            if not problem:
                return True
            if problem != "conflict":
                break
        log.warning("cannot enter a room: %s", problem, extra={"action": "xmpp.not_joined"})
        return False

    async def _try(self, room: str, nick: str, since: datetime | None) -> str:
        """Return what is wrong; empty if we are in."""
        future = self._entering[room] = asyncio.get_running_loop().create_future()
        asked = Element(f"{{{CLIENT}}}presence", to=f"{room}/{nick}")
        history = {"since": f"{since:%Y-%m-%dT%H:%M:%SZ}"} if since else {"maxstanzas": "0"}
        SubElement(SubElement(asked, f"{{{MUC}}}x"), f"{{{MUC}}}history", history)
        self._send(asked)
        try:
            async with asyncio.timeout(_JOIN_SECONDS):
                return await future
        except TimeoutError:
            return "no answer"
        finally:
            self._entering.pop(room, None)

    def take(self, presence: Element) -> None:
        """Notice who comes and goes."""
        occupant = presence.get("from", "")
        kind = presence.get("type", "available")
        room = bare(occupant)
        nick = resource(occupant)
        details = presence.find(f"{{{MUC_USER}}}x")
        if kind == "error":
            self._answer(room, error_condition(presence))
        if details is None or (room not in self.nicks and room not in self._entering):
            return
        item = details.find(f"{{{MUC_USER}}}item")
        codes = {each.get("code") for each in details.findall(f"{{{MUC_USER}}}status")}
        mark = presence.find(f"{{{OCCUPANT}}}occupant-id")
        person = f"{room}/{mark.get('id')}" if mark is not None and mark.get("id") else ""
        if kind == "unavailable":
            self._jids.pop(occupant, None)
            if self._people.get(person) == occupant:
                del self._people[person]
            if _OURS in codes or nick == self.nicks.get(room):
                self._leave(room, codes, item)
        elif kind == "available":
            self._jids[occupant] = item.get("jid", "") if item is not None else ""
            self._people[person] = occupant
            if _OURS in codes:
                self.nicks[room] = nick
                self.ids |= {room: person} if person else {}  # We wrote no id, so the room did.
                self._answer(room, "")

    def _answer(self, room: str, problem: str) -> None:
        future = self._entering.get(room)
        if future and not future.done():
            future.set_result(problem)

    def _leave(self, room: str, codes: set[str | None], item: Element | None) -> None:
        if _NICK_CHANGED in codes and item is not None and item.get("nick"):
            self.nicks[room] = item.attrib["nick"]
            return
        self.nicks.pop(room, None)
        if codes & _REMOVED:
            log.warning("was removed from a room", extra={"action": "xmpp.removed"})
        elif not self.left.done():
            self.left.set_result(None)
