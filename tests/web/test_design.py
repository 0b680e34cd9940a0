"""The design language: tokens with enough contrast in both themes, used everywhere and written down."""

import re
from pathlib import Path

from palaver.web import pages

_WEB = Path(pages.__file__).parent.parent
_SHEETS = {path.name: path.read_text() for path in (_WEB / "static").glob("*.css")}
_PAGE = Path(__file__).parents[2] / "docs" / "design.md"
_COLOUR = re.compile(r"(--[a-z-]+): light-dark\((#[0-9a-f]{6}), (#[0-9a-f]{6})\)")
_TEXT = ("--ink", "--faint", "--accent", "--good", "--bad", "--warn")
_PAIRS = (
    *((text, ground, 4.5) for text in _TEXT for ground in ("--paper", "--sheet")),
    *(("--ink", ground, 4.5) for ground in ("--mine", "--hover", "--mark")),
    *(("--faint", ground, 4.5) for ground in ("--mine", "--hover")),
    ("--on-accent", "--accent", 4.5),
    ("--paper", "--warn", 4.5),
    ("--field", "--sheet", 3),
    ("--accent", "--sheet", 3),
    ("--plot-b", "--sheet", 3),
)


def _luminance(colour: str) -> float:
    channels = (int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5))
    red, green, blue = (c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in channels)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def _contrast(one: str, other: str) -> float:
    low, high = sorted((_luminance(one), _luminance(other)))
    return (high + 0.05) / (low + 0.05)


def test_both_themes_have_enough_contrast() -> None:
    tokens = {name: (light, dark) for name, light, dark in _COLOUR.findall(_SHEETS["palaver.css"])}
    low = [
        f"{text} on {ground}, {theme}: {found:.2f}"
        for text, ground, least in _PAIRS
        for place, theme in enumerate(("light", "dark"))
        if (found := _contrast(tokens[text][place], tokens[ground][place])) < least
    ]
    assert not low


def test_every_token_is_written_down_and_colours_come_from_tokens_alone() -> None:
    text = _PAGE.read_text()
    root = _SHEETS["palaver.css"].partition("}")[0]
    assert [name for name in re.findall(r"(--[a-z0-9-]+):", root) if f"`{name}`" not in text] == []
    elsewhere = _SHEETS["palaver.css"].partition("}")[2] + _SHEETS["pages.css"]
    assert re.findall(r"#[0-9a-fA-F]{3,8}\b(?=[^{]*;)", elsewhere) == []


def test_motion_heeds_the_setting() -> None:
    for name in ("palaver.css", "pages.css"):
        allowed = re.compile(r"@media \(prefers-reduced-motion: no-preference\) \{.*?\n\}", re.DOTALL)
        sheet = allowed.sub("", _SHEETS[name])
        assert not re.search(r"(?<!-)(?:animation|transition):", sheet), name
