"""`palaver chat` and `palaver up` as real processes, talked to, stopped and killed."""

import json
import resource
import signal
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.cli.processes import PATIENCE, Place, ended, read_until, run_on_full_disk, until


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    place = Place(tmp_path)
    yield place
    place.close()


def asked(place: Place, question: str) -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(f"file:{place.home / 'palaver.db'}?mode=ro", uri=True)) as db:
        return db.execute(question).fetchall()


def turns(place: Place) -> list[str]:
    return [str(state) for (state,) in asked(place, "SELECT state FROM turns ORDER BY no")]


def answers(printed: str) -> list[str]:
    return [line.removeprefix("You said: ") for line in printed.splitlines() if line.startswith("You said: ")]


# In a pipe


def test_in_a_pipe_every_line_is_answered_in_order(place: Place) -> None:
    done = place.run("chat", says="hello\n\n!slow 1 slowly\n/new Plans\nlast words")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [
        "You said: hello",
        "You said: slowly",
        "Started a new conversation. Its title is “Plans”. /back returns to the previous one.",
        "You said: last words",
    ]
    assert all(stat.S_IMODE(file.stat().st_mode) & 0o077 == 0 for file in place.home.glob("palaver.db"))


def test_one_message_can_be_said_alone_and_the_conversation_goes_on(place: Place) -> None:
    assert place.run("chat", "-m", "two\nlines").stdout == "You said: two\nlines\n"
    assert "1 turn," in place.run("chat", "-m", "/status").stdout
    assert "/new, /reset: Start" in place.run("chat", "-m", "/help").stdout
    assert "no open conversation here" in place.run("chat", "--chat", "work", "-m", "/status").stdout


@pytest.mark.parametrize("empty", ["", " \n"])
def test_a_message_without_text_is_refused(place: Place, empty: str) -> None:
    done = place.run("chat", "-m", empty)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("palaver: The message is empty. Use some text, for example palaver chat -m ")


def test_a_person_is_forgotten_when_the_command_ends_though_no_gateway_goes_on(place: Place) -> None:
    place.run("chat", "-m", "hello")
    assert "is being deleted" in place.run("chat", "-m", "/forget --yes").stdout
    assert place.run("sessions", "list").stdout == ""
    receipt = place.run("people", "receipts").stdout
    assert "the person" in receipt
    assert "not yet" not in receipt


def test_who_has_something_answered_again_waits_for_the_answer(place: Place) -> None:
    place.run("chat", "-m", "!slow 1 hello")
    again = ["Answering again: “!slow 1 hello”. /back returns to the previous answer.", "You said: hello"]
    assert place.run("chat", says="/retry\n").stdout.splitlines() == again
    assert place.run("chat", "-m", "/retry").stdout.splitlines() == again


def test_a_command_that_answers_a_question_waits_for_what_follows(place: Place) -> None:
    place.configure("agent: {name: echo, delay: 1s}")
    place.run("chat", "-m", "!approve clean up")
    assert place.run("chat", "-m", "/approve").stdout.splitlines() == ["Approved.", "You said: clean up"]
    question = '!use ask_user {"question": "Which?", "choices": ["a", "b"]}'
    said = place.run("chat", says=f"{question}\n/answer 2\n").stdout.splitlines()
    assert said[-2:] == ["Answered.", "ask_user: b"]


def test_a_chat_is_attached_to_a_conversation_of_another(place: Place) -> None:
    place.run("chat", says="/new Plans\nfrom the first")
    done = place.run("chat", "--chat", "second", "--attach", "Plans", "-m", "from the second")
    assert done.stdout.splitlines()[0].startswith("This chat now continues “Plans”")
    assert done.stdout.splitlines()[-1] == "You said: from the second"
    assert "2 turns" in place.run("chat", "-m", "/status").stdout
    why = place.run("explain", "key", "--platform", "terminal", "--chat", "second").stdout
    assert "\ngoes to  agent:main:terminal:dm:main (this chat is attached to it" in why
    assert "goes to" not in place.run("explain", "key", "--platform", "terminal", "--chat", "main").stdout
    for chat in ("main", "second"):
        done = place.run("chat", "--chat", chat, "--attach", "Plans", "-m", "again")
        assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "You said: again")
        assert done.stdout.startswith("This chat already takes part in “Plans”")


