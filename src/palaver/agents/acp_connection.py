"""The wire of the Agent Client Protocol: JSON-RPC in lines, over the pipes of a program."""

import asyncio
import json
from asyncio import Future, Queue
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from typing import Any, cast

from palaver import __version__
from palaver.agents.external import AgentError, failure_detail
from palaver.agents.process import Process
from palaver.agents.wire import ProtocolError, WireCall, WireFile
from palaver.protocols.agent import FailureKind

_PROTOCOL_VERSION = 1
_METHOD_NOT_FOUND, _INVALID_PARAMS, _AUTH_REQUIRED = -32601, -32602, -32000
_REQUEST_TIMEOUT_SECONDS = 60.0
_MAX_SESSIONS = 1_000
_MAX_ITEMS = 100_000
_ALLOWS, _REJECTS = ("allow_once", "allow_always"), ("reject_once", "reject_always")


class AcpRefused(AgentError):
    """The agent answered a request with an error."""


@dataclass(frozen=True, kw_only=True)
class Updated:
    update: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Asked:
    """The agent asks for a permission, and waits."""

    id: object
    call: str
    described: Mapping[str, Any]
    options: Sequence[Mapping[str, Any]]


@dataclass(frozen=True, kw_only=True)
class Answered:
    """The prompt is done."""

    stop_reason: str = ""
    problem: str = ""
    used: Mapping[str, Any] = field(default_factory=dict[str, Any])


Item = Updated | Asked | Answered | AgentError | ProtocolError


@dataclass(kw_only=True)
class Session:
    """A session of the agent. It has one prompt at a time."""

    id: str
    connection: "AcpConnection"
    items: Queue[Item] = field(default_factory=Queue[Item])
    asked: list[Asked] = field(default_factory=list[Asked])
    """The permissions that it waits for; people decide about the first."""
    calls: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
    """What the agent said about the calls of its prompt, by its id for each."""
    announced: dict[str, WireCall] = field(default_factory=dict[str, WireCall])
    """Those that the gateway knows, as it got them, by the agent's ids."""
    files: list[WireFile] = field(default_factory=list[WireFile])
    """The files of its answer so far."""
    said: str = ""
    """Identifies what it was told in this run: after an undo it remembers more than the conversation has."""
    cost_micros: int = 0
    """What it has cost so far, as far as it is counted."""
    is_priced: bool = False
    """It said what its prompt costs."""
    _prompting: "asyncio.Task[None] | None" = None

    @property
    def is_idle(self) -> bool:
        return not self.asked and (self._prompting is None or self._prompting.done())

    def add(self, item: "Updated | Asked") -> None:
        """Hand over what the agent says. End the turn of one that says more than anybody reads."""
        if self.items.qsize() < _MAX_ITEMS:
            self.items.put_nowait(item)
        elif self.items.qsize() == _MAX_ITEMS:
            self.items.put_nowait(ProtocolError("it says more than is read"))
            self.cancel()

    def prompt(self, texts: Sequence[str]) -> None:
        self.items, self.calls, self.announced, self.files, self.is_priced = Queue(), {}, {}, [], False
        self.connection.sessions[self.id] = self.connection.sessions.pop(self.id, self)  # used last
        blocks = [{"type": "text", "text": text} for text in texts]
        self._prompting = asyncio.create_task(self._prompt(blocks, self.items))

    async def _prompt(self, blocks: list[dict[str, str]], items: Queue[Item]) -> None:
        try:
            result = await self.connection.request("session/prompt", {"sessionId": self.id, "prompt": blocks}, None)
            used = as_object(result.get("usage"))
            items.put_nowait(Answered(stop_reason=str(result.get("stopReason", "")), used=used))
        except AcpRefused as error:
            items.put_nowait(Answered(problem=str(error)))
        except (AgentError, ProtocolError) as error:
            items.put_nowait(error)

    def decide(self, *, is_approved: bool) -> None:
        """Answer the first permission that it waits for."""
        if self.asked:
            asked, kinds = self.asked.pop(0), _ALLOWS if is_approved else _REJECTS
            chosen = next((each for kind in kinds for each in asked.options if each.get("kind") == kind), None)
            selected = {"outcome": "selected", "optionId": chosen["optionId"]} if chosen else {"outcome": "cancelled"}
            self.connection.respond(asked.id, {"outcome": selected})

    def cancel(self) -> None:
        """Stop the prompt, and what it asks."""
        self.connection.notify("session/cancel", {"sessionId": self.id})
        while self.asked:
            self.connection.respond(self.asked.pop(0).id, {"outcome": {"outcome": "cancelled"}})

    async def settle(self, within: float) -> None:
        """Wait until an earlier prompt is over; end a program that does not stop."""
        if self._prompting is None or self._prompting.done():
            return
        self.cancel()
        done, _ = await asyncio.wait({self._prompting}, timeout=within)
        if not done:
            await self.connection.close()
            raise AgentError(FailureKind.TRANSIENT, "the agent did not stop its last turn")


