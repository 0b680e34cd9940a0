"""Loading: the user over the project over the defaults; mistakes that say where they are."""

import os
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from textwrap import indent
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaver.config.errors import MalformedConfig, Mistake
from palaver.config.essentials import FIELDS, Essentials, load_essentials
from palaver.config.loader import load, load_with_sources
from palaver.config.model import Config
from palaver.config.reader import parse
from palaver.config.variables import resembles
from palaver.engine.settings import Settings, follow_moves
from palaver.model.access import AccessRole, Effect, Grant
from palaver.model.key import ChatSelector, DmScope, GroupScope, ProfileRule, Scope
from palaver.model.reset import ResetMode, ResetPolicy
from palaver.model.source import Source
from palaver.model.tools import ApprovalMode, ToolRules
from palaver.model.turn import BusyMode
from palaver.platforms.plugins import PLATFORMS
from palaver.settings.agents import EchoAgentConfig, GuideAgentConfig, ModelAgentConfig
from palaver.settings.quotas import API_OWNER, TERMINAL_OWNER, WEB_OWNER
from tests.echo import guided
from tests.needs import without_rights


class Place:
    """A folder with a project's file in it, and a user's file elsewhere."""

    def __init__(self, folder: Path) -> None:
        self.project = folder / "project" / "palaver.yaml"
        self.user = folder / "config" / "palaver" / "palaver.yaml"
        self.environ = {"XDG_CONFIG_HOME": str(folder / "config"), "PALAVER_HOME": str(folder / "home")}
        self.project.parent.mkdir()
        self.user.parent.mkdir(parents=True)

    def load(self, user: str | None = None, project: str | None = None, **environ: str) -> Config:
        for file, text in ((self.user, user), (self.project, project)):
            if text is not None:
                file.write_text(text, encoding="utf-8")
        return load_with_sources(self.project.parent, {**self.environ, **environ}, PLATFORMS).config

    def mistakes(self, user: str | None = None, project: str | None = None, **environ: str) -> Sequence[Mistake]:
        with pytest.raises(MalformedConfig) as caught:
            self.load(user, project, **environ)
        return caught.value.mistakes

    def mistake(self, user: str | None = None, project: str | None = None, **environ: str) -> Mistake:
        (mistake,) = self.mistakes(user, project, **environ)
        return mistake


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


@pytest.mark.parametrize(
    ("user", "project", "environ"),
    [
        ("timezone: Europe/Berlin", None, {}),
        ("store: there/palaver.db", None, {"PALAVER_TIMEZONE": "Asia/Tokyo"}),
        ("data_dir: there\nbusy: interrupt", None, {"PALAVER_HOME": ""}),
        ("data_dir: there\nstore: ${URL}", None, {"URL": "postgresql://there/palaver"}),
        ("timezone: Europe/Berlin", "titles: false", {"PALAVER_store": "other.db"}),
        ("", None, {"PALAVER_DATA_DIR": "there"}),
    ],
)
def test_the_store_and_the_zone_are_found_alone_as_in_the_whole(
    place: Place, user: str, project: str | None, environ: dict[str, str]
) -> None:
    whole = place.load(user, project, **environ)
    found = load_essentials(place.project.parent, {**place.environ, **environ})
    assert found == Essentials(store=whole.store, timezone=whole.timezone)


@pytest.mark.parametrize(
    ("user", "project", "environ"),
    [
        ("timezone: Mars/Olympus", None, {}),
        ("stor: there.db", None, {}),
        ("store: mysql://there", None, {}),
        ("store: ${URL}", None, {}),
        ("data_dir: ''", None, {"PALAVER_HOME": ""}),
        ("store: [there.db]", None, {}),
        ("store: 'a", None, {}),
        ("", "store: there.db", {}),
        ("", None, {"PALAVER_STROE": "there.db"}),
        ("", None, {"PALAVER_CONFIG": "missing.yaml"}),
    ],
)
def test_what_could_name_another_store_is_refused_with_all_that_the_whole_says(
    place: Place, user: str, project: str | None, environ: dict[str, str]
) -> None:
    whole = [str(each) for each in place.mistakes(user, project, **environ)]
    with pytest.raises(MalformedConfig) as caught:
        load_essentials(place.project.parent, {**place.environ, **environ})
    assert list(map(str, caught.value.mistakes)) == whole


