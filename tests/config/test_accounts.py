"""Accounts and hooks are checked against what those who made them say, before anything starts."""

import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from palaver.config.effective import effective_settings
from palaver.config.errors import MalformedConfig, Mistake
from palaver.config.loader import load_with_sources
from palaver.config.model import Config
from palaver.platforms.plugins import known_platforms, load_factory
from tests.pigeon import install

ENVIRON = {"PALAVER_CONFIG": "own.yaml", "PALAVER_HOME": "/data", "TOKEN": "s3cret", "EMPTY": ""}


@pytest.fixture(autouse=True)
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path / "site", monkeypatch)
    monkeypatch.chdir(tmp_path)


def written(text: str, file: str = "own.yaml") -> Config:
    Path(file).write_text(text)
    return load_with_sources(Path(), ENVIRON, known_platforms(), load_factory).config


def mistakes(text: str, file: str = "own.yaml") -> Sequence[Mistake]:
    with pytest.raises(MalformedConfig) as caught:
        written(text, file).check_variables()
    return caught.value.mistakes


def test_several_accounts_of_a_platform() -> None:
    config = written(
        "platforms:\n  pigeon:\n    accounts:\n      home: {folder: /a}\n      work: {folder: /b, speed: 2}"
    )
    assert config.platforms["pigeon"].accounts == {"home": {"folder": "/a"}, "work": {"folder": "/b", "speed": "2"}}


def test_nothing_is_imported_that_is_not_used() -> None:
    written("platforms: {pigeon: {busy: collect}}")
    assert "pigeon_post" not in sys.modules
    load_with_sources(Path(), ENVIRON, known_platforms())
    assert "pigeon_post" not in sys.modules


def test_kinds_of_chats_of_an_installed_adapter_are_known() -> None:
    (mistake,) = mistakes("kinds: {nest: {busy: collect}}")
    assert "unknown kind of chat" in mistake.problem
    written("kinds: {loft: {busy: collect}}")


@pytest.mark.parametrize(
    ("options", "field", "words"),
    [
        ("{}", "folder", "platforms.pigeon.accounts.home lacks 'folder'. Use folder, speed, token, token_file"),
        (
            "{folder: /a, sped: 2}",
            "sped",
            "has an unknown option 'sped'. Did you mean speed?",
        ),
        (
            "{folder: /a, speed: fast}",
            "speed",
            "speed cannot be 'fast'. Use a whole number, for example speed: 1",
        ),
        ('{folder: /a, speed: "${TOKEN}"}', "speed", "speed cannot be '(set)'"),
        ("{folder: /a, token: [s3cret]}", "token", "token cannot be 'a list'"),
        ('{folder: /a, token: "${EMPTY}"}', "token", "token cannot be ''. Use a secret, or a variable that is"),
    ],
)
def test_a_mistake_in_an_option_says_where_it_is(options: str, field: str, words: str) -> None:
    (mistake,) = mistakes(f"platforms:\n  pigeon:\n    accounts:\n      home: {options}")
    assert str(mistake.position) == "own.yaml:4"
    assert mistake.field == f"platforms.pigeon.accounts.home.{field}"
    assert words in str(mistake)
    assert "s3cret" not in str(mistake)


@pytest.mark.parametrize(
    ("said", "words"),
    [
        (
            "telegram: {accounts: {a: {token: '1:a', mode: webhook}}}",
            "telegram.accounts.a does not work with 'token, mode'. Use public_url with mode webhook",
        ),
        ("webhook: {accounts: {a: {}}}", "a does not work with 'no options'. Use a secret for callers"),
        ("webhook: {accounts: {a: {}}}", "for example palaver setup webhook"),
        ("webhook: {accounts: {a: {url: 'https://e.org', wait: soon}}}", "Use a number, for example wait: 25"),
        ("matrix: {accounts: {a: {user_id: '@a:e'}}}", "for example homeserver: https://matrix.example.org"),
        ("telegram: {accounts: {a: {token: '${NONE}'}}}", "that is not set: 'NONE'. Use a variable that is set"),
        ("telegram: {accounts: {a: {token: '${NONE}'}}}", "for example export NONE=…"),
        (
            "xmpp: {accounts: {a: {jid: bot, password: x}}}",
            "jid cannot be 'bot'. Use an address with one @ and no resource, for example jid: helper@example.org",
        ),
        ("xmpp: {accounts: {a: {jid: a@b, password: x, file_hosts: {a: b}}}}", "file_hosts cannot be 'a section'"),
        ("xmpp: {accounts: {a: {jid: a@b, password: x, file_hosts: {a: b}}}}", "for example file_hosts: …"),
        (
            "homeassistant: {accounts: {a: {url: 'http://h', token: x, notify: Phone}}}",
            "Use text that matches '^(?:notify\\.)?[a-z0-9_]+$', for example notify: mobile_app_anns_phone",
        ),
        ("slot: {accounts: {a: {}}}", "with a package that supports slot"),
    ],
)
def test_a_mistake_says_what_was_found_what_is_allowed_and_an_example(said: str, words: str) -> None:
    assert words in str(mistakes(f"platforms: {{{said}}}")[0])


