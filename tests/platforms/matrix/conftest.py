"""One homeserver for all tests of Matrix, however many processes they run in."""

import os
from collections.abc import Generator

import pytest

from tests.platforms.matrix.homeserver import Homeserver, shared


@pytest.fixture(scope="session")
def home(tmp_path_factory: pytest.TempPathFactory) -> Generator[Homeserver]:
    folder = tmp_path_factory.getbasetemp()
    with shared((folder.parent if os.environ.get("PYTEST_XDIST_WORKER") else folder) / "synapse") as homeserver:
        yield homeserver
