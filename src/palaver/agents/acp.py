"""Agents that speak the Agent Client Protocol: one program, and in it one session for each conversation.

It asks for permission in the middle of a prompt. The gateway parks the turn; the program waits with its request, and
gets the answer when the turn goes on. If it has ended meanwhile, it loads its session, or reads the conversation again.
"""

import asyncio
import base64
import hashlib
import json
import re
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from itertools import takewhile
from pathlib import Path
from typing import Any
from urllib.parse import quote

from palaver.agents.acp_connection import AcpConnection, AcpRefused, Answered, Asked, Session, Updated, as_object
from palaver.agents.external import AgentError
from palaver.agents.process import Process, home_folder
from palaver.agents.wire import (
    AgentRequest,
    Answer,
    FromAgent,
    Reply,
    WireApprovalNeeded,
    WireCall,
    WireDelta,
    WireFailure,
    WireFile,
    WireFinal,
    WireMessage,
    WireToolCalled,
    WireToolReturned,
    WireUsage,
)
from palaver.model.text import one_line
from palaver.model.tools import approval_question
from palaver.model.transcript import Role, ToolCall
from palaver.protocols.agent import FailureKind
from palaver.protocols.files import decoded_file, name_in_uri

_CANCEL_TIMEOUT_SECONDS = 10.0
_NOT_IN_IDS = re.compile(r"[^A-Za-z0-9_-]")
_MAX_ID_LENGTH = 40
_MAX_RESULT_LENGTH = 32_000
_MAX_TITLE_LENGTH = 200
_MAX_COST, _MAX_TOKENS = 1_000_000, 10**12
_IN_LINKS = "/:?#[]@!$&'*+,;=%~"
_NOT_ANSWERED = "(Your last turn ended before you answered. Go on, and do nothing again that you have done.)"
_SPEAKERS = {Role.USER: "Person", Role.ASSISTANT: "You", Role.TOOL: "Tool"}
_STOPPED = {
    "refusal": WireFailure(kind=FailureKind.REJECTED, detail="the agent refused"),
    "max_tokens": WireFailure(kind=FailureKind.OVERFLOW, detail="the agent reached its limit of tokens"),
    "max_turn_requests": WireFailure(kind=FailureKind.FATAL, detail="the agent reached its limit of requests"),
    "cancelled": WireFailure(kind=FailureKind.TRANSIENT, detail="the agent cancelled the turn"),
}


@dataclass(kw_only=True)
class AcpTransport:
    """Starts the program when it is first needed, and again after it ends."""

    command: Sequence[str]
    environ: Mapping[str, str] = field(repr=False)
    folder: Path | None = None
    _connection: AcpConnection | None = field(default=None, init=False)
    _starting: asyncio.Lock = field(default_factory=asyncio.Lock, init=False)

    @asynccontextmanager
    async def call(self, request: AgentRequest) -> AsyncGenerator["_AcpCall"]:
        if not isinstance(request, Answer):
            raise AgentError(FailureKind.FATAL, "the agent only answers")
        async with self._starting:
            connection = await self._connected()
        call = _AcpCall(connection, request, str(self.folder or home_folder()))
        try:
            yield call
        finally:
            call.release()

    async def _connected(self) -> AcpConnection:
        if self._connection is None or self._connection.has_ended:
            connection = AcpConnection(await Process.start(self.command, self.environ, self.folder))
            try:
                await connection.initialize()
            except BaseException:
                await connection.close()
                raise
            self._connection = connection
        return self._connection

    def retire(self) -> None:
        """Wait for `close`: a session can still wait for a permission."""

    async def close(self) -> None:
        if self._connection is not None:
            await self._connection.close()


