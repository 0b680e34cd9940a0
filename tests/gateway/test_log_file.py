"""The log that is kept: bounded, private, without content, and read as people look for it."""

import json
import logging
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from palaver.cli.main import main
from palaver.gateway.log_file import LogFile, follow_log, log_end, read_log
from palaver.model.log_line import LogFilter, LogLevel, parse_log_line

NOW = datetime.now(UTC)


class Log:
    def __init__(self, folder: Path) -> None:
        self.handler = LogFile(folder, 1)

    def write(self, sentence: str, action: str = "turn.started", level: int = logging.INFO, age: int = 0) -> None:
        record = logging.LogRecord("palaver.x", level, "", 0, sentence, (), None)
        vars(record).update(action=action, turn=7, created=(NOW - timedelta(minutes=age)).timestamp())
        self.handler.handle(record)


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Log]:
    monkeypatch.setenv("PALAVER_HOME", str(tmp_path))
    monkeypatch.setattr("palaver.cli.shared_options.now", lambda: NOW)  # all tests together can take hours
    made = Log(tmp_path)
    yield made
    made.handler.close()


def test_lines_are_found_by_level_action_and_time(log: Log, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["logs"]) == 0
    assert "No gateway has logged anything" in capsys.readouterr().err
    log.write("turn began", age=120)
    log.write("it failed", "turn.failed", logging.WARNING, age=30)
    log.write("a hook failed", "hook.failed", logging.ERROR)
    for options, said in (
        ([], ["turn began", "it failed", "a hook failed"]),
        (["--limit", "1"], ["a hook failed"]),
        (["--level", "warning"], ["it failed", "a hook failed"]),
        (["--action", "turn.failed"], ["it failed"]),
        (["--action", "turn"], ["turn began", "it failed"]),
        (["--since", "1h"], ["it failed", "a hook failed"]),
        (["--action", "turn.fail"], []),
    ):
        assert main(["logs", "--json", *options]) == 0
        printed = capsys.readouterr()
        assert [json.loads(line)["sentence"] for line in printed.out.splitlines()] == said, options
        assert ("No line matches." in printed.err) is (not said)
    assert main(["logs", "--limit", "1"]) == 0
    assert capsys.readouterr().out.endswith("error    a hook failed action=hook.failed turn=7\n")
    assert main(["logs", "--level", "loud"]) == 2
    assert "debug, info, warning, error" in capsys.readouterr().err


def test_the_log_is_bounded_and_only_its_owner_reads_it(log: Log, tmp_path: Path) -> None:
    for number in range(12_000):
        log.write(f"line {number}")
    files = sorted(tmp_path.iterdir())
    assert [file.name for file in files] == ["gateway.log", "gateway.log.1"]
    assert sum(file.stat().st_size for file in files) <= 1_000_000
    assert {file.stat().st_mode & 0o777 for file in files} == {0o600}
    read = read_log(tmp_path, LogFilter(), 10_000)
    numbers = [int(line.sentence.removeprefix("line ")) for line in read]
    assert numbers == list(range(numbers[0], 12_000)), "none is missing between the files"
    assert len(files[0].read_bytes()) < len(numbers) * 100, "more than the newer file was read"


def test_following_misses_nothing_when_the_file_is_full(log: Log, tmp_path: Path) -> None:
    log.write("before")
    end = log_end(tmp_path)
    log.write("between")
    assert [line.sentence for line in read_log(tmp_path, LogFilter(), 9, end)] == ["before"]
    expected = iter(range(12_000))

    def write_more() -> None:
        for _ in range(1000):
            if (number := next(expected, None)) is not None:
                log.write(str(number))

    found = follow_log(tmp_path, LogFilter(), end, write_more)
    assert next(found).sentence == "between"
    assert [next(found).sentence for _ in range(12_000)] == [str(number) for number in range(12_000)]


def test_what_is_no_line_of_ours_is_skipped() -> None:
    for text in ("", "{", "[]", "7", '{"at": "x", "level": "info", "sentence": ""}', '{"level": "info"}'):
        assert parse_log_line(text) is None
    line = parse_log_line('{"at": "2026-03-29T12:00:00+02:00", "level": "critical", "sentence": "x"}')
    assert line
    assert line.at.hour == 10
    assert LogFilter(level=LogLevel.ERROR).keeps(line)


def test_no_log_is_kept_if_you_say_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "own.yaml").write_text("log: {keep_megabytes: 0}")
    monkeypatch.setenv("PALAVER_CONFIG", str(tmp_path / "own.yaml"))
    monkeypatch.setenv("PALAVER_HOME", str(tmp_path / "home"))
    assert main(["chat", "-m", "hello"]) == 0
    assert not list((tmp_path / "home").glob("gateway.log*"))
    assert main(["logs"]) == 0
    assert "log.keep_megabytes is 0" in capsys.readouterr().err
