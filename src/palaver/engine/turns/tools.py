"""The tools of a turn: which there are, which calls need approval, and how each is run."""

import asyncio
import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

from palaver.engine import texts
from palaver.engine.attachments import Attachments
from palaver.engine.context import EngineContext, Resources
from palaver.engine.retry import contain_cancellation, log_error, off_loop
from palaver.engine.turns.running import RunningTurn
from palaver.engine.turns.tool_services import TurnServices
from palaver.model.access import AccessRole
from palaver.model.errors import InvalidInput, NotFound, StoreError, StoreUnavailable
from palaver.model.key import JOB
from palaver.model.memory import MEMORY_TOOLS
from palaver.model.source import Source
from palaver.model.text import one_line
from palaver.model.tools import (
    ASK_USER,
    MAX_QUESTION_LENGTH,
    TOOL_NAME,
    ApprovalMode,
    approval_question,
    clean_result,
    parse_arguments,
    parse_question,
    unknown_argument,
)
from palaver.model.transcript import ToolCall
from palaver.model.turn import ClientTool, Received
from palaver.model.value import value
from palaver.model.view import with_files
from palaver.protocols.tools import (
    ApprovalSkips,
    CallApproval,
    Tool,
    Toolbox,
    ToolContext,
    ToolFailed,
    ToolProblems,
    Toolset,
    ToolUse,
)

log = logging.getLogger(__name__)

RESULT_CHARACTERS = 32_000
"""How much of a tool's result the agent sees."""
NAME_CHARACTERS = 64
_ASKS_FIRST = "A person must approve it first."


NO_TURN_TOOLS: Mapping[str, tuple[Tool, Toolset]] = {}


@value(kw_only=False)
class TurnTools:
    ctx: EngineContext
    resources: Resources
    attachments: Attachments

    async def tools(self, role: AccessRole, platform: str) -> dict[str, tuple[Tool, Toolset]]:
        """Return the tools that a role may use on a platform, by name, always in the same order."""
        rules, found = self.ctx.settings.tools, dict[str, tuple[Tool, Toolset]]()
        if not self.resources.toolsets or not rules.any_for(role, platform):
            return found
        for toolset in self.resources.toolsets:
            for tool in await self._list(toolset):
                approval = rules.approval_mode(tool.name, role, platform, needs_approval=tool.needs_approval)
                if approval is not ApprovalMode.NEVER and tool.name not in found and TOOL_NAME.fullmatch(tool.name):
                    # The tool's own exceptions do not count where the owner says: ask.
                    asks_unless = "" if rules.own_mode(tool.name) else tool.asks_unless
                    asks = approval is ApprovalMode.ASK
                    found[tool.name] = replace(tool, needs_approval=asks, asks_unless=asks_unless), toolset
        return found

    async def listed(self, received: Received) -> Sequence[Tool]:
        """Return the tools for the sender of a message."""
        role, platform = received.role or AccessRole.GUEST, received.inbound.source.platform
        return [tool for tool, _ in (await self.tools(role, platform)).values()]

    def problems(self) -> Mapping[str, str]:
        """Return why tools are missing, by the name of what does not work."""
        reporting = (toolset for toolset in self.resources.toolsets if isinstance(toolset, ToolProblems))
        return {name: problem for toolset in reporting for name, problem in toolset.problems().items()}

    async def for_turn(self, running: RunningTurn) -> Mapping[str, tuple[Tool, Toolset]]:
        """Return the gateway's tools for a turn. A client's tool of the same name takes the place of ours."""
        found = await self.tools(running.role, running.source.platform)
        is_job = running.job is not None or running.turn.key.kind == JOB
        hidden = self._hidden(running.source)
        return {
            name: (_with_approval(tool), toolset)
            for name, (tool, toolset) in found.items()
            if name not in running.offered and (tool.for_jobs or not is_job) and name not in hidden
        }

    async def names(self, role: AccessRole, source: Source) -> frozenset[str]:
        """Return the names of the gateway's tools for a person in a chat."""
        return frozenset(await self.tools(role, source.platform)) - self._hidden(source)

    def _hidden(self, source: Source) -> frozenset[str]:
        return frozenset() if self.ctx.settings.memory.find(source) else MEMORY_TOOLS

    async def _list(self, toolset: Toolset) -> Sequence[Tool]:
        try:
            with contain_cancellation():
                return await toolset.tools()
        except Exception as error:  # noqa: BLE001 - the turn continues without these tools
            log_error(log, "tools are missing", error, {"action": "tool.list_failed"})
            return ()

    def toolbox(
        self, running: RunningTurn, found: Mapping[str, tuple[Tool, Toolset]], approvals: Mapping[str, bool]
    ) -> Toolbox:
        """Return the gateway's and the client's tools for a turn. An approval holds once, for the open call."""
        return _Toolbox(
            ctx=self.ctx,
            resources=self.resources,
            attachments=self.attachments,
            running=running,
            found=found,
            approved={call for call, is_approved in approvals.items() if is_approved},
            offered=running.offered,
        )