class _AcpCall:
    """One turn: a prompt, or the rest of one that waited for a permission."""

    def __init__(self, connection: AcpConnection, request: Answer, folder: str) -> None:
        self._connection, self._request, self._folder = connection, request, folder
        self._session: Session | None = None
        self._known_cost = 0
        """What the session had cost when it answered last, in millionths."""
        self._is_over = False
        self._text, self._thought = "", ""
        self._announced: dict[str, str] = {}
        """The ids of calls that the gateway knows, by the agent's ids."""
        self._decided: tuple[str, bool] | None = None
        """What was decided before the program ended, by the description of the call."""

    @property
    def _calls(self) -> dict[str, dict[str, Any]]:
        return self._session.calls if self._session else {}

    def reply(self, reply: Reply) -> None:
        """Do nothing: this agent asks the gateway for nothing."""

    def release(self) -> None:
        if self._session is not None and not self._is_over:
            self._session.cancel()

    async def lines(self) -> AsyncGenerator[FromAgent]:
        try:
            async for line in self._begin():
                yield line
            async for line in self._follow():
                yield line
        except AcpRefused as error:
            self._is_over = True
            yield WireFailure(kind=error.kind, detail=str(error))

    # Begin

    async def _begin(self) -> AsyncGenerator[FromAgent]:
        """Answer the permission that the session waits for, or send what is new."""
        known = self._known_session()
        session = self._connection.sessions.get(known or "")
        still_open = _open_calls(self._request.messages)
        decided = [call for call in still_open if call.id in self._request.approvals]
        if session and session.asked and decided:
            self._answer_session(session, still_open)
            return
        if session:
            await session.settle(_CANCEL_TIMEOUT_SECONDS)
        prompt = self._new_texts() if known else ()
        if session is None and known:
            session = await self._connection.load(known, self._folder)
            if session:
                session.cost_micros = self._known_cost
        if session is None:
            session, prompt = await self._connection.create(self._folder), self._all_texts()
        self._session = session
        if decided:
            # The program that asked is gone: tell the new one, which asks again.
            said = "approved" if self._is_approved(decided) else "did not approve"
            if len(decided) == 1:
                self._decided = decided[0].arguments, said == "approved"
            for call in decided:
                yield WireToolReturned(call=call.id, text="(the agent was restarted before it could use this)")
            prompt = (*prompt, f"You asked to use a tool and were restarted. The person {said} it. Continue.")
        session.said = _digest(self._request.messages)
        session.prompt(prompt)

    def _answer_session(self, session: Session, still_open: Sequence[WireCall]) -> None:
        """Answer what a session waits for with the decision about that call, and about no other."""
        self._session = session
        left = list(still_open)
        for call, wire in session.announced.items():
            if stored := next((each for each in left if _same_call(each, wire)), None):
                left.remove(stored)
                self._announced[call] = stored.id
        decided = [each for each in still_open if each.id in self._request.approvals]
        asked = self._announced.get(session.asked[0].call)
        meant = [each for each in decided if each.id == asked] if asked else decided
        self._announced.setdefault(session.asked[0].call, decided[-1].id)
        session.decide(is_approved=bool(meant) and self._is_approved(meant))

    def _is_approved(self, calls: Sequence[WireCall]) -> bool:
        return all(self._request.approvals[call.id] for call in calls)

    def _known_session(self) -> str | None:
        """Return the agent's session for this conversation, if its memory is that of the transcript."""
        for place in reversed(range(len(self._request.messages))):
            for blob in reversed(self._request.messages[place].blobs):
                with suppress(ValueError, KeyError, TypeError):
                    found: Any = json.loads(blob)
                    session, said = str(found["acp"]), found["said"]
                    live = self._connection.sessions.get(session)
                    is_same = said == _digest(self._request.messages[:place]) and (live is None or live.said == said)
                    self._known_cost = int(found.get("cost", 0))
                    return session if is_same else None
        return None

    def _blob(self) -> bytes:
        session, cost = (self._session.id, self._session.cost_micros) if self._session else ("", 0)
        return json.dumps({"acp": session, "said": _digest(self._request.messages), "cost": cost}).encode()

    def _new_texts(self) -> tuple[str, ...]:
        """Return what people said since the agent last answered."""
        messages = self._request.messages
        asked = len(messages) - self._count_steps()
        new = takewhile(lambda each: each.role == Role.USER, reversed(messages[:asked]))
        note = (_NOT_ANSWERED,) if asked < len(messages) else ()
        return (*note, *reversed([each.text for each in new]))

    def _all_texts(self) -> tuple[str, ...]:
        messages = list(self._request.messages)
        last = _NOT_ANSWERED if self._count_steps() else messages.pop().text
        lines = [f"{_SPEAKERS.get(Role(each.role), 'Person')}: {each.text}" for each in messages if each.text]
        earlier = "The conversation so far:\n\n" + "\n\n".join(lines) if lines else ""
        return tuple(filter(None, (self._request.section, earlier, last)))

    def _count_steps(self) -> int:
        """Count what the agent said and did last, in a turn that it has not ended."""
        return len(list(takewhile(lambda each: each.role != Role.USER, reversed(self._request.messages))))

    # Follow

    async def _follow(self) -> AsyncGenerator[FromAgent]:
        session = self._session
        while session is not None:
            item = await session.items.get()
            match item:
                case Updated():
                    for line in self._translate(item.update):
                        yield line
                case Asked():
                    if self._decided and self._decided[0] == self._arguments(item.call, item.described):
                        session.decide(is_approved=self._decided[1])
                        self._decided = None
                        continue
                    self._is_over = True  # it goes on when somebody has decided
                    for line in self._ask(item):
                        yield line
                    return
                case Answered():
                    self._is_over = True
                    if item.used:
                        yield _usage(item.used, is_priced=session.is_priced)
                    yield self._end(item)
                    return
                case _:
                    self._is_over = True
                    raise item

    def _end(self, answered: Answered) -> FromAgent:
        if answered.problem:
            return WireFailure(kind=FailureKind.TRANSIENT, detail=answered.problem)
        stopped = _STOPPED.get(answered.stop_reason)
        if stopped is not None and not (answered.stop_reason == "max_tokens" and self._text):
            return stopped
        is_cut = answered.stop_reason == "max_tokens"
        files = tuple(self._session.files) if self._session else ()
        return WireFinal(text=self._text, reasoning=self._thought, blob=self._blob(), files=files, cut=is_cut)

    def _translate(self, update: Mapping[str, Any]) -> list[FromAgent]:
        match update:
            case {"sessionUpdate": "agent_message_chunk", "content": block}:
                return self._say(as_object(block))
            case {"sessionUpdate": "usage_update", "cost": {"amount": int() | float() as amount, "currency": "USD"}}:
                return self._count_cost(amount)
            case {"sessionUpdate": "agent_thought_chunk", "content": {"type": "text", "text": str(text)}}:
                self._thought += text
            case {"sessionUpdate": "tool_call" | "tool_call_update", "toolCallId": str(call)}:
                return self._note_call(call, update)
            case _:
                pass  # plans, modes and commands are for editors
        return []

    def _say(self, block: Mapping[str, Any]) -> list[FromAgent]:
        files = self._session.files if self._session else []
        if file := _file(block, len(files) + 1):
            files.append(file)
            return []
        text = _shown(block)
        if block.get("type") != "text":  # on a line of its own
            before = "\n" if self._text and not self._text.endswith("\n") else ""
            text = f"{before}{text}\n"
        self._text += text
        return [WireDelta(text=text)]

    def _count_cost(self, amount: float) -> list[FromAgent]:
        """Count what a session has cost since it said so last: it says what it cost as a whole."""
        session = self._session
        if session is None or not 0 <= amount <= _MAX_COST:
            return []
        cost = round(amount * 1_000_000)
        # It can begin anew when it is loaded.
        new = cost - session.cost_micros if cost >= session.cost_micros else cost
        session.cost_micros, session.is_priced = cost, True
        return [WireUsage(cost_micros=new)]

    def _note_call(self, call: str, update: Mapping[str, Any]) -> list[FromAgent]:
        known = self._calls.setdefault(call, {})
        known.update({name: value for name, value in update.items() if value is not None})
        status = known.get("status")
        if status not in {"in_progress", "completed", "failed"}:
            return []
        lines: list[FromAgent] = [] if call in self._announced else [self._announce(call)]
        if status != "in_progress":
            lines.append(WireToolReturned(call=self._announced[call], text=_result(known)))
            if self._session:
                self._session.announced.pop(call, None)
        return lines

    def _announce(self, call: str) -> WireToolCalled:
        wire = self._wire_call(call, self._calls.get(call, {}))
        self._announced[call] = wire.id
        if self._session:
            self._session.announced[call] = wire
        line = WireToolCalled(calls=(wire,), text=self._text, reasoning=self._thought, blob=self._blob())
        self._text = self._thought = ""
        return line

    def _ask(self, asked: Asked) -> list[FromAgent]:
        self._calls.setdefault(asked.call, {}).update(asked.described)
        lines: list[FromAgent] = [] if asked.call in self._announced else [self._announce(asked.call)]
        known = self._calls[asked.call]
        call = self._wire_call(asked.call, known)
        question = approval_question(ToolCall(call.id, _title(known)), _input(known))
        return [*lines, WireApprovalNeeded(call=call, question=question)]

    def _wire_call(self, call: str, known: Mapping[str, Any]) -> WireCall:
        name = f"acp_{_NOT_IN_IDS.sub('_', str(known.get('kind') or 'other'))}"[:_MAX_ID_LENGTH]
        identity = self._announced.get(call) or _NOT_IN_IDS.sub("_", call)[:_MAX_ID_LENGTH] or "call"
        return WireCall(identity, name, self._arguments(call, known))

    def _arguments(self, call: str, described: Mapping[str, Any]) -> str:
        known = {**self._calls.get(call, {}), **described}
        return json.dumps({"title": _title(known), **_input(known)}, ensure_ascii=False)


