"""One ngIRCd for all tests of IRC in this process."""

from collections.abc import Generator

import pytest

from tests.needs import needing
from tests.platforms.irc.ngircd import ngircd


@pytest.fixture(scope="session")
@needing("ngircd")
def irc_port() -> Generator[int]:
    with ngircd() as port:
        yield port
