"""One Dovecot for all tests of e-mail in this process."""

from collections.abc import AsyncGenerator, Generator

import pytest

from tests.needs import needing
from tests.platforms.email.dovecot import Dovecot, dovecot
from tests.platforms.email.post import PostOffice, post_office


@pytest.fixture(scope="session")
@needing("dovecot")
def imap_server() -> Generator[Dovecot]:
    with dovecot() as server:
        yield server


@pytest.fixture
async def office(imap_server: Dovecot) -> AsyncGenerator[PostOffice]:
    async with post_office(imap_server) as office:
        yield office
