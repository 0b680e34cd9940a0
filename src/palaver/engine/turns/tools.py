"""Tooling: which tools a turn has, what a person is asked about, and how each is used."""

import asyncio
import hashlib
import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from palaver.db.transaction import Statements, transaction
from palaver.engine import texts
from palaver.engine.attachments import Attachments
from palaver.engine.context import EngineContext
from palaver.engine.retry import contain_cancellation, log_error, retry_outage
from palaver.engine.turns.running import RunningTurn
from palaver.model.access import AccessRole
from palaver.model.attachment import NewFile
from palaver.model.errors import BadArgument, InvalidInput, NotFound, StoreError, StoreUnavailable
from palaver.model.source import Source
from palaver.model.target import All, Home, Local, Origin, Place, Target, parse_targets
from palaver.model.text import one_line
from palaver.model.tools import (
    MAX_QUESTION_LENGTH,
    TOOL_NAME,
    ApprovalMode,
    approval_question,
    clean_result,
    parse_arguments,
)
from palaver.model.transcript import ToolCall
from palaver.model.turn import ClientTool, Outbound, Received, Turn
from palaver.model.value import value
from palaver.protocols.tools import NO_TOOLS, Tool, Toolbox, ToolContext, ToolFailed, Toolset, ToolUse
from palaver.store.queue.cause import CauseKind, SendCause
from palaver.store.store import Store

__all__ = [
    "TurnTools",
]

log = logging.getLogger(__name__)

_RESULT = 32_000
"""How much of what a tool puts out the agent is shown, in characters."""
_NAME = 64


@value(kw_only=False)
class TurnTools:
    ctx: EngineContext

    async def tools(self, role: AccessRole, platform: str) -> dict[str, tuple[Tool, Toolset]]:
        """What the agent may use there for somebody with that role, by name, always in the same order."""
        rules, found = self.ctx.options.tools, dict[str, tuple[Tool, Toolset]]()
        if not self.ctx.toolsets or not rules.any_for(role, platform):
            return found
        for toolset in self.ctx.toolsets:
            for tool in await self._asked(toolset):
                approval = rules.approval_mode(tool.name, role, platform, needs_approval=tool.needs_approval)
                if approval is not ApprovalMode.NEVER and tool.name not in found and TOOL_NAME.fullmatch(tool.name):
                    found[tool.name] = replace(tool, needs_approval=approval is ApprovalMode.ASK), toolset
        return found

    async def listed(self, received: Received) -> Sequence[Tool]:
        """Those for whoever said this, where they said it."""
        role, platform = received.role or AccessRole.GUEST, received.inbound.source.platform
        return [tool for tool, _ in (await self.tools(role, platform)).values()]

    async def toolbox(self, running: RunningTurn, approvals: Mapping[str, bool]) -> Toolbox:
        """What was allowed is allowed once: to the calls that are open."""
        offered = running.offered
        if not self.ctx.toolsets and not offered:
            return NO_TOOLS
        found = await self.tools(running.role, running.source.platform)
        if not found and not offered:
            return NO_TOOLS
        allowed = {name for name, is_allowed in approvals.items() if is_allowed}
        return _Toolbox(ctx=self.ctx, running=running, found=found, allowed=allowed, offered=offered)

    async def _asked(self, toolset: Toolset) -> Sequence[Tool]:
        try:
            with contain_cancellation():
                return await toolset.tools()
        except Exception as error:  # noqa: BLE001 - without these tools the turn goes on
            log_error(log, "tools are missing", error, {"action": "tool.list_failed"})
            return ()


def _as_tool(offered: ClientTool) -> Tool:
    return Tool(name=offered.name, description=offered.description, parameters=json.loads(offered.parameters))