def test_no_setting_resembles_those_that_are_found_alone() -> None:
    assert {name for name in Config.model_fields if resembles(name, FIELDS)} == {*FIELDS}


# Nothing configured


def test_with_nothing_configured_the_settings_are_the_engines_own(place: Place) -> None:
    with guided():
        config = place.load()
    caps, tools = config.settings().caps, config.settings().tools
    assert config.settings() == Settings(
        config=config, grants=(TERMINAL_OWNER, WEB_OWNER, API_OWNER), caps=caps, tools=tools
    )
    assert ToolRules(private=tools.private) == tools
    assert not any(caps.of(role) for role in (None, *AccessRole))
    assert config.data_dir == Path(place.environ["PALAVER_HOME"])
    assert config.store == str(config.data_dir / "palaver.db")
    assert config.agent == GuideAgentConfig()
    assert (config.log.level, config.log.format, config.metrics.port) == ("info", "human", None)


def test_without_palaver_home_the_data_is_where_the_machine_keeps_it(place: Place, tmp_path: Path) -> None:
    environ = {"XDG_CONFIG_HOME": str(tmp_path), "XDG_DATA_HOME": "/xdg"}
    config = load(place.project.parent, environ)
    assert (config.data_dir, config.store) == (Path("/xdg/palaver"), "/xdg/palaver/palaver.db")


@pytest.mark.parametrize("text", ["", "\n", "# nothing\n", "---\n", "{}", "~", "\ufefftitles: true"])
def test_a_file_can_say_nothing(text: str, place: Place) -> None:
    assert place.load(user=text, project=text) == place.load(user="", project="")


# Who wins


def test_the_user_wins_over_the_project_field_by_field(place: Place) -> None:
    project = (
        "titles: false\nagent: {name: local, instructions: Speak of this project.}\n"
        "tools: {allowed: {search: never, read_file: never}}"
    )
    config = place.load(user="tools: {allowed: {search: ask}}", project=project)
    assert (config.titles, config.agent.name) == (False, "local")
    assert config.agent.facts()["instructions"] == "Speak of this project."
    assert config.tools.allowed == {"search": ApprovalMode.ASK, "read_file": ApprovalMode.NEVER}
    config = place.load(user="titles: true\nagent: {name: model, model: 'openai:x'}")
    assert (config.titles, config.agent.name) == (True, "model")
    assert config.agent.facts()["instructions"] == "Speak of this project."
    assert place.load(user="agent: {name: model, model: 'openai:x', instructions: Mine.}").agent.facts()[
        "instructions"
    ] == ("Mine.")
    assert place.load(user="agent: {name: echo, delay: 1s}").agent == EchoAgentConfig(delay=timedelta(seconds=1))
    assert place.load(user="", PALAVER_AGENT__NAME="echo").agent == EchoAgentConfig()


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("caps: {day: {tokens: 0}}", "caps"),
        ("profiles: {x: {serves: [{platform: telegram}]}}", "profiles"),
        ("scope: {group: shared}", "scope"),
        ("platforms: {telegram: {scope: {dm: shared}}}", "platforms"),
        ("kinds: {dm: {pairing: true}}", "kinds"),
        ("limits: {send_patience: 1s}", "limits"),
        ("pairing: true", "pairing"),
        ("busy: interrupt", "busy"),
        ("timezone: UTC", "timezone"),
        ("acknowledges: false", "acknowledges"),
        ("log: {level: debug}", "log"),
        ("metrics: {port: 80}", "metrics"),
        ("agent: {name: program, command: [rm]}", "agent.name"),
        ("agent: {base_url: 'https://evil.example'}", "agent.base_url"),
        ("agent: {instructions_file: /etc/passwd}", "agent.instructions_file"),
        ("tools: {allowed: {delete: always}}", "tools.allowed.delete"),
        ("tools: {allowed: {delete: ask}}", "tools.allowed.delete"),
        ("tools: {guest: all}", "tools.guest"),
    ],
)
def test_a_project_reroutes_weakens_and_spends_nothing(text: str, field: str, place: Place) -> None:
    mistakes = place.mistakes(user="agent: {name: model, model: 'openai:x'}", project=f"titles: true\n{text}")
    assert field in [mistake.field for mistake in mistakes]
    assert all("cannot be set in a project's file" in str(mistake) for mistake in mistakes)
    assert {str(mistake.position) for mistake in mistakes} == {f"{place.project}:2"}


