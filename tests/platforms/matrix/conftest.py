"""One homeserver for all tests of Matrix."""

from collections.abc import Generator

import pytest

from tests.platforms.matrix.homeserver import Homeserver, shared


@pytest.fixture(scope="session")
def home(tmp_path_factory: pytest.TempPathFactory, worker_id: str = "master") -> Generator[Homeserver]:
    folder = tmp_path_factory.getbasetemp()
    with shared((folder if worker_id == "master" else folder.parent) / "synapse") as homeserver:
        yield homeserver
