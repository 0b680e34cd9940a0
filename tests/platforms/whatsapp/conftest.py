"""Nothing here speaks TLS, so all clients share one context: to load the certificates takes 50 ms each time."""

from functools import partial

import httpx2
import pytest

_CONTEXT = httpx2.create_ssl_context()


@pytest.fixture(autouse=True)
def _shared_context(monkeypatch: pytest.MonkeyPatch) -> None:  # pyright: ignore[reportUnusedFunction]
    monkeypatch.setattr(httpx2, "AsyncClient", partial(httpx2.AsyncClient, verify=_CONTEXT))
