"""`palaver setup PLATFORM`: an account is asked for, tried and written; its secrets are seen by nobody."""

import asyncio
import io
import json
import stat
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from palaver.cli import prompts
from palaver.cli.main import main
from palaver.config.writer import replace_value
from palaver.model.access import AccessRole
from palaver.model.errors import BadArgument
from palaver.platforms.plugins import PLATFORMS, load_factory
from palaver.store.opening import open_store
from palaver.store.people import grants
from palaver.store.people.grants import GrantTable
from tests.packages import bring
from tests.pigeon import install

TOKEN = "coo-0123456789"  # noqa: S105 - it opens nothing


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    bring(tmp_path / "doves", monkeypatch, {"dove": "tests.cli.doves:DOVE"})
    install(tmp_path / "site", monkeypatch)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PALAVER_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PALAVER_CONFIG", str(tmp_path / "config/own.yaml"))
    monkeypatch.setenv("DOVE_TOKEN", TOKEN)
    monkeypatch.delenv("PALAVER_STORE", raising=False)
    Path("token").write_text(f"{TOKEN}\n")
    (tmp_path / "config").mkdir()
    return tmp_path / "config/own.yaml"


@pytest.fixture
def typing(monkeypatch: pytest.MonkeyPatch) -> Callable[[Sequence[str], Sequence[str]], None]:
    """Somebody types these lines, and those where nothing is shown."""

    def types(lines: Sequence[str], unseen: Sequence[str]) -> None:
        monkeypatch.setattr(prompts, "is_interactive", lambda: True)
        monkeypatch.setattr("sys.stdin", io.StringIO("".join(f"{line}\n" for line in lines)))
        typed = iter(unseen)

        def getpass(*_: object) -> str:
            return next(typed)

        monkeypatch.setattr("getpass.getpass", getpass)

    return types


async def owners(home: Path) -> list[tuple[str | None, str | None]]:
    async with await open_store(str(home / "palaver.db")) as store:
        table = await store.read(grants.load_table(GrantTable()))
        found = table.grants.values()
        return [(each.platform, each.user_id) for each in found if each.role is AccessRole.OWNER]


