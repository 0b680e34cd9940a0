"""What the gateway does for a tool in a turn: files, jobs, places, and messages to them."""

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

from palaver.db.transaction import Statements, transaction
from palaver.engine.attachments import Attachments
from palaver.engine.context import EngineContext, Resources
from palaver.engine.delivery.targets import OutputFile, TargetRules, reachable_places
from palaver.engine.jobs.creation import JobMaker, create_job, job_rules
from palaver.engine.retry import retry_outage
from palaver.engine.turns.running import RunningTurn
from palaver.engine.voice import speak
from palaver.model.attachment import Attachment, NewFile
from palaver.model.errors import NotAllowed, NotFound
from palaver.model.job import Job, JobRequest
from palaver.model.memory import MemoryLimits
from palaver.model.prompt import PSEUDONYM
from palaver.model.redact import redact
from palaver.model.source import Source, identity_of
from palaver.model.target import Origin, Place, Target, parse_targets
from palaver.model.text import one_line
from palaver.model.turn import Outbound, Turn
from palaver.model.value import value
from palaver.protocols.tools import ToolFailed
from palaver.protocols.voice import VoiceFailed
from palaver.store.conversations import mirrors
from palaver.store.people import access_rules, people
from palaver.store.privacy import pseudonyms
from palaver.store.queue.cause import CauseKind, SendCause
from palaver.store.queue.outbox import enqueue_parts
from palaver.store.queue.turns import append_to_turn

_PROGRESS_CHARACTERS = 200
_FILED_AS = "messages"
"""The name of what a tool sends to `local`."""


