"""The conformance suite for adapters. It needs pytest, and pytest-asyncio in auto mode.

Write a fake server of your platform (`palaver.testkit.fake_server`) and inherit the checks:

    from collections.abc import AsyncIterator

    import pytest

    from palaver.testkit.conformance import AdapterConformance
    from palaver.testkit.fake_server import FakeServer
    from tests.loft import FakeLoft


    class TestPigeon(AdapterConformance):
        @pytest.fixture
        async def fake(self) -> AsyncIterator[FakeServer]:
            async with FakeLoft().serve() as loft:
                yield loft
"""

import pytest

# Register before the first import, or a failed check does not show its values.
pytest.register_assert_rewrite("palaver.testkit.checks", "palaver.testkit.capability_checks")

from palaver.testkit.checks import AdapterConformance  # noqa: E402

__all__ = ["AdapterConformance"]