def test_each_part_of_a_section_comes_from_the_narrowest_place_that_sets_it(place: Place) -> None:
    text = """
scope: {dm: per-person, group: per-user}
kinds: {group: {scope: {thread: per-user}}}
platforms: {telegram: {scope: {group: shared}, chats: {"7": {scope: {dm: per-chat}}}}}
"""
    settings = place.load(user=text).settings()
    source = Source(platform="telegram", chat_kind="group", chat_id="7")
    assert settings.scopes.find(source) == Scope(
        dm=DmScope.PER_CHAT, group=GroupScope.SHARED, thread=GroupScope.PER_USER
    )
    section = ("platforms", "telegram", "chats", "7")
    assert settings.scopes.locate(source, "dm")[0] == section
    assert settings.scopes.locate(source, "group")[0] == ("platforms", "telegram")
    assert settings.scopes.locate(source, "thread")[0] == ("kinds", "group")
    moved = follow_moves(settings, {("telegram:", None): {"7": "8"}})
    assert moved.scopes.find(replace(source, chat_id="8")) == settings.scopes.find(source)


def test_a_list_is_one_value(place: Place) -> None:
    config = place.load(
        user="profiles: {work: {serves: [{platform: irc}, {platform: sms}]}}",
        PALAVER_PROFILES__WORK__SERVES="[{platform: slack}]",
    )
    assert config.settings().profiles == (ProfileRule(profile="work", platform="slack"),)


def test_what_the_environment_says_of_this_run_wins_over_files(place: Place) -> None:
    config = place.load(user="data_dir: /elsewhere\nstore: /elsewhere.db", PALAVER_HOME="/run", PALAVER_STORE="run.db")
    assert (config.data_dir, config.store) == (Path("/run"), "run.db")


def test_one_file_in_both_places_is_the_users(place: Place) -> None:
    config = place.load(project="grants: [{platform: irc}]", PALAVER_CONFIG="palaver.yaml")
    assert Grant(platform="irc") in config.settings().grants


def test_a_project_lets_nobody_in(place: Place) -> None:
    mistake = place.mistake(project="titles: true\ngrants: [{platform: irc, role: owner}]")
    assert (mistake.position.file, mistake.position.line, mistake.field) == (place.project, 2, "grants")
    assert str(place.user) in mistake.allowed


# Paths


def test_paths_count_from_the_folder_of_their_file(place: Place) -> None:
    del place.environ["PALAVER_HOME"]
    folder = place.user.parent
    config = place.load(user="data_dir: here")
    assert (config.data_dir, config.store) == (folder / "here", str(folder / "here/palaver.db"))
    assert place.load(user="store: x.db").store == str(folder / "x.db")
    assert place.load(user="store: sqlite:///a%20b.db").store == f"sqlite:///{folder}/a%20b.db"
    assert place.load(user="store: sqlite:////a.db").store == "sqlite:////a.db"
    assert place.load(user="store: postgresql://db/x").store == "postgresql://db/x"
    assert place.load(user="store: ~/x.db").store == str(Path("~/x.db").expanduser())
    models = "agent: {name: model, model: 'a:b', fallback: ['a:c', {model: 'd:e', key_file: keys/d}]}"
    agent = place.load(user=models).agent
    assert isinstance(agent, ModelAgentConfig)
    assert [each.key_file for each in agent.fallback] == [None, place.user.parent / "keys/d"]


@pytest.mark.parametrize("line", ["data_dir: here", "store: x.db"])
def test_a_project_brings_no_database(line: str, place: Place) -> None:
    """Who may speak, and with which keys, stands in the database: a cloned folder would let strangers in."""
    assert "your own file" in place.mistake(project=line).allowed


# Secrets


def test_secrets_come_out_of_the_environment(place: Place) -> None:
    config = place.load(user="store: postgresql://me:${WORD}@db/x", WORD="open sesame")
    assert config.store == "postgresql://me:open sesame@db/x"
    assert "sesame" not in repr(config)


@pytest.mark.parametrize("text", ["${WORD}", "${}", "${no-name}", "${", "a${WORD"])
def test_a_reference_that_leads_nowhere_is_a_mistake(text: str, place: Place) -> None:
    mistake = place.mistake(user=f'\nlog: {{level: info}}\nstore: "{text}"')
    assert (mistake.position.line, mistake.field) == (3, "store")


