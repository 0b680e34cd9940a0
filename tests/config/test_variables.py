"""Settings from environment variables alone: each of them, over any file, with mistakes that name the variable."""

from pathlib import Path

import pytest

from palaver.config.effective import effective_settings
from palaver.config.errors import MalformedConfig
from palaver.config.loader import Loaded, load_with_sources
from palaver.config.validation import format_value
from palaver.model.access import AccessRole, Grant
from palaver.model.reset import ResetMode
from palaver.platforms.plugins import PLATFORMS, load_factory


@pytest.fixture
def here(tmp_path: Path) -> Path:
    (tmp_path / "own.yaml").write_text("busy: steer\nreset: {mode: daily, at_hour: 5}\n")
    return tmp_path


def loaded(here: Path, **variables: str) -> Loaded:
    environ = {"PALAVER_CONFIG": str(here / "own.yaml"), "PALAVER_HOME": str(here), **variables}
    return load_with_sources(here, environ, PLATFORMS, load_factory)


def test_every_setting_can_be_a_variable(here: Path) -> None:
    plain = loaded(here)
    settings = list(effective_settings(plain))
    names = {each.field: f"PALAVER_{each.field.upper().replace('.', '__')}" for each in settings}
    variables = {names[each.field]: format_value(each.value) for each in settings}
    changed = loaded(here, **variables)
    assert changed.config == plain.config
    sources = {each.field: str(each.position) for each in effective_settings(changed)}
    assert sources | {"data_dir": names["data_dir"]} == sources | names


def test_variables_win_over_files_field_by_field(here: Path) -> None:
    variables = {
        "PALAVER_RESET__MODE": "both",
        "PALAVER_GRANTS": "[{platform: telegram, user_id: 007, role: owner}]",
        "PALAVER_PLATFORMS__TELEGRAM__CHATS__-100__BUSY": "collect",
        "PALAVER_PLATFORMS__TELEGRAM__ACCOUNTS__Helper__TOKEN": "12345678:" + "a" * 35,
        "PALAVER_PROFILES": "{work: {serves: [{platform: web}]}}",
        "PALAVER_PROFILES__WORK__TIMEZONE": "Europe/Berlin",
        "PALAVER_LOG__LEVEL": "",
        "PALAVER_SEEDS": "12",
        "PALAVER_TOKEN": "pal_x",
        "OTHER__THING": "x",
    }
    config = loaded(here, **variables).config
    assert (config.reset.mode, config.reset.at_hour, config.busy.value) == (ResetMode.BOTH, 5, "steer")
    assert Grant(platform="telegram", user_id="007", role=AccessRole.OWNER) in config.settings().grants
    assert config.platforms["telegram"].chats["-100"].busy.value == "collect"
    assert list(config.platforms["telegram"].accounts) == ["Helper"]
    assert (str(config.profiles["work"].timezone), len(config.profiles["work"].serves)) == ("Europe/Berlin", 1)
    assert "aaaa" not in repr(list(effective_settings(loaded(here, **variables))))


def test_a_whole_agent_comes_from_the_environment(here: Path) -> None:
    variables = {"NAME": "model", "MODEL": "openai:x", "KEY": "sesame", "INSTRUCTIONS": "[Be]\nbrief ${x}."}
    agent = loaded(here, **{f"PALAVER_AGENT__{name}": text for name, text in variables.items()}).config.agent
    facts = agent.facts()
    assert (facts["model"], facts["key"], facts["instructions"]) == ("openai:x", "sesame", "[Be]\nbrief ${x}.")
    assert "sesame" not in repr(agent)


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("PALAVER_BUSY", "x", "PALAVER_BUSY: busy cannot be 'x'. Use queue"),
        ("PALAVER_RESET__MOD", "idle", "PALAVER_RESET__MOD: reset has an unknown field 'mod'. Did you mean mode?"),
        ("PALAVER_TIMEZON", "UTC", "PALAVER_TIMEZON: Unknown field 'timezon'. Did you mean timezone?"),
        ("PALAVER_RESET", "idle", "PALAVER_RESET: reset cannot be 'idle'. Use a section of mode"),
        ("PALAVER_GRANTS", "[{platform: &a x}]", "PALAVER_GRANTS: grants is not plain YAML: 'an anchor or alias'"),
        ("PALAVER_LOG__LEVEL", "a\nb", "PALAVER_LOG__LEVEL: log.level has an invisible character: 'U+000A'"),
        ("PALAVER_PLATFORMS__TELEGRM__BUSY", "queue", "platforms.telegrm: unknown platform 'telegrm'"),
        ("PALAVER_STORE", "redis://me:sesame@db", "PALAVER_STORE: store cannot be 'redis://me:(set)@db'"),
    ],
)
def test_a_mistake_names_its_variable(name: str, text: str, said: str, here: Path) -> None:
    with pytest.raises(MalformedConfig) as caught:
        loaded(here, **{name: text})
    assert said in str(caught.value)
    assert "sesame" not in str(caught.value)
