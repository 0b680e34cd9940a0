"""What agents remember, in the API and the dashboard: the owner sees all notes, others those about them."""

import html

import httpx

from palaver.db.transaction import Statements, transaction
from palaver.protocols.clock import SystemClock
from palaver.store.people.api_tokens import Right
from palaver.web.tokens import issue_token
from tests.web.conftest import Opened

HOSTILE = "<script>alert(1)</script> likes tea"


@transaction
def _plant() -> Statements[None]:
    chat = "agent:main:telegram:group:-100"
    for identity, place in (("web:owner", None), ("telegram:7", None), ("telegram:7", chat)):
        yield (
            "INSERT INTO memory_notes (profile, identity, place, text, created) VALUES ('main', ?, ?, ?, 1)",
            (identity, place, HOSTILE),
        )
    replaced = "INSERT INTO memory_notes (profile, identity, text, created, replaced_by) VALUES ('main', ?, ?, 1, 2)"
    yield replaced, ("telegram:7", f"{HOSTILE} once")


async def test_the_api_lists_changes_and_deletes_notes(window: Opened) -> None:
    await window.store.transact(_plant())
    now = SystemClock().now()
    token, _ = await issue_token(window.store, now, name="t", rights=frozenset(Right))
    other, _ = await issue_token(window.store, now, name="o", rights=frozenset(Right), identity="telegram:7")
    async with httpx.AsyncClient(timeout=60, base_url=f"{window.url}/api/v1") as client:
        owner, theirs = ({"authorization": f"Bearer {each}"} for each in (token, other))
        listed = (await client.get("/memory", headers=owner)).json()["notes"]
        assert [(note["number"], note["chat"] is None) for note in listed] == [(1, True), (2, True), (3, False)]
        (mine,) = (await client.get("/memory", headers=theirs)).json()["notes"]
        (old,) = mine["replaced"]
        assert [(each["number"], each["replaced_by"]) for each in (mine, old)] == [(2, None), (4, 2)]
        for number in (1, 3):
            assert (await client.delete(f"/memory/{number}", headers=theirs)).status_code == 404
            assert (await client.patch(f"/memory/{number}", json={"text": "x"}, headers=theirs)).status_code == 404
        changed = (await client.patch("/memory/2", json={"text": "likes\ncoffee"}, headers=theirs)).json()
        assert (changed["text"], changed["edited"] is None) == ("likes coffee", False)
        assert (await client.patch("/memory/2", json={"text": "x" * 501}, headers=theirs)).status_code == 400
        assert (await client.delete("/memory/2", headers=theirs)).status_code == 200
        assert (await client.get("/memory", headers=theirs)).json() == {"notes": [], "after": None}
        left = (await client.get("/memory", headers=owner)).json()["notes"]
        assert [(note["number"], note["replaced"]) for note in left] == [(1, []), (3, [])]


async def test_the_page_shows_and_changes_notes(window: Opened, client: httpx.AsyncClient) -> None:
    assert "No notes yet." in (await client.get("/memory")).text
    await window.store.transact(_plant())
    shown = (await client.get("/memory")).text
    assert "<script>alert(1)" not in shown
    assert shown.count(html.escape(HOSTILE)) >= 3
    assert f"<s>{html.escape(HOSTILE)} once</s>" in shown
    assert "telegram:7" in shown
    assert (await client.post("/memory/1", data={"text": "likes coffee"})).status_code in {200, 303}
    assert "likes coffee" in (await client.get("/memory")).text
    assert (await client.post("/memory/1/forget", data={})).status_code in {200, 303}
    assert "likes coffee" not in (await client.get("/memory")).text
    async with window.visit("telegram:7") as person:
        assert (await person.get("/memory")).text.count('id="note') == 3  # the list, their only note, what it replaced
        assert (await person.post("/memory/3/forget", data={})).status_code in {403, 404}
