"""The page about agents: what it shows can be written, and makes agents."""

import re
import sys
from pathlib import Path

import pytest
from pydantic import SecretStr

from palaver.agents.fallback import FallbackAgent
from palaver.agents.model.agent import ModelAgent
from palaver.agents.model.costs import Costs
from palaver.agents.model.options import ModelOptions, make_model_agent
from palaver.config.errors import MalformedConfig
from palaver.config.loader import load
from palaver.model.errors import InvalidInput
from palaver.protocols.installation import MissingPackages, install_line
from palaver.settings.agents import ModelAgentConfig

PAGE = Path(__file__).parents[2] / "docs/agents.md"
EXAMPLES = re.findall(r"^```yaml\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE)
ENVIRON = {"PALAVER_CONFIG": "own.yaml", "OPENAI_API_KEY": "sk-of-the-page", "ANTHROPIC_API_KEY": "sk-of-the-page"}


@pytest.mark.parametrize("example", [each for each in EXAMPLES if each.startswith("agent:")])
def test_what_the_page_shows_makes_an_agent(example: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("key", "told"):
        Path(name).write_text(f"the-{name}\n")
    Path("own.yaml").write_text(example.replace("~/.secrets/anthropic", "key").replace("~/palaver/agent.md", "told"))
    choice = load(Path(), ENVIRON).agent
    assert isinstance(choice, ModelAgentConfig)
    wanted = ModelOptions.of(choice.facts())
    assert isinstance(make_model_agent(wanted), FallbackAgent if choice.fallback else ModelAgent)
    assert wanted.key == ("the-key" if choice.key_file else "sk-of-the-page" if choice.key else None)
    assert wanted.instructions.endswith("the-told") is (choice.instructions_file is not None)


@pytest.mark.parametrize("example", [each for each in EXAMPLES if "{input: " in each])
def test_the_prices_of_the_page_are_prices(example: str) -> None:
    assert len(Costs.of(example.encode(), is_custom_server=False).own) == 2


def test_a_key_file_that_is_not_there_says_so(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="cannot be read"):
        ModelAgentConfig(model="openai:x", key_file=tmp_path / "nowhere").facts()


def test_a_key_is_in_nothing_that_a_choice_says_of_itself() -> None:
    choice = ModelAgentConfig(model="openai:x", key=SecretStr("sk-secret"))
    assert "sk-secret" not in f"{choice!r} {choice} {choice.model_dump_json()} {ModelOptions.of(choice.facts())!r}"


def test_a_project_cannot_say_who_answers(tmp_path: Path) -> None:
    """It could else send what is said, and the key, to an address of its own."""
    model = "{name: model, model: 'openai:x', base_url: 'https://thief.example'}"
    (tmp_path / "palaver.yaml").write_text(f"agent: {model}\nprofiles: {{a: {{agent: {model}}}}}")
    with pytest.raises(MalformedConfig) as caught:
        load(tmp_path, {})
    fields = [mistake.field for mistake in caught.value.mistakes]
    assert fields == ["agent.base_url", "agent.model", "agent.name", "profiles"]
    assert all(mistake.found == "in a project's file" for mistake in caught.value.mistakes)


@pytest.mark.parametrize(
    ("model", "extra"),
    [("openai:x", "openai"), ("ollama:x", "openai"), ("anthropic:x", "anthropic"), ("google:x", "google")],
)
def test_an_extra_that_is_not_installed_is_named(model: str, extra: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith(("palaver.agents.model.", "pydantic_ai"))]:
        if name != "palaver.agents.model.options":
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "pydantic_ai", None)
    with pytest.raises(MissingPackages, match="which is not installed") as caught:
        make_model_agent(ModelOptions(model=model, key="k"))
    assert (caught.value.extra, caught.value.line) == (extra, install_line(extra))
