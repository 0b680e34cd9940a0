"""What commands print for people."""

import io
import sys

import pytest

from palaver.cli.main import main
from palaver.cli.output import confirmed, print_heading, print_line, print_list, print_note, print_verdict, progress
from palaver.model.errors import StoreError


def test_what_was_said_is_shortened_before_anything_else(capsys: pytest.CaptureFixture[str]) -> None:
    columns = {"session": "", "title": "bold", "last active": "", "last said": "dim"}
    print_list(columns, [("s" * 26, "A title of thirty letters here", "33 minutes ago", "word " * 50)])
    _, row = capsys.readouterr().out.splitlines()
    assert "A title of thirty letters here  33 minutes ago  word" in row
    assert row.endswith("…")
    assert len(row) <= 120


def test_nothing_plays_tricks_on_a_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    trick = "a\x1b[31mb\u202ec"
    monkeypatch.setattr("sys.stdin", io.StringIO())
    for say in (print_line, print_note, print_heading, confirmed):
        say(trick)
    print_verdict(trick, trick, ok=False, fix=trick)
    printed = capsys.readouterr()
    assert (printed.out + printed.err).count(r"a\x1b[31mb\u202ec") == 7
    assert not {"\x1b", "\u202e"} & {*printed.out, *printed.err}


def test_the_example_of_a_mistake_is_of_the_command_that_was_called(capsys: pytest.CaptureFixture[str]) -> None:
    for args in (["backup", "verify"], ["backup", "verify", "-x"]):
        assert main(args) == 2
        assert "for example palaver backup verify palaver.tar" in capsys.readouterr().err


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("said", "meant"), [("version", "--version"), ("stup", "setup"), ("sessions lst", "list"), ("xyzzy", "")]
)
def test_an_unknown_command_gets_a_guess_only_where_one_is_near(
    said: str, meant: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(said.split()) == 2
    words = capsys.readouterr().err
    assert words.endswith(f"'. Did you mean {meant}?\n") if meant else "'xyzzy'. Use backup, chat" in words


def test_progress_is_cleared_also_if_the_work_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    def work() -> None:
        with progress("rows") as show:
            show(3)
            raise StoreError("no room")

    monkeypatch.setattr(sys, "stderr", screen := Terminal())
    with pytest.raises(StoreError):
        work()
    assert screen.getvalue() == "\r\x1b[K3 rows \r\x1b[K"