@pytest.mark.parametrize("which", ["nowhere", ""])
def test_what_was_meant_for_another_conversation_is_not_said_in_this_one(place: Place, which: str) -> None:
    for words in (("-m", "secret"), ()):
        done = place.run("chat", "--attach", which, *words, says="secret\n")
        assert (done.returncode, answers(done.stdout)) == (2, [])
        assert done.stderr == f"palaver: the chat could not be attached to '{which}', so nothing was sent\n"
    assert turns(place) == []
    assert "command failed" in place.run("trace", "in:1").stdout


def test_another_profile_is_another_conversation_and_only_a_known_one_is_there(place: Place) -> None:
    place.configure("profiles: {work: {agent: {name: echo, streams: true}}}")
    assert place.run("chat", "--profile", "work", "-m", "hello").stdout == "You said: hello\n"
    assert "no open conversation here" in place.run("chat", "-m", "/status").stdout
    place.configure("profiles: {work: {serves: [{platform: terminal}]}}")
    for wrong, words in (
        (("--profile", "wrok"), "Use main, work"),
        (("--chat", "work/main"), "without /"),
        (("--chat", "a\nb"), "invisible"),
        (("--profile", "main"), ":1) sends this chat to the profile work, not to 'main'."),
    ):
        done = place.run("chat", *wrong, "-m", "hello")
        assert done.returncode == 2
        assert words in done.stderr


def test_a_profile_is_asked_for_or_chosen_by_a_rule_as_explained(place: Place) -> None:
    place.configure("profiles: {work: {serves: [{platform: terminal}]}, home: {}}")
    keys = list[str]()
    for number, asked in enumerate(((), ("--profile", "work"), ("--profile", "home")), 1):
        assert place.run("chat", *asked, "-m", "hello").stdout == "You said: hello\n"
        keys = [each["key"] for each in json.loads(place.run("sessions", "list", "--json").stdout)["sessions"]]
        for subject in ((f"in:{number}",), ("--platform", "terminal", "--chat", "main", "--user", "owner", *asked)):
            found = json.loads(place.run("explain", "key", *subject, "--json").stdout)
            assert found["key"] == keys[0]
            (rule,) = (each for each in found["rules"] if each["name"] == "profile")
            assert rule["where"].startswith("the sender asked for it") == ("home" in asked)
    assert len(keys) == 2, "what a rule chooses anyway is the same conversation"


def test_nothing_that_is_said_can_play_tricks_on_the_terminal(place: Place) -> None:
    done = place.run("chat", "-m", "a\x1b[31mred\x07 \u202eturned")
    assert done.stdout == "You said: a\\x1b[31mred\\x07 \\u202eturned\n"


def test_an_answer_that_is_streamed_is_printed_once(place: Place) -> None:
    place.configure("agent: {name: echo, streams: true, delay: 150ms}")
    assert place.run("chat", "-m", "one two three four").stdout == "You said: one two three four\n"


def test_someone_who_is_not_let_in_gets_a_notice(place: Place) -> None:
    place.configure("grants: [{effect: block, platform: terminal}]")
    done = place.run("chat", "-m", "hello")
    assert (done.returncode, done.stdout) == (0, "")
    assert "a grant blocks this sender" in done.stderr
    assert place.run("chat", "--attach", "Plans", "-m", "hello").returncode == 2


def test_a_reader_that_has_enough_ends_it_in_silence(place: Place) -> None:
    talk = subprocess.run(
        ["/bin/sh", "-c", f"yes | head -200 | {sys.executable} -m palaver chat --agent echo | head -1"],
        env=place.environment,
        capture_output=True,
        check=False,
        text=True,
        timeout=PATIENCE,
    )
    assert (talk.stdout, talk.stderr) == ("You said: y\n", "")