def _title(known: Mapping[str, Any]) -> str:
    return one_line(str(known.get("title") or known.get("kind") or "a tool"), _MAX_TITLE_LENGTH)


def _input(known: Mapping[str, Any]) -> dict[str, Any]:
    return as_object(known.get("rawInput"))


def _file(block: Mapping[str, Any], number: int) -> WireFile | None:
    """Return the file in a block of content; None if there is none."""
    match block:
        case {"type": "image" | "audio" as kind, "data": str(data)} if data:
            name, media_type = name_in_uri(str(block.get("uri") or "")) or f"{kind}-{number}", block.get("mimeType")
        case {"type": "resource", "resource": {"uri": str(uri), "blob": str(data), **about}}:
            name, media_type = name_in_uri(uri) or f"file-{number}", about.get("mimeType")
        case {"type": "resource", "resource": {"uri": str(uri), "text": str(text), **about}}:
            name, media_type = name_in_uri(uri) or f"file-{number}.txt", about.get("mimeType")
            data = base64.b64encode(text.encode(errors="replace")).decode()
        case _:
            return None
    file = decoded_file(data, str(media_type or ""), name)
    return file and WireFile(*file)


def _shown(block: Mapping[str, Any]) -> str:
    """Return a block of content as text."""
    match block:
        case {"type": "text", "text": str(text)} | {"type": "resource", "resource": {"text": str(text)}}:
            return text
        case {"type": "resource_link", "uri": str(uri), "name": str(name)} | {"type": "image", "uri": str(uri) as name}:
            name = one_line(str(block.get("title") or name), _MAX_TITLE_LENGTH)
            if not uri.startswith(("https:", "http:")):
                return f"{name} ({uri})"
            label = re.sub(r"([\\\[\]])", r"\\\1", name)
            return f"[{label}]({quote(uri, safe=_IN_LINKS)})"
        case _:
            return f"({block.get('type') or 'content'}, not readable)"


