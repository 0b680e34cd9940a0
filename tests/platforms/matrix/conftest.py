"""One homeserver for all tests of Matrix, however many processes they run in."""

from collections.abc import Generator

import pytest

from tests.platforms.matrix.homeserver import Homeserver, shared


@pytest.fixture(scope="session")
def home(tmp_path_factory: pytest.TempPathFactory) -> Generator[Homeserver]:
    with shared(tmp_path_factory.getbasetemp() / "synapse") as homeserver:
        yield homeserver