@value
class TurnServices:
    """The `ToolServices` of one call in a turn."""

    ctx: EngineContext
    resources: Resources
    attachments: Attachments
    running: RunningTurn
    call: str

    @property
    def turn(self) -> Turn:
        return self.running.turn

    @property
    def origin(self) -> Source:
        return self.running.source

    @property
    def resumes(self) -> bool:
        return self.running.resumes

    async def wait_for_message(self) -> None:
        await self.running.message_waits.wait()

    async def read_file(self, name: str) -> NewFile:
        return await self.attachments.read(self.turn, name)

    def hides_ids(self, platform: str) -> bool:
        known = self.ctx.replies.platforms.get(platform)
        return self.ctx.settings.config.privacy.pseudonyms and (known is None or known.hides_ids)

    @property
    def zone(self) -> ZoneInfo:
        return self.ctx.settings.zones.find(self.origin)

    @property
    def now(self) -> datetime:
        return self.ctx.clock.now()

    @property
    def memory_limits(self) -> MemoryLimits:
        return self.ctx.settings.limits.memory

    @property
    def tool_limit(self) -> timedelta:
        return self.ctx.settings.limits.tool_limit

    async def schedule(self, request: JobRequest) -> Job:
        targets = [await self._real(target) for target in parse_targets(request.to, self.ctx.replies.platforms)]
        named = replace(request, to=",".join(target.text for target in targets))
        try:
            return await self.ctx.store.transact(self._create_job(named, self.now))
        except NotAllowed as error:
            raise ToolFailed(str(error)) from error

    @transaction
    def _create_job(self, request: JobRequest, now: datetime) -> Statements[Job]:
        """Make a job under the turn's fence, with no more rights than everybody in the turn has."""
        yield from append_to_turn(self.turn, [])
        maker = JobMaker(
            principal=(yield from people.principal_for(self.origin)),
            origin=self.origin,
            role=self.running.role,
            basis=self.running.messages[-1].basis,
            zone=self.zone,
            now=now,
        )
        return (yield from create_job(request, maker, job_rules(self.ctx, self.resources, self.turn.key.profile)))

    async def places(self, targets: str) -> Sequence[Source]:
        named = [await self._real(target) for target in parse_targets(targets, self.ctx.replies.platforms)]
        store, allowed = self.ctx.store, access_rules.load(self.ctx.settings.grants)
        homes = await retry_outage(lambda: store.read(store.accounts.list_homes(self.turn.key.profile, allowed)))
        rules = TargetRules(
            accounts=self.ctx.replies.senders,
            profile=self.turn.key.profile,
            homes=homes,
            origin=self.origin,
            file=OutputFile(
                owner=identity_of(self.origin) or self.origin.platform, name=_FILED_AS, at=self.ctx.clock.now()
            ),
        )
        return reachable_places(named, rules)

    async def _real(self, target: Target) -> Target:
        """Return a target under real ids: where ids are hidden, the agent knows only pseudonyms."""
        if not isinstance(target, Place):
            return target
        if not self.hides_ids(target.platform):
            return target
        ids = {"server": target.server, "chat": target.chat, "thread": target.thread}
        return replace(target, **{name: id_ and await self._real_id(target.platform, id_) for name, id_ in ids.items()})

    async def _real_id(self, platform: str, name: str) -> str:
        if not PSEUDONYM.fullmatch(name):
            return name
        found = await retry_outage(lambda: self.ctx.store.read(pseudonyms.resolve(name)))
        if found.platform != platform:
            raise NotFound("pseudonym", name)
        return found.id

    async def keep(self, files: Sequence[NewFile]) -> Sequence[Attachment]:
        stored = await self.attachments.store_all(files)
        self._attach(stored)
        return stored

    def _attach(self, files: Sequence[Attachment]) -> None:
        self.running.call_files[self.call] = (*self.running.call_files.get(self.call, ()), *files)

    def report(self, progress: str) -> None:
        self.running.call_progress[self.call] = one_line(redact(progress), _PROGRESS_CHARACTERS)

    async def say(self, text: str, *, once: str) -> bool:
        voice = self.resources.voice
        if voice is None or voice.speaker is None:
            raise ToolFailed("This gateway does not speak.")
        if len(text) > voice.max_characters:
            raise ToolFailed(f"At most {voice.max_characters} characters can be spoken.")
        try:
            recording = await speak(self.ctx, self.resources, self.running, voice.speaker, text)
        except VoiceFailed as error:
            raise ToolFailed(f"The message was not spoken: {error}.") from error
        return await self.send(await self.places(Origin().text), "", (recording,), once=once)

    async def send(self, places: Sequence[Source], text: str, files: Sequence[NewFile] = (), *, once: str) -> bool:
        stored = await self.attachments.store_all(files)
        for file in stored:
            if file.problem:
                raise ToolFailed(f"The file was not sent: {file.problem}.")
        parts = [part for place in places for part in await self._parts(place, text, stored)]
        if not parts:
            raise ToolFailed("There is nothing to send.")
        call = hashlib.sha256(once.encode("utf-8", "replace")).hexdigest()[:32]
        cause = SendCause(CauseKind.TOOL, self.turn.number, call)
        enqueue, tries = _enqueue_under_fence(self.turn, parts, cause, self.ctx.clock.now()), 0

        async def attempt() -> bool:
            nonlocal tries
            tries += 1
            return await self.ctx.store.transact(enqueue)

        # If an attempt got no answer, what is already in the outbox came from that attempt.
        is_sent = await retry_outage(attempt) or tries > 1
        self._attach(stored)
        if any(place.address == self.origin.address for place in places):
            self.running.has_sent_here = True
        return is_sent

    async def _parts(self, place: Source, text: str, files: Sequence[Attachment]) -> list[Outbound]:
        """Return the messages to a place. In another chat they are noted in its conversation, which has this turn's."""
        replies, store, mirror = self.ctx.replies, self.ctx.store, None
        if place.address != self.origin.address:
            mirror = await retry_outage(lambda: store.read(_find_mirror(self.ctx.current_source(place), self.turn)))
        said = replies.to(place, text)
        return [*(replace(part, mirror=mirror) if mirror else part for part in said), *replies.files(place, files)]


@transaction
def _find_mirror(place: Source, turn: Turn) -> Statements[str | None]:
    """Return the chat whose conversations learn what a turn of another one sends there."""
    chat = yield from mirrors.find_chat(place)
    is_own = chat is not None and turn.key in (yield from mirrors.conversations_in(chat))
    return chat.text if chat and not is_own else None


@transaction
def _enqueue_under_fence(turn: Turn, parts: Sequence[Outbound], cause: SendCause, now: datetime) -> Statements[bool]:
    """Send all parts or none. Raises StaleFence if another worker took over the turn."""
    yield from append_to_turn(turn, [])
    return (yield from enqueue_parts(parts, cause, now)) > 0
