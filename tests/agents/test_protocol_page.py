"""The transcript on the page about the protocol is played, word by word."""

import json
import re
import sys
from pathlib import Path

import pytest

from palaver.agents.external import ExternalAgent
from palaver.agents.process import ProcessPool
from palaver.config.loader import load
from palaver.model.session import ModelOverride
from palaver.model.transcript import Role, ToolCall
from palaver.model.turn import Usage
from palaver.model.view import Message
from palaver.protocols.agent import Excerpt, Final, TextDelta, ToolCalled, ToolReturned, UsageReport
from tests.agents.helpers import Tools, asked, events

PAGE = Path(__file__).parents[2] / "docs/agent-protocol.md"
PLAYER = """
import json, sys
for line in open(sys.argv[1], encoding="utf-8"):
    who, _, said = line.partition(" ")
    if who == "\\u2190":
        print(said, end="", flush=True)
    else:
        heard = json.loads(sys.stdin.readline())
        assert heard == json.loads(said), heard
sys.stdin.read()
"""


@pytest.mark.parametrize("page", [PAGE, PAGE.with_name("local-model.md")], ids=lambda page: page.name)
def test_the_examples_of_the_pages_are_right(page: Path, tmp_path: Path) -> None:
    examples = re.findall(r"^```yaml\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE)
    assert examples
    for example in examples:
        (tmp_path / "own.yaml").write_text(example.replace("name: parrot, times: 2", "name: echo"))
        environ = dict.fromkeys(re.findall(r"\$\{(\w+)\}", example), "x")
        load(tmp_path, {"PALAVER_CONFIG": "own.yaml", **environ})


@pytest.fixture
def transcript(tmp_path: Path) -> Path:
    found = re.findall(r"^```jsonl\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    (tmp_path / "played.txt").write_text("".join(found))
    return tmp_path / "played.txt"


async def test_the_conversation_on_the_page_is_true(transcript: Path) -> None:
    command = [sys.executable, "-I", "-S", "-c", PLAYER, str(transcript)]
    agent = ExternalAgent(ProcessPool(command=command, environ={}))
    call = ToolCall("a", "look", json.dumps({"query": "seeds"}))
    question = "When did we talk about seeds?"
    assert await events(agent, asked(question, tools=Tools())) == [
        ToolCalled(calls=(call,)),
        ToolReturned(call="a", text=f"look found {call.arguments}"),
        TextDelta("Last "),
        TextDelta("week."),
        UsageReport(Usage(model="grey", input_tokens=52, output_tokens=4)),
        Final(text="Last week."),
    ]
    assert (agent.models(), agent.context_window(None)) == ([ModelOverride(model="grey")], 8000)
    messages = (Message(Role.USER, question), Message(Role.ASSISTANT, "Last week."))
    gist = await agent.summarise(Excerpt(session="s", messages=messages, focus="seeds"))
    assert gist.text == "They talked about seeds last week."
    await agent.close()
