"""Output as text: without terminal control and secrets, and with a description of binary data."""

import re

from palaver.model.attachment import format_size
from palaver.model.redact import redact
from palaver.model.text import without_invisible

# Control sequences (CSI), operating system commands (OSC) and other strings, and two-character escapes.
_ESCAPES = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]{0,4096}(?:\x07|\x1b\\)?|[PX^_][^\x1b]{0,4096}(?:\x1b\\)?|[ -/]*[0-~])"
)
_PROMPT = re.compile(r"[?:>\])$#] *\Z")
"""How a line ends in which a program asks for input."""
_BINARY_SHARE = 0.3
_SAMPLE = 4096


def readable(data: bytes) -> str:
    """Return output as people and agents read it."""
    text = data.decode("utf-8", "replace")
    if is_binary(data):
        return f"({format_size(len(data))} of binary output)"
    text = _ESCAPES.sub("", text).replace("\r\n", "\n")
    text = "\n".join(map(_as_shown, text.split("\n"))).replace("\r", "\n")
    return redact("\t".join(map(without_invisible, text.split("\t"))))


def _as_shown(line: str) -> str:
    """Return what a terminal shows of a line in the end: without what was erased or written over."""
    if "\b" in line:
        kept: list[str] = []
        for character in line:
            if character != "\b":
                kept.append(character)
            elif kept:
                kept.pop()
        line = "".join(kept)
    end = "\r" if line.endswith("\r") else ""
    return line.removesuffix("\r").rpartition("\r")[2] + end


def whole_lines(output: bytes) -> bytes:
    """Leave out a last line that goes on, as it can end in half a secret. Keep it if it ends as a prompt does."""
    start = max(output.rfind(b"\n"), output.rfind(b"\r")) + 1
    line = _ESCAPES.sub("", output[start:].decode("utf-8", "replace"))
    return output if _PROMPT.search(line) else output[:start]


def is_binary(data: bytes) -> bool:
    """Tell whether much of it is no text. Bytes of a character that was cut at the edges do not count."""
    if not data:
        return False
    sample = data[:_SAMPLE]
    text = sample.decode("utf-8", "replace")
    odd = sum(
        character == "\ufffd" or (character < " " and character not in "\t\n\r\b\x1b\x07\f") for character in text
    )
    return odd > max(_BINARY_SHARE * len(text), 8)


def last_lines(text: str, limit: int) -> str:
    """Return the end of a text, from the start of a line if that is possible."""
    if len(text) <= limit:
        return text
    end = text[-limit:]
    _, newline, rest = end.partition("\n")
    return f"… {rest if newline and rest.strip() else end}"
