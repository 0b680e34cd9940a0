"""The tables of docs/platforms.md, made from what each platform declares.

python -m tests.project.platform_tables    write them
"""

import re
from collections.abc import Iterator
from pathlib import Path

from palaver.model.platform import Ability, Platform
from palaver.platforms.plugins import BUILT_IN, PLATFORMS

__all__ = ["PAGE", "filled"]

PAGE = Path(__file__).parents[2] / "docs/platforms.md"
_OTHERS = """\
| accounts of a connector | `relay` | connects to the connector, which holds the accounts | [relay](relay.md) |
| a plugin | its package | see its documentation | [write an adapter](adapters.md) |
"""


def filled(page: str) -> str:
    """Return the page with its tables as they should be. A table is everything between two comments."""
    for name, lines in {"platforms": _platforms(), "abilities": _abilities()}.items():
        table = re.compile(rf"(<!-- {name} -->\n).*?(<!-- /{name} -->)", re.DOTALL)
        page = table.sub(lambda found, lines=lines: f"{found[1]}\n{''.join(lines)}\n{found[2]}", page)
    return page


def _platforms() -> Iterator[str]:
    yield "| platform | extra | connection | more |\n|---|---|---|---|\n"
    for each in sorted(PLATFORMS.values(), key=lambda each: (each.name not in BUILT_IN, each.title.casefold())):
        needs = each.needs or ", or ".join(f"`{extra}`" for extra in each.extras)
        yield f"| `{each.name}` | {needs} | {each.connection} | [{each.title}]({each.page or f'{each.name}.md'}) |\n"
    yield _OTHERS


def _abilities() -> Iterator[str]:
    yield f"| | {' | '.join(Ability)} |\n|{'---|' * (len(Ability) + 1)}\n"
    for each in sorted(PLATFORMS.values(), key=lambda each: each.title.casefold()):
        if each.name not in BUILT_IN:
            yield f"| {each.title} | {' | '.join(_marks(each))} |\n"


def _marks(platform: Platform) -> Iterator[str]:
    return ("✓" if each in platform.abilities else " " for each in Ability)


if __name__ == "__main__":
    PAGE.write_text(filled(PAGE.read_text()))
