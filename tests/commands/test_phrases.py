"""How commands list."""

import pytest

from palaver.commands.formatting import listed


@pytest.mark.parametrize(
    ("count", "told"),
    [(0, ""), (1, "0"), (2, "0, 1"), (20, ", 18, 19"), (21, ", 18, 19 and 1 more"), (500, ", 18, 19 and 480 more")],
)
def test_a_long_list_says_how_many_more_there_are(count: int, told: str) -> None:
    assert listed(map(str, range(count))).endswith(told)
