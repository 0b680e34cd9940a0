"""One Prosody for all tests of XMPP in this process."""

from collections.abc import Generator

import pytest

from tests.needs import needing
from tests.platforms.xmpp.prosody import Prosody, prosody


@pytest.fixture(scope="session")
@needing("prosody")
def xmpp_server() -> Generator[Prosody]:
    with prosody() as server:
        yield server