@pytest.mark.parametrize(
    ("invites", "field", "words"),
    [
        (
            "bob",
            "invites",
            "cannot be 'bob'. Use 'everybody', 'server' or 'nobody' or a list, for example invites: server",
        ),
        ("{bob: yes}", "invites", "cannot be 'a section'. Use 'everybody', 'server' or 'nobody' or a list, "),
        ("['@a:e.org', [bob]]", "invites[1]", "cannot be 'a list'. Use text, for example invites: server"),
    ],
)
def test_an_option_with_alternatives_is_one_mistake_in_the_words_of_its_author(
    invites: str, field: str, words: str
) -> None:
    account = f"homeserver: https://e.org, user_id: '@a:e.org', access_token: s3cret, invites: {invites}"
    (mistake,) = mistakes(f"platforms: {{matrix: {{accounts: {{a: {{{account}}}}}}}}}")
    assert mistake.field == f"platforms.matrix.accounts.a.{field}"
    assert f"{mistake.field} {words}" in str(mistake)


@pytest.mark.parametrize(
    ("platform", "words"),
    [
        ("api", "No adapter named 'api' is installed"),
        ("terminal", "No adapter named 'terminal' is installed"),
        ("broken", "cannot be loaded"),
    ],
)
def test_an_account_without_an_adapter_says_where_it_is(platform: str, words: str) -> None:
    (mistake,) = mistakes(f"platforms:\n  {platform}:\n    accounts:\n      home: {{}}")
    assert str(mistake.position) == "own.yaml:4"
    assert words in str(mistake)


@pytest.mark.parametrize(
    ("hook", "words"),
    [
        ("pigeon_post:deaf", "function deaf, which cannot be awaited"),
        ("pigeon_post:nobody", "AttributeError"),
        ("no_such_module:tell", "ModuleNotFoundError"),
        ("pigeon_post", "AttributeError"),
        ("", "ValueError"),
    ],
)
def test_a_bad_hook_says_where_it_is(hook: str, words: str) -> None:
    (mistake,) = mistakes(f"hooks:\n  - pigeon_post:tell\n  - {hook!r}")
    assert (str(mistake.position), mistake.field) == ("own.yaml:3", "hooks[1]")
    assert words in str(mistake)


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("hooks: [pigeon_post:tell]", "hooks"),
        ("platforms: {pigeon: {accounts: {home: {folder: /a}}}}", "platforms"),
    ],
)
def test_a_project_brings_neither_accounts_nor_hooks(text: str, field: str) -> None:
    Path("own.yaml").write_text("")
    (mistake,) = mistakes(text, "palaver.yaml")
    assert mistake.field == field
    assert "in a project's file" in str(mistake)


def _webhook(deliver: str) -> str:
    ci = f"ci: {{secret: a secret of many words, scheme: token,\n deliver: '{deliver}'}}"
    crm = "crm: {url: https://example.org}, deaf: {secret: a secret of many words, scheme: token}"
    return f"platforms: {{pigeon: {{accounts: {{home: {{folder: /a}}}}}}, webhook: {{accounts: {{{crm}, {ci}}}}}}}"


@pytest.mark.parametrize("target", ["telegram:12345", "slack:9", "webhook:nope", "webhook:deaf", "webhook:ci"])
def test_answers_cannot_go_where_no_account_of_ours_can_send(target: str) -> None:
    (mistake,) = mistakes(_webhook(f"pigeon:7,{target}"))
    assert (mistake.field, mistake.found) == ("platforms.webhook.accounts.ci.deliver", target)
    assert str(mistake).startswith("own.yaml:2: ")
    assert "pigeon, webhook, for example palaver setup" in str(mistake)
    assert ("accounts of webhook that take messages: crm; " in str(mistake)) == target.startswith("webhook:")
    written(_webhook("webhook:crm,pigeon:7"))


def test_an_account_that_answers_go_to_and_that_is_wrong_itself_is_one_mistake() -> None:
    (mistake,) = mistakes(_webhook("webhook:crm").replace("https://example.org", "example.org"))
    assert mistake.field == "platforms.webhook.accounts.crm.url"


def test_options_of_accounts_are_not_shown() -> None:
    config = written("hooks: [pigeon_post:tell]\nplatforms: {pigeon: {accounts: {home: {folder: /a, token: s3cret}}}}")
    settings = {each.field: each.value for each in effective_settings(load_with_sources(Path(), ENVIRON))}
    assert settings["hooks[0]"] == "pigeon_post:tell"
    assert settings["platforms.pigeon.accounts.home"] == "(set)"
    assert "s3cret" not in f"{config!r} {settings}"