def _with_approval(tool: Tool) -> Tool:
    """Tell the agent which tools need an approval, as the rules decide it."""
    if not tool.needs_approval:
        return tool
    asks = f"A person must approve it first, unless {tool.asks_unless}." if tool.asks_unless else _ASKS_FIRST
    return replace(tool, description=f"{tool.description} {asks}".lstrip())


def _as_tool(offered: ClientTool) -> Tool:
    return Tool(name=offered.name, description=offered.description, parameters=json.loads(offered.parameters))


@value
class _Toolbox:
    ctx: EngineContext
    resources: Resources
    attachments: Attachments
    running: RunningTurn
    found: Mapping[str, tuple[Tool, Toolset]]
    approved: set[str]
    """Ids of approved calls."""
    offered: Mapping[str, ClientTool]
    """Tools that the client runs."""

    @property
    def tools(self) -> Sequence[Tool]:
        return [*(tool for tool, _ in self.found.values()), *map(_as_tool, self.offered.values())]

    async def question(self, call: ToolCall) -> str | None:
        """Return the question to ask first. None also if `use` refuses the call: because it is too long to ask, too."""
        try:
            question = await self._full_question(call)
        except ToolFailed:
            return None
        return question if question and len(question) <= MAX_QUESTION_LENGTH else None

    async def _full_question(self, call: ToolCall) -> str | None:
        if call.name in self.offered:
            return f"The client runs {one_line(call.name, NAME_CHARACTERS)}."
        mode = self._approval_mode(call)
        if mode is ApprovalMode.NEVER:
            return None
        use = self._tool_use(call)
        if call.name == ASK_USER:
            asked = parse_question(call)
            return asked and asked.shown
        return approval_question(call, use.arguments) if await self._asks_first(use, mode) else None

    async def _asks_first(self, use: ToolUse, mode: ApprovalMode) -> bool:
        """Tell whether a person must approve the call. Raises ToolFailed if its toolset refuses it."""
        toolset = self.found[use.call.name][1]
        try:
            with contain_cancellation():
                if isinstance(toolset, CallApproval) and await toolset.needs_approval(use):
                    return True
                # What the owner said counts each time; a tool knows exceptions only from its own rule.
                is_own_rule = self.ctx.settings.tools.own_mode(use.call.name) is ApprovalMode.ASK
                if mode is ApprovalMode.ASK and not is_own_rule and isinstance(toolset, ApprovalSkips):
                    return not await toolset.skips_approval(use)
                return mode is ApprovalMode.ASK
        except ToolFailed:
            raise
        except Exception as error:  # noqa: BLE001 - a person decides instead
            log_error(log, "a tool failed", error, {"action": "tool.error", "turn": self.running.turn.number})
            return True

    async def use(self, call: ToolCall) -> str:
        # Log only names that we know: others are content of the agent.
        name, turn = call.name if call.name in self.found else "unknown", self.running.turn.number
        clock = asyncio.get_running_loop().time
        began = clock()
        try:
            with self.ctx.meter.step("tool", turn):
                result = await self._check_and_run(call)
        except (ToolFailed, InvalidInput, NotFound) as error:
            result = texts.refusal(error)
            self.ctx.meter.count("tools_failed")
            took = round(clock() - began, 3)
            log.warning("tool failed", extra={"action": "tool.failed", "tool": name, "turn": turn, "seconds": took})
        else:
            took = round(clock() - began, 3)
            log.info("tool used", extra={"action": "tool.used", "tool": name, "turn": turn, "seconds": took})
        finally:
            self.running.call_progress.pop(call.id, None)
        result = await off_loop(len(result), partial(clean_result, result, RESULT_CHARACTERS))
        return with_files(result, files) if (files := self.running.call_files.get(call.id)) else result

    async def _check_and_run(self, call: ToolCall) -> str:
        if call.name in self.offered:
            raise ToolFailed("The client has to run this tool itself, and has not done so.")
        if call.name not in self.found:
            raise ToolFailed(f"There is no tool called {call.name[:100]}. Available tools: {', '.join(self.found)}.")
        use = self._tool_use(call)
        if self._approval_mode(call) is ApprovalMode.NEVER:
            raise ToolFailed("Not everybody in this conversation can use this tool.")
        question = None if call.id in self.approved else await self._full_question(call)
        if question and len(question) > MAX_QUESTION_LENGTH:
            raise ToolFailed(
                "Shorten the arguments or split the call: a person has to approve it, and its question has"
                f" {len(question)} characters; at most {MAX_QUESTION_LENGTH} are allowed."
            )
        if question:
            raise ToolFailed("A person has to approve this call first.")
        self.approved.discard(call.id)
        return await self._run(self.found[call.name][1], use)

    async def _run(self, toolset: Toolset, use: ToolUse) -> str:
        limit = self.ctx.settings.limits.tool_limit
        try:
            async with asyncio.timeout(limit.total_seconds()):
                with contain_cancellation():
                    return await toolset.use(use)
        except TimeoutError:
            raise ToolFailed(f"The tool took longer than {limit} and was stopped. Its effect is unknown.") from None
        except (ToolFailed, InvalidInput, NotFound):
            raise
        except StoreUnavailable:
            raise ToolFailed("The database does not answer. Try again later.") from None
        except StoreError:
            raise
        except Exception as error:
            log_error(log, "a tool failed", error, {"action": "tool.error", "turn": use.context.turn.number})
            raise ToolFailed("The tool failed. Its effect is unknown.") from error

    def _approval_mode(self, call: ToolCall) -> ApprovalMode:
        """Return the mode for the turn's current role, which a message that joined it may have lowered."""
        if call.name not in self.found:
            return ApprovalMode.NEVER
        running, rules = self.running, self.ctx.settings.tools
        tool, _ = self.found[call.name]
        return rules.approval_mode(call.name, running.role, running.source.platform, needs_approval=tool.needs_approval)

    def _tool_use(self, call: ToolCall) -> ToolUse:
        """Return the use that a call asks for. Raises ToolFailed for arguments that its tool does not take."""
        arguments = parse_arguments(call)
        if arguments is None:
            raise ToolFailed("The arguments must be one JSON object.")
        if problem := unknown_argument(self.found[call.name][0].parameters, arguments):
            raise ToolFailed(problem)
        context = ToolContext(
            turn=self.running.turn,
            last=self.running.messages[-1],
            role=self.running.role,
            services=TurnServices(
                ctx=self.ctx,
                resources=self.resources,
                attachments=self.attachments,
                running=self.running,
                call=call.id,
            ),
        )
        return ToolUse(call=call, arguments=arguments, context=context)
