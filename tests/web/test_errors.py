"""Anything that goes wrong is said in the form that the caller reads, and in words of nobody."""

import httpx
import pytest

from palaver.model.errors import StoreUnavailable
from palaver.web.errors import INTERNAL_ERROR, STORE_AWAY
from palaver.web.pages.common import parse_number
from palaver.web.routes import WebRequest


@pytest.mark.drops_transactions
async def test_what_nobody_expected_is_said_in_the_form_that_was_asked_for(
    client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def breaks(*_: object) -> None:
        raise ValueError("words of somebody's")

    for how in ("read", "browse"):
        monkeypatch.setattr(WebRequest, how, breaks)
    page, program = await client.get("/sessions"), await client.get("/api/v1/sessions")
    assert (page.status_code, program.status_code) == (500, 500)
    assert INTERNAL_ERROR in page.text
    assert 'href="/search"' in page.text, "it is a page like any other"
    assert "content-security-policy" in page.headers
    assert program.headers["content-type"] == "application/problem+json"
    assert program.json()["detail"] == INTERNAL_ERROR
    broke = [record for record in caplog.records if getattr(record, "action", "") == "web.error"]
    assert len(broke) == 2
    assert "somebody's" not in caplog.text + page.text + program.text


@pytest.mark.drops_transactions
async def test_that_the_store_does_not_answer_names_no_file_of_the_machine(
    client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def breaks(*_: object) -> None:
        raise StoreUnavailable("the database /srv/palaver.db could not commit")

    for how in ("read", "browse"):
        monkeypatch.setattr(WebRequest, how, breaks)
    page, program = await client.get("/sessions"), await client.get("/api/v1/sessions")
    assert (page.status_code, program.status_code) == (503, 503)
    assert STORE_AWAY in page.text
    assert program.json()["detail"] == STORE_AWAY
    assert "/srv" not in page.text + program.text
    assert "/srv/palaver.db could not commit" in caplog.text


async def test_what_can_be_done_with_an_address_is_said_in_full(client: httpx.AsyncClient) -> None:
    for path, allowed in (
        ("/api/v1/sessions/x", "DELETE, GET, HEAD, PATCH"),
        ("/api/v1/messages", "POST"),
        ("/api/v1/grants", "GET, HEAD, POST"),
        ("/login", "GET, HEAD, POST"),
        ("/sessions", "GET, HEAD"),
        ("/v1/chat/completions", "POST"),
        ("/mcp", "POST"),
    ):
        for method in ("PUT", "OPTIONS"):
            answer = await client.request(method, path)
            assert (answer.status_code, answer.headers["allow"]) == (405, allowed), (method, path)
    assert (await client.head("/sessions")).status_code == 200


async def test_numbers_in_addresses_can_be_anything(client: httpx.AsyncClient) -> None:
    long = "9" * 5000
    for address in ("/chat?before=", "/search?q=x&limit=", "/messages?before="):
        for text in ("²", "-1", "", "9" * 18, long):
            assert (await client.get(f"{address}{text}", follow_redirects=True)).status_code == 200, (address, text)
    for name in ("before", "after", "at"):
        assert (await client.get(f"/sessions/none?{name}={long}")).status_code == 404
    assert [parse_number(text) for text in ("42", "٣", "²", "", "-1", " 1", long)] == [42, *[None] * 6]