def test_a_project_reads_nothing_of_the_environment(place: Place) -> None:
    mistake = place.mistake(project="titles: ${WORD}", WORD="sesame")
    assert (mistake.position.line, mistake.field) == (1, "titles")
    assert "sesame" not in str(mistake)


@pytest.mark.parametrize(
    "store", ["redis://me:sesame@db", "redis://me:${WORD}@db", "redis://me:sesa@me/x@db", "redis://db/?password=sesame"]
)
def test_no_mistake_shows_a_secret(store: str, place: Place) -> None:
    mistake = place.mistake(user=f'store: "{store}"', WORD="sesame")
    assert "(set)" in mistake.found
    assert "sesa" not in str(mistake)


# Into settings of the engine


def test_a_whole_configuration(place: Place) -> None:
    settings = place.load(user=WHOLE).settings()
    assert settings.zones.default == ZoneInfo("Europe/Berlin")
    assert settings.zones.profiles == {"work": ZoneInfo("America/New_York")}
    assert settings.busy.kinds == {"group": BusyMode.COLLECT}
    assert settings.resets.default == ResetPolicy(mode=ResetMode.IDLE, idle_minutes=60)
    assert settings.resets.platforms == {"telegram": ResetPolicy(mode=ResetMode.BOTH, idle_minutes=60)}
    shared = Scope(group=GroupScope.SHARED)
    assert settings.scopes.chats == {
        ChatSelector("telegram", "-100"): shared,
        ChatSelector("discord", "007", "1_1"): shared,
    }
    assert settings.profiles == (
        ProfileRule(profile="work", platform="slack"),
        ProfileRule(profile="work", platform="telegram", chat_id="-5", thread_id="1"),
    )
    assert settings.grants == (
        TERMINAL_OWNER,
        WEB_OWNER,
        API_OWNER,
        Grant(platform="telegram", user_id="7", role=AccessRole.OWNER),
        Grant(platform="telegram", user_id="12:30", effect=Effect.BLOCK),
    )
    assert (settings.limits.poll, settings.limits.fresh_for) == (timedelta(milliseconds=500), None)
    assert settings.config.acknowledges is False


def test_the_engine_takes_sections_as_they_are_written(place: Place) -> None:
    config = place.load(user="titles: no\nlimits: {turn_limit: 7m, process_limit: 3h, burst_window: 2s}")
    settings = config.settings()
    assert settings.config is config
    assert settings.limits.turn_limit == timedelta(minutes=7)
    # What the store decides by as well.
    assert (settings.process_limit, settings.burst_window) == (timedelta(hours=3), timedelta(seconds=2))


WHOLE = """
timezone: Europe/Berlin
acknowledges: no
reset: {mode: idle, idle_minutes: 60}
kinds: {group: {busy: collect}}
platforms:
  telegram:
    reset: {mode: both}
    chats:
      -100: {scope: {group: shared}}
  discord:
    servers:
      1_1:
        chats:
          007: {scope: {group: shared}}
profiles:
  work:
    timezone: America/New_York
    serves:
      - {platform: slack}
      - {platform: telegram, chat_id: -5, thread_id: 1}
grants:
  - {platform: telegram, user_id: 7, role: owner}
  - {platform: telegram, user_id: 12:30, effect: block}
limits: {poll: 500ms, fresh_for: forever}
"""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0s", timedelta()),
        ("90s", timedelta(seconds=90)),
        ("1h30m", timedelta(minutes=90)),
        ("23h 2m 3s 4ms", timedelta(hours=23, minutes=2, seconds=3, milliseconds=4)),
        ("1d", timedelta(days=1)),
    ],
)
def test_lengths_of_time(text: str, expected: timedelta, place: Place) -> None:
    assert place.load(user=f"limits: {{burst_window: {text}}}").limits.burst_window == expected


@pytest.mark.parametrize("text", ["0", "0s", "forever"])
def test_no_window_in_which_a_turn_is_resumed(text: str, place: Place) -> None:
    assert place.load(user=f"limits: {{fresh_for: {text}}}").settings().limits.fresh_for is None