@value
class _Toolbox:
    ctx: EngineContext
    running: RunningTurn
    found: Mapping[str, tuple[Tool, Toolset]]
    allowed: set[str]
    offered: Mapping[str, ClientTool]
    """Used by whoever is answered; where they call theirs as we call ours, theirs is meant."""

    @property
    def tools(self) -> Sequence[Tool]:
        ours = [tool for name, (tool, _) in self.found.items() if name not in self.offered]
        return [*ours, *map(_as_tool, self.offered.values())]

    async def question(self, call: ToolCall) -> str | None:
        """None also where it cannot be asked, as nobody would read it all: then the use of it says so."""
        question = await self._whole_question(call)
        return question if question and len(question) <= MAX_QUESTION_LENGTH else None

    async def _whole_question(self, call: ToolCall) -> str | None:
        if call.name in self.offered:
            return f"{one_line(call.name, _NAME)} is used by whoever offered it."
        use = self._use(call)
        if use is None or self._leave(call) is not ApprovalMode.ASK:
            return None
        try:
            with contain_cancellation():
                skips_approval = await self.found[call.name][1].skips_approval(use)
        except Exception as error:  # noqa: BLE001 - then a person decides
            log_error(log, "a tool broke", error, {"action": "tool.error", "turn": self.running.turn.number})
            skips_approval = False
        return None if skips_approval else approval_question(call, use.arguments)

    async def use(self, call: ToolCall) -> str:
        # The names of tools are ours; what the agent calls by other names is its own.
        name, turn = call.name if call.name in self.found else "unknown", self.running.turn.number
        clock = asyncio.get_running_loop().time
        began = clock()
        try:
            with self.ctx.meter.step("tool"):
                result = await self._used(call)
        except (ToolFailed, InvalidInput, NotFound) as error:
            result = texts.refusal(error)
            self.ctx.meter.count("tools_failed")
            took = round(clock() - began, 3)
            log.warning("tool failed", extra={"action": "tool.failed", "tool": name, "turn": turn, "seconds": took})
        else:
            took = round(clock() - began, 3)
            log.info("tool used", extra={"action": "tool.used", "tool": name, "turn": turn, "seconds": took})
        return clean_result(result, _RESULT)

    async def _used(self, call: ToolCall) -> str:
        if call.name in self.offered:
            raise ToolFailed("Whoever offered this tool has to use it, and has not.")
        if call.name not in self.found:
            raise ToolFailed(f"There is no tool called {call.name[:100]}. There are: {', '.join(self.found)}.")
        use = self._use(call)
        if use is None:
            raise ToolFailed("The arguments have to be one JSON object.")
        if self._leave(call) is ApprovalMode.NEVER:
            raise ToolFailed("Not everybody who speaks here may have this tool used.")
        question = None if call.id in self.allowed else await self._whole_question(call)
        if question and len(question) > MAX_QUESTION_LENGTH:
            raise ToolFailed(
                "A person has to allow this, and is not asked about so much at once: the arguments may have about"
                f" {MAX_QUESTION_LENGTH} characters and have {len(question)}. Make it shorter, or do it in parts."
            )
        if question:
            raise ToolFailed("A person has to allow this first, and nobody has.")
        self.allowed.discard(call.id)
        return await self._bounded(self.found[call.name][1], use)

    async def _bounded(self, toolset: Toolset, use: ToolUse) -> str:
        limit = self.ctx.options.tool_limit
        try:
            async with asyncio.timeout(limit.total_seconds()):
                with contain_cancellation():
                    return await toolset.use(use)
        except TimeoutError:
            raise ToolFailed(f"It took longer than {limit} and was stopped; its effect is unknown.") from None
        except (ToolFailed, InvalidInput, NotFound):
            raise
        except StoreUnavailable:
            raise ToolFailed("The database does not answer at the moment.") from None
        except StoreError:
            raise
        except Exception as error:
            log_error(log, "a tool broke", error, {"action": "tool.error", "turn": use.context.turn.number})
            raise ToolFailed("The tool broke; its effect is unknown.") from error

    def _leave(self, call: ToolCall) -> ApprovalMode:
        """As it is now: somebody of a lesser role may have spoken into the turn since it began."""
        if call.name not in self.found:
            return ApprovalMode.NEVER
        running, rules = self.running, self.ctx.options.tools
        tool, _ = self.found[call.name]
        return rules.approval_mode(call.name, running.role, running.source.platform, needs_approval=tool.needs_approval)

    def _use(self, call: ToolCall) -> ToolUse | None:
        arguments = parse_arguments(call)
        if arguments is None:
            return None
        context = ToolContext(
            turn=self.running.turn,
            last=self.running.messages[-1],
            role=self.running.role,
            services=_Errands(ctx=self.ctx, running=self.running, call=call.id),
        )
        return ToolUse(call=call, arguments=arguments, context=context)


@value
class _Errands:
    ctx: EngineContext
    running: RunningTurn
    call: str

    @property
    def turn(self) -> Turn:
        return self.running.turn

    @property
    def origin(self) -> Source:
        return self.running.source

    async def read_file(self, name: str) -> bytes:
        return await Attachments(self.ctx).read(self.turn, name)

    async def places(self, targets: str) -> Sequence[Source]:
        named = parse_targets(targets, self.ctx.replies.platforms)
        homes = await retry_outage(lambda: self.ctx.store.read(self.ctx.store.accounts.homes(self.turn.key.profile)))
        found = [place for target in named for place in self._places(target, homes)]
        return list({place.address: place for place in found}.values())

    def _places(self, target: Target, homes: Sequence[Source]) -> list[Source]:
        match target:
            case Origin():
                return [replace(self.origin, message_id=None)]
            case Home(platform=platform):
                places = [home for home in homes if home.platform == platform]
            case All():
                places = [home for home in homes if home.platform in self.ctx.replies.platforms]
            case Place():
                place = self.ctx.replies.place_at(target, self.turn.key.profile, self.origin)
                places = [place] if place else []
            case Local():
                places = []
        if not places:
            raise BadArgument(
                "Nothing can be sent to",
                found=target.text,
                allowed="origin, platforms that have a home channel, <platform>:<chat>[:<thread>]",
                example="origin",
            )
        return places

    async def send(self, places: Sequence[Source], text: str, files: Sequence[NewFile] = (), *, once: str) -> bool:
        kept = await Attachments(self.ctx).keep_all(files)
        for file in kept:
            if file.problem:
                raise ToolFailed(f"The file was not sent: {file.problem}.")
        replies = self.ctx.replies
        parts = [part for place in places for part in (*replies.to(place, text), *replies.files(place, kept))]
        if not parts:
            raise ToolFailed("There is nothing in it that could be sent.")
        call = hashlib.sha256(once.encode("utf-8", "replace")).hexdigest()[:32]
        cause = SendCause(CauseKind.TOOL, self.turn.number, call)
        owe, tries = _owe(self.ctx.store, self.turn, parts, cause, self.ctx.clock.now()), 0

        async def attempt() -> bool:
            nonlocal tries
            tries += 1
            return await self.ctx.store.transact(owe)

        # Where nobody heard what became of an attempt, what is owed already is owed by that one.
        is_sent = await retry_outage(attempt) or tries > 1
        self.running.filed[self.call] = tuple(kept)
        return is_sent


@transaction
def _owe(store: Store, turn: Turn, parts: Sequence[Outbound], cause: SendCause, now: datetime) -> Statements[bool]:
    """All of it or nothing, and nothing once somebody else has taken the turn over."""
    yield from store.turns.append_to_turn(turn, [])
    return (yield from store.outbox.enqueue_parts(parts, cause, now)) > 0