def test_an_account_is_tried_and_written_and_its_owner_let_in(
    own: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own.write_text("# mine\nplatforms:\n  web:\n    busy: collect   # as I like it\n# the end\n")
    assert main(["setup", "dove", "--set", "token_file=token", "--owner", "7:x"]) == 0
    assert own.read_text() == (
        "# mine\nplatforms:\n  web:\n    busy: collect   # as I like it\n  dove:\n    accounts:\n      main:\n"
        f"        token_file: {tmp_path}/token\n        mood: well\n# the end\n"
    )
    said = capsys.readouterr()
    assert "Added dove:main to " in said.out
    assert ": @dove" in said.out
    assert "Doves sleep at night." in said.out
    assert "dove:7:x is its owner." in said.out
    assert TOKEN not in said.out + said.err
    assert asyncio.run(owners(tmp_path / "home")) == [("dove", "7:x")]
    assert main(["platforms", "check", "dove"]) == 0


def test_a_variable_stays_where_it_is_and_machines_read_what_was_done(
    own: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["setup", "dove", "--account", "two", "--set", "token=${DOVE_TOKEN}", "--no-test", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["options"] == {"token": "${DOVE_TOKEN}", "mood": "well"}
    assert (said["account"], said["owner"], said["secrets"], said["known_as"]) == ("dove:two", None, [], None)
    assert TOKEN not in own.read_text()


def test_what_is_there_is_not_replaced_silently(own: Path, capsys: pytest.CaptureFixture[str]) -> None:
    own.write_text("platforms:\n  dove:\n    accounts:\n      main: {token: old}\n      other: {token: old}\n")
    before, order = own.read_text(), ["setup", "dove", "--set", "token_file=token"]
    assert main(order) == 2
    assert "already has dove:main" in capsys.readouterr().err
    assert own.read_text() == before
    assert main([*order, "--yes"]) == 0
    assert "      other: {token: old}\n" in own.read_text()
    assert "main: {token: old}" not in own.read_text()


@pytest.mark.parametrize(
    ("args", "code", "words"),
    [
        (("dove",), 2, "There is no terminal to ask for token."),
        (("dove", "--set", f"token={TOKEN}"), 2, "token is a secret: others could see it on the command line"),
        (("dove", "--set", "token=${NOT_SET}"), 2, "token is a secret"),
        (("dove", "--set", "token_file=nowhere"), 2, "nowhere: it is missing."),
        (("dove", "--set", "token"), 2, "--set cannot be 'token'"),
        (("dove", "--set", "mood=well"), 2, "ask for token"),
        (("dove", "--set", "token_file=token", "--set", "colour=white"), 2, "Unknown option 'colour'"),
        (("dove", "--set", "token_file=token", "--set", "mood=refused"), 1, "the loft does not know this ring"),
        (("dove", "--set", "token_file=token", "--account", "../x"), 2, "An account cannot be called"),
        (
            (
                *("matrix", "--set", "homeserver=https://e.org", "--set", "user_id=@a:e.org"),
                *("--set", "access_token_file=token", "--set", "invites=bob"),
            ),
            2,
            "invites cannot be 'bob'. Use 'everybody', 'server' or 'nobody' or a list, for example",
        ),
        (("api", "--set", "token_file=token"), 2, "No adapter named 'api' is installed"),
    ],
)
def test_mistakes_are_reported_and_nothing_is_written(
    args: Sequence[str], code: int, words: str, own: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["setup", *args]) == code
    said = capsys.readouterr()
    assert words in said.err
    assert TOKEN not in said.out + said.err
    assert not own.exists()


def test_at_a_terminal_a_person_is_walked_through_it(
    own: Path,
    tmp_path: Path,
    typing: Callable[[Sequence[str], Sequence[str]], None],
    capsys: pytest.CaptureFixture[str],
) -> None:
    typing(["", "y", "well", "7"], ["goo-wrong", TOKEN])
    assert main(["setup", "dove"]) == 0
    said = capsys.readouterr()
    for words in (
        "Go to the loft",
        "left foot",
        "How is it? [well]",
        "Dove says: this is no ring of a dove",
        "Try again?",
    ):
        assert words in said.err
    assert TOKEN not in said.out + said.err
    key = own.parent / "keys/dove-main-token"
    assert (key.read_text(), stat.S_IMODE(key.stat().st_mode)) == (f"{TOKEN}\n", 0o600)
    assert str(key) in said.out
    assert asyncio.run(owners(tmp_path / "home")) == [("dove", "7")]
    assert main(["config", "check"]) == 0
    assert "may read" not in capsys.readouterr().out


def test_nobody_becomes_owner_whose_id_cannot_be_one(
    own: Path,
    tmp_path: Path,
    typing: Callable[[Sequence[str], Sequence[str]], None],
    capsys: pytest.CaptureFixture[str],
) -> None:
    Path("token").write_text("123456:ABC-DEF1234ghIkl-zyx57W2v1u123ew11")
    order = ["setup", "telegram", "--set", "token_file=token", "--no-test"]
    assert main([*order, "--owner", "@alice"]) == 2
    assert "The owner cannot be '@alice'. Use your own Telegram user id (a number" in capsys.readouterr().err
    assert not own.exists()
    typing(["@alice", "7"], [])
    assert main(order) == 0
    assert asyncio.run(owners(tmp_path / "home")) == [("telegram", "7")]


def test_who_does_not_try_again_has_changed_nothing(
    own: Path, typing: Callable[[Sequence[str], Sequence[str]], None]
) -> None:
    typing(["", "n"], ["goo-wrong"])
    assert main(["setup", "dove"]) == 1
    assert not own.exists()


def test_an_adapter_without_a_guide_is_asked_for_by_its_options(
    own: Path, typing: Callable[[Sequence[str], Sequence[str]], None], capsys: pytest.CaptureFixture[str]
) -> None:
    typing(["", "/loft"], [])
    assert main(["setup", "pigeon"]) == 0
    assert "folder cannot be empty." in capsys.readouterr().err
    assert own.read_text() == "platforms:\n  pigeon:\n    accounts:\n      main:\n        folder: /loft\n"


@pytest.mark.usefixtures("own")
def test_guides_of_ours_ask_for_options_that_there_are() -> None:
    for platform in (each for each in PLATFORMS.values() if each.adapter):
        assert platform.guide, platform.name
        options = load_factory(platform.name).options.model_fields
        assert {each.option for each in platform.guide.questions} <= set(options)


def test_a_secret_is_made_where_none_is_given(own: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["setup", "webhook", "--account", "ci", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    [file] = said["secrets"]
    assert file == str(own.parent / "keys/webhook-ci-secret")
    secret = Path(file).read_text().strip()
    assert len(secret) > 40
    assert secret not in own.read_text()
    assert said["known_as"] == "is called at /in/webhook/ci, signed as standard"
    assert main(["config", "check"]) == 0


def test_a_webhook_that_receives_events_is_set_up_too(
    own: Path, typing: Callable[[Sequence[str], Sequence[str]], None], capsys: pytest.CaptureFixture[str]
) -> None:
    address = "https://example.org/hook"
    Path("address").write_text(address)
    order = ["setup", "webhook", "--account", "audit"]
    assert main([*order, "--set", f"url={address}"]) == 2
    assert "for example palaver setup webhook --set url_file=FILE" in capsys.readouterr().err
    assert main([*order, "--set", "url_file=address", "--set", "events=turn.failed,session.ended", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["known_as"] == "posts to example.org"
    typing(["turn.failed, message.delivered"], [address, ""])
    assert main([*order, "--yes"]) == 0
    assert "palaver grants add webhook:audit\n" in capsys.readouterr().out
    assert '        events: "turn.failed, message.delivered"\n' in own.read_text()
    assert main(["config", "check"]) == 0


def test_on_matrix_there_is_a_folder_for_the_keys_of_encrypted_rooms(
    own: Path, typing: Callable[[Sequence[str], Sequence[str]], None], capsys: pytest.CaptureFixture[str]
) -> None:
    facts = ("homeserver=https://matrix.example.org", "user_id=@helper:example.org", "access_token_file=token")
    order = ["setup", "matrix", "--no-test", *(word for fact in facts for word in ("--set", fact))]
    folder = f"{own.parent}/keys/matrix-main-rooms"
    assert main([*order, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["options"]["keys"] == folder
    typing(["/elsewhere", ""], [])
    assert main([*order, "--yes"]) == 0
    assert folder in capsys.readouterr().err
    assert "        keys: /elsewhere\n" in own.read_text()
    assert main(["config", "check"]) == 0


def test_an_answer_that_cannot_be_right_is_asked_for_again_at_once(
    own: Path, typing: Callable[[Sequence[str], Sequence[str]], None], capsys: pytest.CaptureFixture[str]
) -> None:
    typing(["127.0.0.1:9482", "https://matrix.example.org", "@helper:example.org", "", "7", ""], ["", TOKEN])
    assert main(["setup", "matrix", "--no-test"]) == 0
    said = " ".join(capsys.readouterr().err.split())
    assert "homeserver cannot be '127.0.0.1:9482'. Use the URL of the homeserver, like https://" in said
    assert "--set homeserver=https://matrix.example.org" in said
    assert said.index("homeserver cannot be") < said.index("Full user id")
    assert 'homeserver: "https://matrix.example.org"' in own.read_text()


WAY = ("platforms", "dove", "accounts", "main")
DEEP = f"{' ' * 10}main:\r\n{' ' * 12}mood: well\r\n"
LINES = "platforms:\n  dove:\n    accounts:\n      main:\n        mood: well\n"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", LINES),
        ("busy: queue", f"busy: queue\n{LINES}"),
        ("platforms: {}\nbusy: queue", f"{LINES}busy: queue\n"),
        ("platforms:\n  dove: {}\n  web: {}\n", f"{LINES}  web: {{}}\n"),
        (f"{LINES}# end\n", f"{LINES}# end\n"),
        (
            "platforms:\r\n    dove:\r\n        busy: queue\r\n",
            f"platforms:\r\n    dove:\r\n        busy: queue\r\n        accounts:\r\n{DEEP}",
        ),
    ],
)
def test_a_section_is_put_where_it_belongs(before: str, after: str) -> None:
    assert replace_value(before, WAY, {"mood": "well"}) == after
    assert replace_value(after, WAY, {"mood": "well"}) == after


@pytest.mark.parametrize(
    "before", ["platforms: {dove: {busy: queue # why\n}}\n", "platforms: [dove]\n", "platforms: dove\n"]
)
def test_what_cannot_be_added_to_is_left_alone(before: str) -> None:
    with pytest.raises(BadArgument, match="Palaver cannot edit"):
        replace_value(before, WAY, {"mood": "well"})
