"""The adapter guide lists every field of the values that an adapter makes."""

import re
from dataclasses import fields
from pathlib import Path

import pytest

from palaver.protocols import Inbound, Limits, Platform, Source

GUIDE = Path(__file__).parents[2] / "docs/adapters.md"


@pytest.mark.parametrize("kind", [Platform, Limits, Source, Inbound])
def test_every_field_is_listed(kind: type) -> None:
    _, _, rest = GUIDE.read_text().partition(f"\n`{kind.__name__}`: ")
    table = rest.partition("\n\n")[2].partition("\n\n")[0]
    listed = re.findall(r"`(\w+)`", " ".join(line.split("|")[1] for line in table.splitlines()))
    assert sorted(listed) == sorted(field.name for field in fields(kind))