def _usage(used: Mapping[str, Any], *, is_priced: bool) -> WireUsage:
    """Return what a prompt used. What is read from a cache or written into it is not among the input, as a rule."""
    names = ("inputTokens", "cachedReadTokens", "cachedWriteTokens", "outputTokens", "thoughtTokens", "totalTokens")
    counts = [count if isinstance(count := used.get(name), int) and 0 <= count < _MAX_TOKENS else 0 for name in names]
    *prompt, output, _, total = counts
    total = total or sum(counts)
    size = max(0, min(sum(prompt), total - output))
    return WireUsage(
        input_tokens=size,
        cached_tokens=min(size, prompt[1]),
        output_tokens=total - size,
        cost_micros=0 if is_priced else None,
    )


def _result(known: Mapping[str, Any]) -> str:
    """Return what a call came to, in text."""
    texts: list[str] = []
    for part in known.get("content") or ():
        match part:
            case {"type": "content", "content": {"type": "text" | "resource_link" | "resource"} as block}:
                texts.append(_shown(block))
            case {"type": "diff", "path": str(path)}:
                texts.append(f"(changed {path})")
            case {"type": str(kind)}:
                texts.append(f"({kind}, not shown)")
            case _:
                pass
    if not texts and known.get("rawOutput") is not None:
        texts.append(json.dumps(known["rawOutput"], ensure_ascii=False))
    text = "\n".join(texts)[:_MAX_RESULT_LENGTH] or "(no output)"
    return f"It failed: {text}" if known.get("status") == "failed" else text


def _same_call(one: WireCall, other: WireCall) -> bool:
    """Compare without ids: the gateway gives a call a new one if the agent's was used before."""
    return (one.name, one.arguments) == (other.name, other.arguments)


def _open_calls(messages: Sequence[WireMessage]) -> list[WireCall]:
    """Return the calls that have no result."""
    answered = {message.answers for message in messages if message.answers}
    return [call for message in messages for call in message.calls if call.id not in answered]


def _digest(messages: Sequence[WireMessage]) -> str:
    """Identify what people said: if that changes, the memory of the agent is wrong."""
    said = [message.text for message in messages if message.role == Role.USER]
    return hashlib.sha256(json.dumps(said).encode()).hexdigest()[:16]
