"""The conformance suite, as an adapter author imports it. It needs pytest, and pytest-asyncio in its auto mode.

class TestMine(AdapterConformance):
    @pytest.fixture
    async def rig(self) -> AsyncIterator[Rig]: ...
"""

import pytest

# Register before the first import, or a failed check does not show its values.
pytest.register_assert_rewrite("palaver.testkit.checks", "palaver.testkit.capabilities")

from palaver.testkit.checks import AdapterConformance  # noqa: E402
from palaver.testkit.rig import (  # noqa: E402
    CannotHappen,
    FilingRig,
    MentioningRig,
    MenuRig,
    MovingRig,
    NamingRig,
    PressingRig,
    RevisingRig,
    Rig,
    Shown,
)

__all__ = [
    "AdapterConformance",
    "CannotHappen",
    "FilingRig",
    "MentioningRig",
    "MenuRig",
    "MovingRig",
    "NamingRig",
    "PressingRig",
    "RevisingRig",
    "Rig",
    "Shown",
]