@pytest.mark.parametrize("text", ["idle_minutes: 5256000", "idle_minutes: 1", "at_hour: 0", "at_hour: 23"])
def test_what_the_domain_allows_is_allowed(text: str, place: Place) -> None:
    assert place.load(user=f"reset: {{{text}}}").settings().resets.default


def test_instructions_can_have_several_lines(place: Place) -> None:
    """A block of text, longer than any name, in the profile's agent too; other fields stay on one line."""
    model = "name: model\nmodel: openai:x\ninstructions: |\n  Be brief.\n  \tNo lists.\n"
    rest = "".join(f"  Rule {number}.\n" for number in range(1_000))
    text = f"agent:\n{indent(model + rest, '  ')}profiles:\n  work:\n    agent:\n{indent(model, '      ')}"
    config = place.load(user=text)
    assert config.agent.facts()["instructions"].startswith("Be brief.\n\tNo lists.\nRule 0.\nRule 1.\n")
    assert config.agent.facts()["instructions"].endswith("Rule 999.")
    agent = config.profiles["work"].agent
    assert agent
    assert agent.facts()["instructions"] == "Be brief.\n\tNo lists."
    assert place.mistake(user="timezone: |\n  UTC\n").found == "U+000A"
    assert place.mistake(user='agent: {name: local, instructions: "\\e[2J"}').found == "U+001B"


# Files that are no files of ours


def test_a_folder_in_place_of_a_file(place: Place) -> None:
    place.user.mkdir()
    mistake = place.mistake()
    assert (mistake.position.file, mistake.position.line, mistake.found) == (place.user, None, "a folder")


def test_a_pipe_in_place_of_a_file_does_not_hang(place: Place) -> None:
    os.mkfifo(place.project)
    assert place.mistake().position.file == place.project


def test_a_file_that_was_named_has_to_be_there(place: Place) -> None:
    mistake = place.mistake(PALAVER_CONFIG="nowhere.yaml")
    assert mistake.position.file == place.project.parent / "nowhere.yaml"
    assert "No such file" in mistake.found
    assert place.load(PALAVER_CONFIG="/dev/null") == place.load()


def test_a_file_that_cannot_be_read(place: Place) -> None:
    """Not even looked at, as all around it is private to another user."""
    place.user.write_text("busy: queue")
    folders = (place.project.parent, place.user.parent)
    for folder in folders:
        folder.chmod(0)
    with without_rights():
        mistakes = place.mistakes()
    for folder in folders:
        folder.chmod(0o700)
    assert [mistake.position.file for mistake in mistakes] == [place.project, place.user]
    assert {mistake.found for mistake in mistakes} == {"Permission denied"}


def test_a_file_that_is_not_utf_8(place: Place) -> None:
    place.user.write_bytes(b"busy: queue\n# caf\xe9\n")
    assert (place.mistake().position.line, place.mistake().found) == (2, "byte 0xe9")


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("busy: queue\n\tlog: x", 2),
        ("busy: [", 1),
        ("busy: queue\n---\nbusy: steer\n", 2),
        ("busy: !!python/object/apply:os.system [ls]", 1),
        ("busy: !own x", 1),
        ("a: &a [x]\nb: [*a, *a]", 1),
        ("busy: *a", 1),
        ("[" * 100_000, 1),
        ("{a: " * 100, 1),
        ("busy: queue\n? [a, b]\n: x", 2),
        ('busy: "\\UFFFFFFFF"', 1),
        (f"%YAML 1.{'1' * 5000}\n---\nbusy: queue", 1),
        ("busy: queue\nlog: \x00", 2),
        ("- busy", 1),
        ("busy", 1),
        (f"# {'x' * 300_000}", None),
        (f"store: '{'://a:' * 50_000}'", 1),
        (f"limits: {{attempts: {'9' * 200_000}}}", 1),
    ],
)
def test_hostile_files_are_refused(text: str, line: int | None, place: Place) -> None:
    mistake = place.mistake(user=text)
    assert (mistake.position.file, mistake.position.line) == (place.user, line)


def test_of_very_many_mistakes_some_are_enough(place: Place) -> None:
    assert len(place.mistakes(user="\n".join(f"k{number}: x" for number in range(10_000)))) == 100


