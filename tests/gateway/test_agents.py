"""Agents as a configuration wants them."""

import asyncio
import sys
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from palaver.agents.echo import EchoAgent
from palaver.agents.external import ExternalAgent
from palaver.config.effective import effective_settings
from palaver.config.loader import load, load_with_sources
from palaver.config.model import Config
from palaver.gateway.agents import AgentPool, cost_warnings, price_warnings
from palaver.model.errors import InvalidInput
from palaver.protocols.agent import Final
from tests.agents.helpers import asked, events
from tests.cli.processes import Place

CODE = """
import json, os, sys
for line in sys.stdin:
    text = f"{os.environ['WORD']} {sorted(os.environ)}"
    print(json.dumps({"type": "final", "id": json.loads(line)["id"], "text": text}), flush=True)
"""


def program(word: str) -> str:
    """The configuration of a program that says what it sees of the environment."""
    Path("agent.py").write_text(CODE)
    command = f"command: ['{sys.executable}', -S, agent.py]"
    return f"agent: {{name: program, {command}, folder: ., environment: {{WORD: '{word}'}}}}"


def configured(text: str, **environ: str) -> Config:
    Path("own.yaml").write_text(text)
    return load(Path(), {"PALAVER_CONFIG": "own.yaml", **environ})


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


async def test_what_stays_as_it_was_stays_the_same_agent() -> None:
    agency = AgentPool()
    first = agency.agents(configured("agent: {name: echo}\nprofiles: {work: {agent: {name: echo, streams: true}}}"))
    again = agency.agents(configured("agent: {name: echo}\nprofiles: {work: {agent: {name: echo, streams: false}}}"))
    assert first.usual is again.usual is again.of("work")
    assert first.of("work") is not again.of("work")
    await agency.close()


def _children() -> set[psutil.Process]:
    """Servers of other tests may be among them."""
    return set(psutil.Process().children())


async def test_a_program_is_kept_ends_when_it_is_replaced_and_with_the_gateway(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("API_KEY", "secret")
    agency, before = AgentPool(), _children()
    config = configured(program("${SAID}"), SAID="hello")
    assert "hello" not in repr(config)
    for _ in range(2):
        (last,) = await events(agency.agents(config).usual, asked("hi"))
        assert isinstance(last, Final)
        assert last.text.startswith("hello")
        assert "API_KEY" not in last.text
        assert len(_children() - before) == 1
    agency.agents(configured("agent: {name: echo}"))
    assert len(_children() - before) <= 1
    await agency.close()
    assert _children() <= before


@pytest.mark.parametrize(("folder", "place"), [("home", "{}/home"), ("nowhere", "/")])
async def test_a_program_does_not_run_where_the_gateway_was_started(
    folder: str, place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That may be a stranger's folder, with an agent.py of theirs in it."""
    (tmp_path / "home").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / folder))
    code = CODE.replace("os.environ['WORD']", "os.getcwd()")
    (tmp_path / "agent.py").write_text(code)
    agency = AgentPool()
    config = configured(f"agent: {{name: program, command: ['{sys.executable}', -S, '{tmp_path}/agent.py']}}")
    (last,) = await events(agency.agents(config).usual, asked("hi"))
    await agency.close()
    assert isinstance(last, Final)
    assert last.text.startswith(f"{place.format(tmp_path)} [")


async def test_where_one_cannot_be_had_nothing_changes() -> None:
    agency = AgentPool()
    usual = agency.agents(configured("agent: {name: echo}")).usual
    with pytest.raises(InvalidInput):
        agency.agents(configured("agent: {name: local, file: nowhere.gguf}"))
    assert agency.agents(configured("agent: {name: echo}")).usual is usual


class Stubborn:
    def __init__(self, **_options: object) -> None: ...

    async def close(self) -> None:
        raise RuntimeError("secret")


class Endless(Stubborn):
    async def close(self) -> None:
        while True:
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(1)
                return


@pytest.mark.parametrize("kind", [Stubborn, Endless])
async def test_one_that_does_not_close_keeps_no_other_from_it(
    kind: type[Stubborn], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    agency, before = AgentPool(), _children()
    monkeypatch.setattr("palaver.gateway.agents.EchoAgent", kind)
    monkeypatch.setattr("palaver.gateway.agents._CLOSE_TIMEOUT_SECONDS", 0.5)
    await events(
        agency.agents(configured(f"{program('x')}\nprofiles: {{a: {{agent: {{name: echo}}}}}}")).usual, asked("hi")
    )
    await agency.close()
    assert _children() <= before
    assert [getattr(record, "action", "") for record in caplog.records] == ["agent.close_error"]
    assert "secret" not in caplog.text


def test_what_an_agent_learns_in_secret_is_not_shown() -> None:
    Path("own.yaml").write_text("agent: {name: http, url: 'https://me:x@y/', headers: {Authorization: sesame}}")
    shown = {
        row.field: row.value for row in effective_settings(load_with_sources(Path(), {"PALAVER_CONFIG": "own.yaml"}))
    }
    assert (shown["agent.url"], shown["agent.headers.Authorization"]) == ("https://me:(set)@y/", "(set)")


async def test_every_kind_can_be_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("palaver.agents.local._SHARED_LIBRARIES", ())
    texts = {
        "echo": EchoAgent,
        "local": ExternalAgent,
        "http, url: 'http://127.0.0.1:1', headers: {A: b}": ExternalAgent,
        "program, command: [x]": ExternalAgent,
    }
    for text, kind in texts.items():
        assert isinstance(AgentPool().agents(configured(f"agent: {{name: {text}}}")).usual, kind)


def test_a_program_answers_in_a_real_gateway(tmp_path: Path) -> None:
    place = Place(tmp_path)
    place.configure(program("a parrot"))
    try:
        answer = place.run("chat", says="hello\n")
        assert "a parrot" in answer.stdout, answer.stderr
    finally:
        place.close()


def test_a_limit_on_money_over_a_model_of_unknown_price_says_so() -> None:
    def warnings(model: str, caps: str) -> list[str]:
        return price_warnings(configured(f"agent: {{name: model, model: '{model}', key: k}}\ncaps: {caps}"))

    unknown = warnings("openai:nobody-knows", "{member: {day: {cost: 5}}}")
    assert [line.partition(",")[0] for line in unknown] == ["The price of openai:nobody-knows is unknown"]
    assert not warnings("openai:nobody-knows", "{day: {tokens: 5}}")
    assert not warnings("openai:gpt-5-mini", "{day: {cost: 5}}")


def test_a_limit_on_money_over_an_agent_that_counts_for_itself_says_so() -> None:
    for agent in ("{name: program, command: [cat]}", "{name: http, url: 'https://agent.example.org'}"):
        warned = cost_warnings(configured(f"agent: {agent}\ncaps: {{day: {{cost: 5}}}}"))
        assert [line.rpartition(" reports its own cost.")[2] != line for line in warned] == [True], agent
        assert not cost_warnings(configured(f"agent: {agent}\ncaps: {{day: {{tokens: 5}}}}"))
    assert not cost_warnings(configured("caps: {day: {cost: 5}}")), "echo costs nothing"
