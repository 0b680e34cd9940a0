"""The conformance suite, as an adapter author imports it. It needs pytest, and pytest-asyncio in its auto mode.

class TestMine(AdapterConformance):
    @pytest.fixture
    async def rig(self) -> AsyncIterator[Rig]: ...
"""

import pytest

from palaver.testkit.checks import AdapterConformance
from palaver.testkit.rig import (
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

# So that a failed check shows the values. It has to be said before the module is imported.
pytest.register_assert_rewrite("palaver.testkit.checks", "palaver.testkit.capabilities")