def test_an_answer_that_has_nowhere_to_go_is_owed_until_it_has(place: Place) -> None:
    talk = subprocess.run(
        ["/bin/sh", "-c", f"exec {sys.executable} -m palaver chat --agent echo -m first >&-"],
        env=place.environment,
        capture_output=True,
        check=False,
        text=True,
        timeout=PATIENCE,
    )
    assert (talk.returncode, talk.stderr.count("Standard output is closed")) == (1, 1)
    assert answers(place.run("chat", "-m", "second").stdout) == ["first", "second"]


def test_a_line_that_is_too_long_keeps_no_other_from_being_said(place: Place) -> None:
    done = place.run("chat", says=f"one\n{'x' * 200_001}\nthree\n")
    assert (done.returncode, answers(done.stdout)) == (2, ["one", "three"])
    assert done.stderr.startswith("palaver: line 2: The message has more than 200000 characters")


@pytest.mark.parametrize("kilobytes", [8, 64, 200])
def test_on_a_full_disk_one_sentence_is_said(place: Place, kilobytes: int) -> None:
    _fails_on_a_full_disk(place, kilobytes, "hi")


def test_on_a_full_disk_a_sender_who_could_still_be_heard_gets_a_notice(place: Place) -> None:
    assert place.run("chat", "-m", "hello").returncode == 0
    _fails_on_a_full_disk(place, 64, 20_000 * "x")


