"""A shell without the variables that the configuration names, beside a gateway that has them."""

import io
import os
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main

from palaver.cli.main import GROUPS, example_for, main
from tests.cli.processes import Place
from tests.ports import free_port

_AGENT = """
import json, os, sys
for line in sys.stdin:
    print(json.dumps({"type": "final", "id": json.loads(line)["id"], "text": os.environ["TOKEN"]}), flush=True)
"""
_CONFIG = """
agent: {{name: program, command: ["{python}", "-S", "{agent}"], environment: {{TOKEN: "${{PROGRAM_TOKEN}}"}}}}
profiles:
  work: {{agent: {{name: http, url: "http://127.0.0.1:9", headers: {{Authorization: "Bearer ${{AGENT_TOKEN}}"}}}}}}
voice: {{transcription: {{model: whisper-1, key: "${{VOICE_KEY}}"}}}}
tools: {{servers: {{notes: {{url: "http://127.0.0.1:9", headers: {{Authorization: "Bearer ${{TOOL_TOKEN}}"}}}}}}}}
platforms:
  telegram: {{accounts: {{bot: {{token: "${{BOT_TOKEN}}", api_url: "http://127.0.0.1:9"}}}}}}
  webhook: {{accounts: {{hook: {{secret: "${{HOOK_SECRET}}"}}}}}}
web: {{port: {port}}}
"""
_VARIABLES = {
    "PROGRAM_TOKEN": "Here I am.",
    "AGENT_TOKEN": "sk-1",
    "VOICE_KEY": "v",
    "TOOL_TOKEN": "t",
    "BOT_TOKEN": "123:abcdefghijklmnopqrstuvwxyz",
    "HOOK_SECRET": "whsec_" + "c2VjcmV0" * 6,
}
_MISSING = "needs an environment variable that is not set"
_READ_SECRETS = ("up", "config check", "platforms check")
"""Commands that need what the gateway needs. They name what is missing."""
_OTHER_ARGUMENTS = {
    "relay join": "ws://127.0.0.1:9 CODE",
    "service install": "--print",
    "doctor": "",
    "migrate": "postgresql://palaver@127.0.0.1:9/palaver",
}


def _commands(command: Any, words: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    inner = getattr(command, "commands", {})
    if not inner or command.invoke_without_command:
        yield words
    for name, each in inner.items():
        yield from _commands(each, (*words, name))


def _all_commands() -> Iterator[list[str]]:
    """Every command, as its own example calls it."""
    for name, group in GROUPS.items():
        for words in _commands(typer.main.get_command(group.app_with()), (name,)):
            said = " ".join(words)
            example = example_for(words).removeprefix("palaver ")
            yield [*words, *shlex.split(_OTHER_ARGUMENTS[said])] if said in _OTHER_ARGUMENTS else shlex.split(example)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    """A running gateway with all variables, and this process without any."""
    made = Place(tmp_path)
    (tmp_path / "agent.py").write_text(_AGENT)
    made.configure(_CONFIG.format(python=sys.executable, agent=tmp_path / "agent.py", port=free_port()))
    for name, text in _VARIABLES.items():
        monkeypatch.setenv(name, text)
    try:
        made.up()
        environment = made.environment
        for name in list(os.environ):
            monkeypatch.delenv(name)
        for name in ("PALAVER_HOME", "PALAVER_CONFIG"):
            monkeypatch.setenv(name, environment[name])
        monkeypatch.setenv("HOME", str(tmp_path / "user"))
        monkeypatch.chdir(tmp_path)
        yield made
    finally:
        made.close()


@pytest.mark.usefixtures("place")
def test_commands_beside_a_gateway_need_none_of_its_variables(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO()))
    crashed = dict[str, str]()
    needing = set[str]()
    for words in _all_commands():
        command = " ".join(words)
        try:
            main(words)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - all of them are named
            crashed[command] = repr(error)
        said = "".join(capsys.readouterr())
        needing |= {command} if _MISSING in said else set()
    assert crashed == {}
    assert {command for command in needing if not command.startswith(_READ_SECRETS)} == set()
    assert len(needing) == len(_READ_SECRETS)


@pytest.mark.usefixtures("place")
def test_a_conversation_beside_a_gateway_needs_none_of_its_variables(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["chat", "-m", "Where are you?"]) == 0
    assert capsys.readouterr().out == "Here I am.\n"


@pytest.mark.parametrize("words", [("up",), ("chat", "-m", "hi"), ("config", "check")])
def test_what_serves_says_at_the_start_what_is_missing(words: tuple[str, ...], tmp_path: Path) -> None:
    place = Place(tmp_path)
    place.configure("agent: {name: model, model: 'openai:x', key: '${MODEL_KEY}'}\n")
    done = place.run(*words)
    place.close()
    assert done.returncode == 2
    assert f"agent.key {_MISSING}: 'MODEL_KEY'" in done.stdout + done.stderr


def test_what_is_no_secret_is_needed_where_it_is_read(tmp_path: Path) -> None:
    place = Place(tmp_path)
    place.configure("timezone: '${ZONE}'\n")
    done = place.run("sessions", "list")
    place.close()
    assert (done.returncode, f"timezone {_MISSING}: 'ZONE'" in done.stderr) == (2, True)
