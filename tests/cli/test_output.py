"""What commands print for people."""

import pytest

from palaver.cli.output import print_list


def test_what_was_said_is_shortened_before_anything_else(capsys: pytest.CaptureFixture[str]) -> None:
    columns = {"session": "", "title": "bold", "last active": "", "last said": "dim"}
    print_list(columns, [("s" * 26, "A title of thirty letters here", "33 minutes ago", "word " * 50)])
    _, row = capsys.readouterr().out.splitlines()
    assert "A title of thirty letters here  33 minutes ago  word" in row
    assert row.endswith("…")
    assert len(row) <= 120
