"""Output as people and agents read it."""

from palaver.processes.output import readable


def test_a_line_shows_what_a_terminal_shows_in_the_end() -> None:
    for data, shown in (
        (b"10%\r50%\r100%\r\nend", "100%\nend"),
        (b"10%\r50%\r", "50%\n"),
        (b"a\r\r\nb", "a\n\nb"),
        (b"\rb\n\ra", "b\na"),
        (b"abx\b\b\bcd\b\nend\b\b\b\b.", "c\n."),
        (b"\b\n\bx", "\nx"),
        (b"a\tb\rc\td", "c\td"),
    ):
        assert readable(data) == shown, data


def test_a_long_line_takes_no_longer_than_many_short_ones() -> None:
    """Each of these took minutes when the time grew with the square of the length."""
    size = 1_000_000
    for data in (b"a" * size, b"a" * size + b"\r", b"\x1b[" + b"0" * size):
        assert len(readable(data)) >= size
    assert readable(b"a" * size + b"\b" * size) == ""
