"""One Prosody for all tests of XMPP in this process."""

from collections.abc import Generator

import pytest

from tests.platforms.xmpp.prosody import Prosody, prosody


@pytest.fixture(scope="session")
def xmpp_server() -> Generator[Prosody]:
    with prosody() as server:
        yield server