@given(st.text(alphabet=st.one_of(st.sampled_from("abc:[]{}-?!&*#|>'\"%@`,\n\t \\$\u2028\ud800~"), st.characters())))
def test_any_text_is_read_or_refused(text: str) -> None:
    reading = parse(Path("x.yaml"), text, {})
    assert isinstance(reading.node.value, dict)
    assert all(mistake.position.line for mistake in reading.mistakes)


# Mistakes in fields


@pytest.mark.parametrize(
    ("text", "line", "field", "said"),
    [
        ("busy: qeue", 1, "busy", "Use queue, collect, interrupt, steer, for example busy: queue"),
        ("bsy: queue", 1, "bsy", "Unknown field 'bsy'. Did you mean busy?"),
        ("log:\n  levl: info", 2, "log.levl", "log has an unknown field 'levl'. Did you mean level?"),
        ("busy: queue\nbusy: steer", 2, "busy", "is set twice, first on line 1."),
        ("busy:", 1, "busy", "has no value. Use a value, or delete the line"),
        ("agent:", 1, "agent", "has no value. Use a value, or delete the line"),
        ("busy: {}", 1, "busy", "cannot be 'a section'"),
        ("busy: [queue]", 1, "busy", "cannot be 'a list'"),
        ("grants: {}", 1, "grants", "Use a list, each a section of effect, role"),
        ("agent: echo", 1, "agent", "Use a section of name, for example agent: {name: guide}"),
        ("timezone: Berlin", 1, "timezone", "Did you mean Europe/Berlin"),
        ("grants:\n  - platform: irc\n    user_id:", 3, "grants[0].user_id", "has no value"),
        ("grants:\n  -\n  - role: boss", 2, "grants[0]", "has no value"),
        ("grants:\n  - user_id: 7", 2, "grants[0]", "needs its platform"),
        ('grants: [{platform: irc, user_id: ""}]', 1, "grants[0].user_id", "any text"),
        ("platforms:\n  telegarm: {}", 2, "platforms.telegarm", "Did you mean telegram?"),
        ("kinds:\n  groups: {}", 2, "kinds.groups", "Did you mean group?"),
        ("profiles: {a: {serves: [{platform: x}]}}", 1, "profiles.a.serves[0].platform", "unknown platform 'x'"),
        ("platforms: {irc: {chats: {x: {busy: y}}}}", 1, "platforms.irc.chats.x.busy", "queue, collect"),
        ('platforms: {irc: {chats: {"": {}}}}', 1, "platforms.irc.chats", "has a field with an empty name"),
        ('data_dir: "a\\nb"', 1, "data_dir", "U+000A"),
        ('data_dir: "a\\0b"', 1, "data_dir", "U+0000"),
        ('"a\\eb": x', 1, "a\\x1bb", "U+001B"),
        ('store: ""', 1, "store", "postgresql://"),
        ('data_dir: ""', 1, "data_dir", "a folder"),
    ],
)
def test_a_mistake_says_where_and_what(text: str, line: int, field: str, said: str, place: Place) -> None:
    mistake = place.mistakes(user=text)[0]
    assert (mistake.position.file, mistake.position.line, mistake.field) == (place.user, line, field)
    assert said in str(mistake)
    assert str(mistake).startswith(f"{place.user}:{line}: ")


def test_a_mistake_that_the_other_file_hides_is_still_one(place: Place) -> None:
    mistake = place.mistake(user="busy: queue", project="busy: qeue")
    assert mistake.position.file == place.project


def test_all_mistakes_are_found_at_once_in_the_order_of_lines(place: Place) -> None:
    mistakes = place.mistakes(user="limits: {poll: x}\nbsy: x\nbusy: x", project="zone: x")
    assert [str(mistake.position) for mistake in mistakes] == [
        f"{place.project}:1",
        *(f"{place.user}:{line}" for line in (1, 2, 3)),
    ]
    assert "(3 more: run palaver config check)" in str(MalformedConfig(mistakes))


def test_without_a_catalogue_any_platform_can_be_named(place: Place) -> None:
    place.user.write_text("platforms: {fake: {busy: steer}}")
    assert load(place.project.parent, place.environ).settings().busy.platforms == {"fake": BusyMode.STEER}


def test_the_store_of_this_run_may_be_a_mistake(place: Place) -> None:
    mistake = place.mistake(PALAVER_STORE="redis://x")
    assert str(mistake).startswith("PALAVER_STORE: store cannot be 'redis://x'")
