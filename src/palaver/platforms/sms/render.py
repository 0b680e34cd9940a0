"""Render messages as SMS: plain text, in the cheaper alphabet if that is possible."""

from math import ceil

from palaver.protocols import Unit
from palaver.protocols.markdown import to_plain

MAX_TEXT = 1600
_BASIC = frozenset(
    "@£$¥èéùìòÇ\nØø\rÅåΔ_ΦΓΛΩΠΨΣΘΞÆæßÉ !\"#¤%&'()*+,-./0123456789:;<=>?¡ABCDEFGHIJKLMNOPQRSTUVWXYZÄÖÑÜ§¿"
    "abcdefghijklmnopqrstuvwxyzäöñüà"
)
_EXTENDED = frozenset("\f^{}\\[~]|€")
_PLAIN = str.maketrans(
    {"“": '"', "”": '"', "„": '"', "‘": "'", "’": "'", "–": "-", "—": "-", "…": "...", "•": "-", "\u00a0": " "}  # noqa: RUF001
)


def plain_text(text: str) -> str:
    """Return what people see. Typographic characters are replaced if the message is cheaper without them."""
    shown = to_plain(text, MAX_TEXT, Unit.UTF16)
    simple = shown.translate(_PLAIN)
    return simple if len(simple) <= MAX_TEXT and segments(simple) < segments(shown) else shown


def segments(text: str) -> int:
    """Return how many SMS a message is sent and paid as."""
    if all(character in _BASIC or character in _EXTENDED for character in text):
        size, alone, joined = sum(2 if character in _EXTENDED else 1 for character in text), 160, 153
    else:
        size, alone, joined = Unit.UTF16.measure(text), 70, 67
    return 1 if size <= alone else ceil(size / joined)
