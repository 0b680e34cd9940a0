"""A third party adds an agent by installing it."""

import shutil
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from palaver.agents.plugins import agent_options, make_agent
from palaver.config.errors import MalformedConfig
from palaver.config.loader import load, load_with_sources
from palaver.model.errors import BadArgument
from palaver.protocols.agent import Final
from palaver.settings.agents import EchoAgentConfig, PluginAgentConfig
from tests.agents.helpers import asked, events
from tests.cli.processes import Place

EXAMPLE = Path(__file__).parents[2] / "docs/examples/agents/parrot_agent.py"
ENVIRON = {"PALAVER_CONFIG": "own.yaml"}


def install(folder: Path) -> None:
    """As `pip install` would: its metadata, and a module that nobody has imported yet."""
    facts = folder / "parrot_agent-1.0.dist-info"
    facts.mkdir(parents=True)
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: parrot-agent\nVersion: 1.0\n")
    (facts / "entry_points.txt").write_text(
        "[palaver.agents]\nparrot = parrot_agent:Parrot\nwrong = parrot_agent:Options\nbroken = parrot_agent:Nobody\n"
        "echo = parrot_agent:Parrot\n"
    )
    shutil.copy(EXAMPLE, folder)


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    install(tmp_path / "site")
    monkeypatch.setattr(sys, "path", [str(tmp_path / "site"), *sys.path])
    monkeypatch.delitem(sys.modules, "parrot_agent", raising=False)
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    sys.modules.pop("parrot_agent", None)


async def test_it_is_made_with_the_options_of_its_own_model() -> None:
    agent = make_agent("parrot", {"times": "2"})
    assert await events(agent, asked("hi")) == [Final(text="hi! hi!")]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("gull", "No agent plugin named 'gull' is installed. Use broken, echo, parrot, wrong"),
        (
            "wrong",
            r"loads 'Options', which is not an agent factory. Use an object with options \(a pydantic model\) and make",
        ),
        ("broken", r"cannot be loaded \('AttributeError"),
    ],
)
def test_what_cannot_be_had_is_said_in_words(name: str, words: str) -> None:
    with pytest.raises(BadArgument, match=words):
        agent_options(name)


@pytest.mark.parametrize("made", [None, RuntimeError("secret")])
def test_what_is_no_agent_is_said_in_words(made: Exception | None, monkeypatch: pytest.MonkeyPatch) -> None:
    agent_options("parrot")

    def make(_options: object) -> None:
        if made:
            raise made

    monkeypatch.setattr(sys.modules["parrot_agent"].Parrot, "make", make)
    with pytest.raises(BadArgument, match=r"failed to make an agent \('(NoneType|RuntimeError)'\)"):
        make_agent("parrot", {})


def test_the_configuration_names_it_and_imports_nothing() -> None:
    Path("own.yaml").write_text("agent: {name: parrot, times: 3}")
    choice = load(Path(), ENVIRON).agent
    assert isinstance(choice, PluginAgentConfig)
    assert choice.facts() == {"name": "parrot", "times": "3"}
    assert repr(choice) == "PluginAgentConfig(name='parrot')"
    assert "parrot_agent" not in sys.modules
    Path("own.yaml").write_text("agent: {name: echo}")
    assert isinstance(load(Path(), ENVIRON).agent, EchoAgentConfig)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "agent: {name: gull}",
            "own.yaml:1: agent.name cannot be 'gull'. Use guide, model, local, program, acp, http",
        ),
        ("agent:\n  name: parrot\n  tims: 3", "own.yaml:3: agent has an unknown option 'tims'. Did you mean times?"),
        ("agent:\n  name: parrot\n  times: 11", "own.yaml:3: agent.times cannot be '11'. Use less than"),
        ("profiles: {a: {agent: {name: wrong}}}", "own.yaml:1: profiles.a.agent.name: The agent plugin"),
    ],
)
def test_a_mistake_says_where_it_is(text: str, words: str) -> None:
    Path("own.yaml").write_text(text)
    with pytest.raises(MalformedConfig) as caught:
        load_with_sources(Path(), ENVIRON, agent_options=agent_options)
    assert str(caught.value).startswith(words)


def test_it_answers_in_a_real_gateway(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(place / "site"))
    with closing(Place(place)) as here:
        here.configure("agent: {name: parrot, times: 2}")
        assert "hello! hello!" in here.run("chat", says="hello\n").stdout
