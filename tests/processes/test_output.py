"""Output as people and agents read it."""

from pathlib import Path

from palaver.processes.directory import ProcessDirectory
from palaver.processes.output import readable, whole_lines
from palaver.processes.pages import read_page

TOKEN = "ghp_abcdefghijklmnopqrstuvwxyz0123456789"  # noqa: S105 - of nobody
BODY = f"{'MIIEvQIBADANBgkqhkiG9w0BAQEF' * 2}\n{'AASCBKcwggSjAgEAAoIBAQC7VJTU' * 2}"
KEY = f"-----BEGIN PRIVATE KEY-----\n{BODY}\n-----END PRIVATE KEY-----"


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


def test_a_line_that_goes_on_is_left_out_unless_it_is_a_prompt() -> None:
    for data, shown in (
        (b"", b""),
        (b"done\n", b"done\n"),
        (b"done\nnot ye", b"done\n"),
        (b'password: "correct horse battery sta', b""),
        (b"mysql -u root -p'my secret pa", b""),
        (b"10%\r20%\r30%", b"10%\r20%\r"),
        (b"half\xc3", b""),
        (b"ghp_777\x1b]", b""),
    ):
        assert whole_lines(data) == shown, data
    for prompt in (b"Sure?", b"Name:  ", b"> ", b"Overwrite? [y/N]", b"(y or n)", b"$ ", b"root# ", b"Go? \x1b[0m"):
        assert whole_lines(b"done\n" + prompt) == b"done\n" + prompt


def test_a_long_line_takes_no_longer_than_many_short_ones() -> None:
    """Each of these took minutes when the time grew with the square of the length."""
    size = 1_000_000
    for data in (b"a" * size, b"a" * size + b"\r", b"\x1b[" + b"0" * size):
        assert len(readable(data)) >= size
    assert readable(b"a" * size + b"\b" * size) == ""


def test_the_edge_of_a_page_uncovers_no_secret(tmp_path: Path) -> None:
    directory = ProcessDirectory(tmp_path)
    for secret in (TOKEN, KEY):
        data = f"before é\nit is {secret} and more\nafter\n".encode()
        (tmp_path / "out.000000").write_bytes(data)
        parts = {secret[at : at + 6] for at in range(len(secret) - 6)}
        for edge in range(1, len(data)):
            first = read_page(directory, 0, edge)
            second = read_page(directory, first.end, len(data))
            asked = read_page(directory, edge, len(data))
            for page in (first, second, asked):
                assert not any(part in page.text for part in parts), (edge, page)
            assert (first.start, second.start, second.end) == (0, first.end, len(data))
            assert first.text + second.text == readable(data), edge


def test_a_page_ends_with_a_line_and_a_line_that_grows_waits(tmp_path: Path) -> None:
    directory = ProcessDirectory(tmp_path)
    (tmp_path / "out.000000").write_bytes(b"one\ntwo\nthree")
    assert read_page(directory, 0, 6).text == "one\n"
    assert read_page(directory, 8, 3).text == "thr"
    assert read_page(directory, None, 100).text == "one\ntwo\nthree"
    assert read_page(directory, 0, 100, is_growing=True).text == "one\ntwo\n"
    assert read_page(directory, 8, 100, is_growing=True).end == 8
