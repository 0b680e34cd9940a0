"""Scheduled jobs in the API and the dashboard: made, tried, changed, run and removed, by those who can see them."""

import html

import httpx

from palaver.protocols.clock import SystemClock
from palaver.store.people.api_tokens import Right
from palaver.web.tokens import issue_token
from tests.web.conftest import Opened
from tests.web.test_pages import until

HOSTILE = "<script>alert(1)</script> \u202e\x1b[31m"


async def test_the_api_makes_runs_and_changes_jobs(window: Opened) -> None:
    now = SystemClock().now()
    token, _ = await issue_token(window.store, now, name="t", rights=frozenset(Right))
    other, _ = await issue_token(window.store, now, name="o", rights=frozenset(Right), identity="telegram:7")
    asked = {"when": "every 2h", "prompt": "What is new?", "to": "local"}
    async with httpx.AsyncClient(timeout=60, base_url=f"{window.url}/api/v1") as client:
        client.headers["authorization"] = f"Bearer {token}"
        tried = await client.post("/jobs", json=asked | {"dry_run": True})
        assert (tried.status_code, len(tried.json()["next"])) == (201, 5)
        assert (await client.get("/jobs")).json() == {"jobs": [], "after": None}
        number = (await client.post("/jobs", json=asked)).json()["number"]

        assert (await client.post(f"/jobs/{number}/pause")).json()["state"] == "paused"
        assert (await client.post(f"/jobs/{number}/resume")).json()["state"] == "active"
        assert (await client.post(f"/jobs/{number}/run")).status_code == 200

        async def is_delivered() -> bool:
            runs = (await client.get(f"/jobs/{number}")).json()["runs"]
            return [(run["run"], run["delivery"]) for run in runs] == [("done", "delivered")]

        await until(is_delivered)
        (written,) = window.config.data_dir.glob("output/**/*.md")
        assert "You said: What is new?" in written.read_text()

        for wrong, status in (
            ({"when": "someday", "prompt": "x"}, 400),
            ({"when": "1h", "prompt": "x", "repeat": 10**30}, 400),
            ({"when": "1h", "prompt": "x", "to": "nowhere"}, 400),
            ({"when": "1h", "prompt": "x", "workdir": "here"}, 400),
            ({"when": "1h"}, 400),
        ):
            assert (await client.post("/jobs", json=wrong)).status_code == status, wrong
        for path in ("/jobs?after=99999999999999999999", "/jobs?limit=0", "/jobs/99999999999999999999"):
            assert (await client.get(path)).status_code in {400, 404}, path
        foreign = {"authorization": f"Bearer {other}"}
        assert (await client.get("/jobs", headers=foreign)).json()["jobs"] == []
        for answer in (
            await client.get(f"/jobs/{number}", headers=foreign),
            await client.post(f"/jobs/{number}/run", headers=foreign),
            await client.delete(f"/jobs/{number}", headers=foreign),
        ):
            assert answer.status_code == 404
        assert (await client.post("/jobs", json=asked, headers=foreign)).status_code == 403
        assert (await client.delete(f"/jobs/{number}")).status_code == 200
        assert (await client.get(f"/jobs/{number}")).status_code == 404


async def test_the_page_shows_and_changes_jobs(window: Opened, client: httpx.AsyncClient) -> None:
    empty = await client.get("/jobs")
    assert "No jobs." in empty.text
    form = {"when": "every day at 18:00", "prompt": HOSTILE}
    assert (await client.post("/jobs", data=form)).status_code in {200, 303}
    for path in ("/jobs", "/jobs/1"):
        shown = (await client.get(path)).text
        assert "<script>alert(1)" not in shown
        assert html.escape("<script>alert(1)</script>") in shown
        assert "\u202e" not in shown
        assert "\x1b" not in shown
        assert "at 18:00 every day in UTC" in shown
    for action, seen in (("pause", "paused"), ("resume", "next"), ("remove", "No jobs.")):
        await client.post(f"/jobs/1/{action}", data=form)
        assert seen in (await client.get("/jobs")).text
    assert (await client.post("/jobs/1/explode", data=form)).status_code == 404
    assert (await client.post("/jobs", data=form | {"when": "nonsense"})).status_code == 400
    async with window.visit("telegram:7") as stranger:
        page = (await stranger.get("/jobs")).text
        assert "No jobs." in page
