"""One Prosody for all tests of XMPP in this process."""

from collections.abc import Iterator

import pytest

from tests.platforms.xmpp.prosody import Prosody, prosody


@pytest.fixture(scope="session")
def xmpp_server() -> Iterator[Prosody]:
    with prosody() as server:
        yield server
