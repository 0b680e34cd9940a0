"""Secrets of accounts that stand in files of their own."""

from pathlib import Path

import pytest
from pydantic import BaseModel, SecretStr

from palaver.cli.main import main
from palaver.config.effective import effective_settings
from palaver.config.errors import MalformedConfig
from palaver.config.loader import Loaded, load_with_sources
from palaver.config.secrets import find_secrets, is_secret, mask_secrets, option_names, read_secret
from palaver.model.errors import BadArgument
from palaver.platforms.plugins import known_platforms, load_factory
from tests.pigeon import install


@pytest.fixture(autouse=True)
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path / "site", monkeypatch)
    monkeypatch.chdir(tmp_path)


def read(options: str) -> Loaded:
    Path("conf").mkdir(exist_ok=True)
    file = Path("conf/own.yaml").absolute()
    file.write_text(f"platforms:\n  pigeon:\n    accounts:\n      home: {options}\n")
    environ = {"PALAVER_CONFIG": str(file), "PALAVER_HOME": "/data"}
    return load_with_sources(Path(), environ, known_platforms(), load_factory)


def keep(text: bytes, mode: int = 0o600) -> Path:
    file = Path("conf/token")
    file.parent.mkdir(exist_ok=True)
    file.write_bytes(text)
    file.chmod(mode)
    return file.absolute()


def test_a_secret_stands_in_a_file_counted_from_the_folder_of_the_configuration() -> None:
    keep(b"s3cret\n")
    loaded = read("{folder: /a, token_file: token}")
    assert loaded.config.platforms["pigeon"].accounts["home"] == {"folder": "/a", "token": "s3cret"}
    assert loaded.warnings == ()
    assert "s3cret" not in "".join(str(setting) for setting in effective_settings(loaded)) + repr(loaded.config)


def test_a_file_that_others_can_read_is_said() -> None:
    file = keep(b"s3cret", 0o640)
    assert read("{folder: /a, token_file: token}").warnings == (
        f"{file} holds a secret that others on this machine can read. Run: chmod 600 {file}",
    )


def test_the_check_of_a_configuration_says_so_too(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    keep(b"s3cret", 0o644)
    read("{folder: /a, token_file: token}")
    monkeypatch.setenv("PALAVER_CONFIG", str(Path("conf/own.yaml").absolute()))
    assert main(["config", "check"]) == 0
    assert "chmod 600" in capsys.readouterr().out
    assert main(["config", "show"]) == 0
    assert "s3cret" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("content", "options", "found"),
    [
        (None, "token_file: token", "token, which is missing"),
        (b" \n", "token_file: token", "token, which is empty"),
        (b"x" * 70_000, "token_file: token", "which has more than 65536 bytes"),
        (b"s3cret", "token_file: .", "which is not a file"),
        (b"s3cret", "token_file: [token]", "a list"),
        (b"s3cret", "token_file: token, token: s3cret", "beside token"),
    ],
)
def test_a_file_without_a_secret_says_what_to_do(content: bytes | None, options: str, found: str) -> None:
    if content is not None:
        keep(content)
    with pytest.raises(MalformedConfig) as caught:
        read(f"{{folder: /a, {options}}}")
    (mistake,) = caught.value.mistakes
    assert mistake.field == "platforms.pigeon.accounts.home.token_file"
    assert found in mistake.found
    assert "a file that you can read and that contains only the token" in str(mistake)
    assert "s3cret" not in str(mistake)


def test_what_the_adapter_refuses_of_a_secret_is_not_quoted(monkeypatch: pytest.MonkeyPatch) -> None:
    class Short(BaseModel):
        token: SecretStr | None = None
        key_file: str = ""
        key: SecretStr = SecretStr("")

        def model_post_init(self, _: object) -> None:
            raise ValueError("no")

    assert option_names(Short) == {"token": "", "key_file": "", "key": "", "token_file": "token"}
    assert [is_secret(each) for each in (SecretStr | None, dict[str, SecretStr], str | None)] == [True, True, False]
    monkeypatch.setattr(load_factory("pigeon"), "options", Short)
    keep(b"s3cret")
    with pytest.raises(MalformedConfig) as caught:
        read("{token_file: token}")
    assert "s3cret" not in str(caught.value)


def test_a_file_that_is_named_by_hand_is_read_as_one_of_the_configuration(tmp_path: Path) -> None:
    for name, content in (("good", b" s3cret\n"), ("empty", b" \n"), ("huge", b"s3cret" * 20_000)):
        (tmp_path / name).write_bytes(content)
    assert read_secret(tmp_path / "good") == "s3cret"
    for name, words in (("empty", "is empty"), ("huge", "more than"), (".", "not a file"), ("none", "missing")):
        with pytest.raises(BadArgument, match=words) as caught:
            read_secret(tmp_path / name)
        assert "s3cret" not in str(caught.value)


def test_all_secrets_of_a_configuration_are_found_but_not_what_is_none() -> None:
    keep(b"in-a-file\n")
    file = Path("conf/all.yaml")
    file.write_text(
        """
store: postgresql://ann:of%20store@db.example.org/palaver
agent: {name: model, model: "openai:gpt-5", key_file: token, fallback: [{model: "groq:m", key: of-fallback}]}
profiles: {work: {agent: {name: program, command: [run], environment: {API_TOKEN: of-program, LANG: English}}}}
tools: {servers: {notes: {url: "https://n.example.org", headers: {Authorization: Bearer of-server, Accept: text}}}}
voice: {transcription: {model: m, key: "${UNSET}"}}
"""
    )
    environ = {"PALAVER_CONFIG": str(file.absolute()), "PALAVER_HOME": "/data"}
    found = set(find_secrets(load_with_sources(Path(), environ).config)) - {""}
    assert found == {
        *("of store", "of%20store", "in-a-file", "of-fallback", "of-program", "of-server", "Bearer of-server")
    }


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://a:1,b:2/p?user=me&password=p@ss", "postgresql://a:1,b:2/p?user=me&password=(set)"),
        (
            "postgresql://me:pw@a/p?replica=db-2.example.org:5432",
            "postgresql://me:(set)@a/p?replica=db-2.example.org:5432",
        ),
    ],
)
def test_the_password_of_a_url_is_masked_and_nothing_else(url: str, shown: str) -> None:
    assert mask_secrets(url) == shown