def test_a_gateway_whose_disk_is_full_says_so_once_and_goes_on_when_there_is_room(place: Place) -> None:
    gateway = place.up()
    assert place.run("chat", "-m", "one").stdout == "You said: one\n"
    _, most = resource.prlimit(gateway.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(gateway.pid, resource.RLIMIT_FSIZE, (0, most))
    refused = place.run("chat", "-m", "two")
    resource.prlimit(gateway.pid, resource.RLIMIT_FSIZE, (most, most))
    assert refused.returncode == 75
    assert refused.stdout == ""
    assert refused.stderr.count("\n") == 1
    assert refused.stderr.startswith("palaver: the database ")
    until(lambda: place.run("chat", "-m", "three").stdout == "You said: three\n")
    assert ended(gateway, signal.SIGTERM) == 0
    assert gateway.stderr
    logged = gateway.stderr.read()
    assert 0 < logged.count("action=message.not_stored") < 10


def _fails_on_a_full_disk(place: Place, kilobytes: int, message: str) -> None:
    done = run_on_full_disk(kilobytes, "chat", "-m", message, environment=place.environment)
    assert done.returncode == 75
    assert len(done.stderr.splitlines()) == 1


def test_a_store_of_no_known_kind_is_refused_though_nothing_is_said(place: Place) -> None:
    done = place.run("chat", "--store", "mysql://x")
    assert done.returncode == 2
    assert "Unknown store" in done.stderr


def test_without_input_there_is_nothing_to_answer(place: Place) -> None:
    assert place.run("chat").returncode == 0
    closed = subprocess.run(
        ["/bin/sh", "-c", f"exec {sys.executable} -m palaver chat <&-"],
        env=place.environment,
        capture_output=True,
        check=False,
        text=True,
    )
    assert (closed.returncode, closed.stdout, closed.stderr) == (0, "", "")


# Beside a running gateway


def open_files(process: "subprocess.Popen[str]") -> set[str]:
    names: set[str] = set()
    for entry in Path(f"/proc/{process.pid}/fd").iterdir():
        try:
            names.add(entry.readlink().name)
        except FileNotFoundError:
            continue
    return names


@pytest.mark.linux
def test_beside_a_gateway_the_database_is_not_opened_again(place: Place) -> None:
    gateway = place.up()
    talk = place.start("chat", "-m", "!slow 2 hello")
    until(lambda: turns(place) == ["running"])
    assert "palaver.db" in open_files(gateway)
    assert not [name for name in open_files(talk) if name.startswith("palaver.db")]
    assert "terminal" in place.run("sessions", "list").stdout
    assert talk.communicate()[0] == "You said: hello\n"
    assert ended(gateway, signal.SIGTERM) == 0


def test_a_second_gateway_is_refused_and_told_who_is_there(place: Place) -> None:
    gateway = place.up()
    second = place.run("up")
    assert second.returncode == 75
    assert f"pid {gateway.pid}" in second.stderr
    assert "Traceback" not in second.stderr


def test_a_wrong_configuration_is_no_reason_to_try_again(place: Place) -> None:
    place.configure("stores: x")
    for command in ("up", "chat"):
        done = place.run(command)
        assert done.returncode == 2
        assert "stores" in done.stderr


def test_a_gateway_reads_its_configuration_again(place: Place) -> None:
    gateway = place.up()
    place.configure("log: {level: error}\ngrants: [{effect: block, platform: terminal}]")
    gateway.send_signal(signal.SIGHUP)
    assert "a change of log waits for a restart" in read_until(gateway, "the configuration was reloaded")
    assert "blocks" in place.run("chat", "-m", "hello").stderr
    place.configure("nonsense: 1")
    gateway.send_signal(signal.SIGHUP)
    read_until(gateway, "the configuration stays as it was")
    place.configure("")
    gateway.send_signal(signal.SIGHUP)
    read_until(gateway, "the configuration was reloaded")
    assert place.run("chat", "-m", "hello").stdout == "You said: hello\n"


def test_terminals_that_start_at_once_share_one_gateway(place: Place) -> None:
    talks = [place.start("chat", "--chat", f"c{number}", "-m", f"!slow 1 number {number}") for number in range(3)]
    for number, talk in enumerate(talks):
        out, complaints = talk.communicate()
        assert (talk.returncode, out, complaints) == (0, f"You said: number {number}\n", "")
    assert turns(place) == ["done"] * 3


# Ends


def test_a_drained_turn_is_marked_and_taken_up_after_the_restart(place: Place) -> None:
    """The terminal stays, and gets the answer from the next gateway."""
    place.configure("limits: {drain_limit: 200ms}")
    gateway = place.up()
    talk = place.start("chat", "-m", "!slow 3 hello")
    until(lambda: turns(place) == ["running"])
    assert ended(gateway, signal.SIGTERM) == 0
    assert turns(place) == ["interrupted"]
    place.up()
    out, complaints = talk.communicate()
    assert (talk.returncode, out, complaints) == (0, "You said: hello\n", "")
    assert turns(place) == ["done"]


def test_told_twice_to_end_a_gateway_ends_at_once(place: Place) -> None:
    gateway = place.up()
    talk = place.start("chat", "-m", "!slow 60 hello")
    until(lambda: turns(place) == ["running"])
    gateway.send_signal(signal.SIGINT)
    read_until(gateway, "draining")
    assert ended(gateway, signal.SIGINT) == 1
    talk.kill()


def test_killed_in_the_middle_the_next_chat_gets_the_answer(place: Place) -> None:
    gateway = place.up()
    talk = place.start("chat", "-m", "!slow 1 the first")
    until(lambda: turns(place) == ["running"])
    ended(gateway, signal.SIGKILL)
    ended(talk, signal.SIGKILL)
    assert turns(place) == ["running"]
    assert list(place.home.glob("terminal-*.sock")), "the dead gateway leaves its socket behind"
    done = place.run("chat", "-m", "the second")
    assert (done.returncode, done.stderr) == (0, "")
    assert answers(done.stdout) == ["the first", "the second"]


def test_what_was_answered_while_nobody_was_there_is_shown_first(place: Place) -> None:
    gateway = place.up()
    talk = place.start("chat", "-m", "!slow 1 the first")
    until(lambda: turns(place) == ["running"])
    ended(talk, signal.SIGKILL)
    until(lambda: turns(place) == ["done"])
    assert asked(place, "SELECT state FROM outbox WHERE state = 'delivered'") == []
    assert answers(place.run("chat", "-m", "the second").stdout) == ["the first", "the second"]
    assert ended(gateway, signal.SIGTERM) == 0


def test_leaving_in_the_middle_is_quick_and_the_answer_comes_next_time(place: Place) -> None:
    talk = place.start("chat", "-m", "!slow 2 the first")
    log = place.home / "gateway.log"
    until(lambda: log.exists() and "turn began" in log.read_text())
    assert ended(talk, signal.SIGINT) == 130
    assert turns(place) == ["interrupted"]
    assert answers(place.run("chat", "-m", "the second").stdout) == ["the first", "the second"]