class AcpConnection:
    """A running program."""

    def __init__(self, process: Process) -> None:
        self.sessions: dict[str, Session] = {}
        self._process = process
        self._ids = count(1)
        self._requests: dict[int, Future[dict[str, Any]]] = {}
        self._can_load = False
        self.has_ended = False
        self._reading = asyncio.create_task(self._read())

    async def initialize(self) -> None:
        about = {
            "protocolVersion": _PROTOCOL_VERSION,
            "clientCapabilities": {"fs": {"readTextFile": False, "writeTextFile": False}, "terminal": False},
            "clientInfo": {"name": "palaver", "version": __version__},
        }
        found = await self.request("initialize", about)
        if found.get("protocolVersion") != _PROTOCOL_VERSION:
            await self.close()
            raise ProtocolError(f"it speaks another version of the protocol than {_PROTOCOL_VERSION}")
        self._can_load = as_object(found.get("agentCapabilities")).get("loadSession") is True

    async def create(self, folder: str) -> Session:
        found = await self.request("session/new", {"cwd": folder, "mcpServers": []})
        if not isinstance(session := found.get("sessionId"), str) or not session:
            raise ProtocolError("it begins a session without an id")
        return self._add(session)

    async def load(self, session: str, folder: str) -> Session | None:
        """Return a session of an earlier run; None if the agent cannot, or no longer has it."""
        if not self._can_load:
            return None
        loaded = self._add(session)
        try:
            await self.request("session/load", {"sessionId": session, "cwd": folder, "mcpServers": []})
        except AcpRefused:
            del self.sessions[session]
            return None
        return loaded

    def _add(self, session: str) -> Session:
        self.sessions.pop(session, None)
        # An agent that can load sessions still has them, and any other reads the conversation again.
        idle = [each.id for each in self.sessions.values() if each.is_idle]
        for oldest in idle[: max(0, len(self.sessions) + 1 - _MAX_SESSIONS)]:
            del self.sessions[oldest]
        self.sessions[session] = made = Session(id=session, connection=self)
        return made

    async def request(
        self, method: str, params: Mapping[str, Any], within: float | None = _REQUEST_TIMEOUT_SECONDS
    ) -> dict[str, Any]:
        """Return the result. Raises AcpRefused for an error, AgentError if the program ends, and ProtocolError."""
        if self.has_ended:
            raise AgentError(FailureKind.TRANSIENT, "the program has ended")
        number = next(self._ids)
        self._requests[number] = answer = asyncio.get_running_loop().create_future()
        self._write({"id": number, "method": method, "params": params})
        try:
            async with asyncio.timeout(within):
                return await answer
        except TimeoutError:
            raise AgentError(FailureKind.TRANSIENT, f"the agent did not answer {method}") from None
        finally:
            self._requests.pop(number, None)

    def notify(self, method: str, params: Mapping[str, Any]) -> None:
        self._write({"method": method, "params": params})

    def respond(self, number: object, result: Mapping[str, Any]) -> None:
        self._write({"id": number, "result": result})

    def _refuse(self, number: object, code: int, why: str) -> None:
        self._write({"id": number, "error": {"code": code, "message": why}})

    async def close(self) -> None:
        self._reading.cancel()
        with suppress(asyncio.CancelledError):
            await self._reading

    def _write(self, message: Mapping[str, Any]) -> None:
        self._process.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")

    async def _read(self) -> None:
        error: AgentError | ProtocolError | None = None
        try:
            while (line := await self._process.line()) is not None:
                self._handle(_parse(line))
        except ProtocolError as wrong:
            error = wrong
        finally:
            self.has_ended = True
            code = await self._process.end(at_once=True)
            error = error or AgentError(FailureKind.TRANSIENT, f"the program ended with code {code}")
            for answer in self._requests.values():
                if not answer.done():
                    answer.set_exception(error)

    def _handle(self, message: Mapping[str, Any]) -> None:
        match message:
            case {"method": "session/update", "params": {"sessionId": str(session), "update": update}}:
                if found := self.sessions.get(session):
                    found.add(Updated(update=as_object(update)))
            case {"method": "session/request_permission", "id": number, "params": {"sessionId": str(session), **asked}}:
                self._ask(session, number, asked)
            case {"method": str(), "id": number}:
                self._refuse(number, _METHOD_NOT_FOUND, "this client does not offer it")
            case {"method": str()}:
                pass
            case {"id": int(number)} if answer := self._requests.get(number):
                _settle(answer, message)
            case _:
                pass

    def _ask(self, session: str, number: object, asked: Mapping[str, Any]) -> None:
        call, found = as_object(asked.get("toolCall")), self.sessions.get(session)
        if found is None or not call:
            self.respond(number, {"outcome": {"outcome": "cancelled"}})
            return
        given: Any = asked.get("options")
        options = tuple(map(as_object, given if isinstance(given, list) else ()))  # pyright: ignore[reportUnknownArgumentType]
        if not options or not all(isinstance(each.get(key), str) for each in options for key in ("optionId", "kind")):
            self._refuse(number, _INVALID_PARAMS, "a permission needs options, each with an optionId and a kind")
            return
        new = Asked(
            id=number,
            call=str(call.get("toolCallId", "")),
            described={name: value for name, value in call.items() if value is not None},
            options=options,
        )
        found.asked.append(new)
        found.add(new)


def _settle(answer: Future[dict[str, Any]], message: Mapping[str, Any]) -> None:
    if answer.done():
        return
    match message:
        case {"error": {"code": code, "message": str(reason)}}:
            kind = FailureKind.UNAUTHORIZED if code == _AUTH_REQUIRED else FailureKind.FATAL
            answer.set_exception(AcpRefused(kind, failure_detail(reason)))
        case {"result": result}:
            answer.set_result(as_object(result))
        case _:
            answer.set_exception(ProtocolError("an answer has neither a result nor an error"))


def _parse(line: bytes) -> Mapping[str, Any]:
    try:
        found: Any = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ProtocolError(f"a line of {len(line)} bytes is not JSON") from error
    if not as_object(found):
        raise ProtocolError(f"a line of {len(line)} bytes is not a JSON object")
    return as_object(found)


def as_object(found: Any) -> dict[str, Any]:  # noqa: ANN401 - any JSON
    """Return a JSON object; an empty one in the place of anything else."""
    return cast("dict[str, Any]", found) if isinstance(found, dict) else {}
