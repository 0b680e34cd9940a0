"""Settings in the window: what is written into the file, what applies at once, and who cannot change anything."""

import os
import re
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
import pytest_asyncio

from palaver.agents.hub import SUGGESTIONS, memory_of_machine, suggested
from palaver.config.editor import ConfigFile
from palaver.db.transaction import Statements, transaction
from palaver.model.session import Principal
from palaver.protocols.clock import SystemClock
from palaver.store.backup.restore import restore
from palaver.store.opening import open_store
from palaver.web.errors import INTERNAL_ERROR
from palaver.web.pages.navigation import DIAGNOSTICS, NAVIGATION
from palaver.web.settings import Settings
from palaver.web.tokens import issue_token
from tests.agents.fake_provider import Refuses, providing
from tests.pigeon import install
from tests.web.conftest import Opened, config_file, opened
from tests.web.demo_data import Stage, dm

pytestmark = pytest.mark.asyncio(loop_scope="module")

KEY = "sk-very-secret-key-0123456789"
BEFORE = "# mine\ntimezone: UTC # here\nagent:\n  name: echo\n  streams: true\n# last\n"
SECTIONS = ("model", "instructions", "tools", "accounts", "people", "limits", "general", "data")


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> ConfigFile:
    return config_file(tmp_path_factory.mktemp("settings"), BEFORE, PALAVER_TITLES="false")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared(file: ConfigFile) -> AsyncIterator[Opened]:
    async with opened(file.load().config, file=file) as window:
        yield window


@pytest_asyncio.fixture(loop_scope="module")
async def client(shared: Opened) -> AsyncIterator[httpx.AsyncClient]:
    async with shared.visit() as client:
        yield client


async def save(client: httpx.AsyncClient, section: str, **fields: str) -> httpx.Response:
    """As the script does, which shows what is answered."""
    return await client.post(f"/settings/{section}", data=fields)


async def test_every_section_shows_what_is_set_and_where(client: httpx.AsyncClient) -> None:
    for section in SECTIONS:
        page = await client.get(f"/settings/{section}")
        assert page.status_code == 200, page.text
        assert 'aria-current="page"' in page.text
    page = (await client.get("/settings/general")).text
    assert 'value="UTC"' in page
    assert "palaver.yaml, line 2" in page
    assert "set by the variable PALAVER_TITLES" in page
    assert (await client.get("/settings")).headers["location"] == "/settings/model"


async def test_a_field_is_written_with_its_comment_and_applies_at_once(
    client: httpx.AsyncClient, shared: Opened, file: ConfigFile
) -> None:
    await Stage(shared.store, SystemClock().now()).exchange(dm("7"), "hello", "hi", name="Ann")
    answer = await save(client, "general", timezone="Asia/Tokyo", busy="queue", titles="true")
    assert answer.text == "Saved in palaver.yaml, line 2. It applies now."
    assert file.content() == BEFORE.replace("UTC", "Asia/Tokyo")
    for path in ("/people", "/sessions", "/messages", "/"):
        assert " JST" in (await client.get(path)).text, path
    answer = await save(client, "limits", role="guest", **{"caps.guest.person_day.tokens": "1000"})
    assert "It applies now." in answer.text
    assert "  guest:\n    person_day:\n      tokens: 1000\n" in file.content()
    assert (await save(client, "limits", role="guest", **{"caps.guest.person_day.tokens": ""})).status_code == 200
    assert (await save(client, "general", timezone="UTC")).status_code == 200
    assert file.content() == BEFORE
    assert (await save(client, "general", timezone="UTC")).text == "Nothing changed."


async def test_a_mistake_is_said_and_nothing_is_written(client: httpx.AsyncClient, file: ConfigFile) -> None:
    before = file.content()
    for section, fields, said in (
        ("general", {"timezone": "Mars"}, "Mars"),
        ("tools/servers", {"name": "Not A Name", "command": "x"}, "cannot be called"),
        ("tools/servers", {"name": "notes"}, "needs a command or an address"),
        ("tools/servers", {"name": "notes", "command": "'open"}, "not a command"),
        ("tools/approvals", {"tool": "", "mode": "ask"}, "name is missing"),
        ("model", {"provider": "openai", "model": ""}, "Name a model"),
        ("model", {"provider": "openai", "model": "gpt-5-mini"}, "There is no key"),
        ("nowhere", {"a": "b"}, "section"),
    ):
        answer = await save(client, section, **fields)
        assert answer.status_code in {400, 404}, answer.text
        assert said in answer.text
    assert file.content() == before


async def test_a_model_is_tested_saved_and_answers_and_its_key_is_never_shown(
    client: httpx.AsyncClient, file: ConfigFile
) -> None:
    assert "No model is connected yet" in (await client.get("/")).text
    async with providing() as provider:
        choice = {"provider": "server", "model": "small", "base_url": provider.openai}
        provider.then(Refuses(status=401, message=f"bad key {KEY}"))
        refused = await save(client, "model", **choice, key=KEY)
        assert refused.status_code == 400
        assert "does not answer: the model rejects the key" in refused.text
        assert KEY not in refused.text
        assert file.content() == BEFORE
        answer = await save(client, "model", **choice, key=KEY)
        assert answer.text.startswith("openai:small answers from now on. Saved in palaver.yaml, line "), answer.text
        assert file.content().startswith("# mine\ntimezone: UTC # here\nagent:\n  name: model\n")
        assert KEY not in file.content()
        assert file.content().endswith("# last\n")
        assert "streams" not in file.content()
        assert (file.path.parent / "keys" / "server").read_text() == f"{KEY}\n"
        page = (await client.get("/settings/model")).text
        assert "A key is set." in page
        assert KEY not in page
        assert '<p class="figure">openai:small</p>' in (await client.get("/")).text
        # Another model of the same server needs no key again; another server does not get this one.
        assert (await save(client, "model", **{**choice, "model": "large"})).status_code == 200
        assert provider.keys[-1] == f"Bearer {KEY}"
        assert "It applies now." in (await save(client, "instructions", **{"agent.instructions": "Be\r\nbrief."})).text
        assert "  instructions: |-\n    Be\n    brief.\n" in file.content()
    async with providing() as other:
        answer = await save(client, "model", provider="server", model="small", base_url=other.openai)
        assert answer.status_code == 200, answer.text
        assert KEY not in "".join(other.keys)
        assert "key" not in file.content()
    assert (await save(client, "model", provider="guide")).text.startswith("The guide answers from now on.")
    assert "instructions" not in file.content()


async def test_the_models_of_a_provider_are_listed_with_one_to_begin_with(client: httpx.AsyncClient) -> None:
    async def listed(**form: str) -> Any:
        return (await save(client, "model/choices", **form)).json()

    async with providing(models=("small-embed", "large", "small")) as provider:
        found = await listed(provider="server", base_url=provider.openai, key=KEY)
        assert found == {"choices": [["large", "large"], ["small", "small"]], "usual": "large", "says": ""}
        assert provider.keys == [f"Bearer {KEY}"]
    async with providing(Refuses(status=401, message=f"bad key {KEY}")) as provider:
        found = await listed(provider="server", base_url=provider.openai, key=KEY)
        assert found == {"choices": [], "usual": "", "says": f"{provider.openai}: the key is refused."}
    assert "There is no key" in (await listed(provider="anthropic"))["says"]
    assert await listed(provider="guide") == {"choices": [], "usual": "", "says": ""}
    here = await listed(provider="local")
    assert [name for name, _ in here["choices"]] == [*(each.name for each in SUGGESTIONS), "small"]
    assert here["usual"] == suggested(memory_of_machine()).name


async def test_a_value_with_a_secret_in_it_is_neither_shown_nor_overwritten(
    client: httpx.AsyncClient, file: ConfigFile
) -> None:
    before = file.content()
    file.path.write_text(
        "agent:\n  name: local\n  instructions: call ${PALAVER_TITLES} now\n"
        "tools:\n  servers:\n    notes:\n      url: https://user:hunter2@tools.example.org/mcp\n"
    )
    changed = file.content()
    assert "hunter2" not in (await client.get("/settings/tools")).text
    answer = await save(client, "instructions", **{"agent.instructions": "other words"})
    assert answer.text == "Nothing changed."
    assert file.content() == changed
    file.path.write_text(before)


async def test_tools_and_servers_are_added_and_removed(client: httpx.AsyncClient, file: ConfigFile) -> None:
    before = file.content()
    assert "applies now" in (await save(client, "tools/approvals", tool="notes__*", mode="ask")).text
    answer = await save(client, "tools/servers", name="notes", command="notes-server 'a b'")
    assert "Restart the gateway to use it." in answer.text
    assert 'args: ["a b"]' in file.content()
    page = (await client.get("/settings/tools")).text
    assert "Restart the gateway to use the change of MCP servers." in page
    assert "ask a person first" in page
    assert '<option value="schedule_job">' in page
    assert (await client.post("/settings/tools/servers/notes/remove", data={})).status_code == 200
    assert "applies now" in (await save(client, "tools/approvals", tool="notes__*", mode="")).text
    assert file.content() == before


async def test_an_account_is_connected_by_the_steps_of_setup(
    client: httpx.AsyncClient, file: ConfigFile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path / "site", monkeypatch)
    before = file.content()
    assert "Connect Telegram" in (await client.get("/settings/accounts/telegram")).text
    page = (await client.get("/settings/accounts/pigeon")).text
    assert 'name="folder"' in page
    answer = await client.post("/settings/accounts/pigeon", data={"account": "loft"})
    assert answer.status_code == 400
    assert file.content() == before
    answer = await client.post("/settings/accounts/pigeon", data={"account": "loft", "folder": str(tmp_path)})
    assert answer.text.startswith("Added pigeon:loft. Saved in palaver.yaml, line "), answer.text
    assert "Restart the gateway" in answer.text
    page = (await client.get("/settings/accounts")).text
    assert "after a restart" in page
    assert "Next for" not in page
    page = (await client.get(answer.headers["x-goto"])).text
    assert "Next for pigeon:loft</h2>" in page
    (restart,) = next_steps(page)
    assert restart.startswith("Restart the gateway to use the account")
    assert (await client.post("/settings/accounts/pigeon/loft/remove", data={})).status_code == 200
    assert file.content() == before


def next_steps(page: str) -> list[str]:
    return re.findall(r"<li[^>]*>(.*?)</li>", page.partition('id="next-steps">')[2].partition("</ol>")[0])


async def test_what_is_left_to_do_for_a_new_account_depends_on_its_owner(client: httpx.AsyncClient) -> None:
    page = (await client.get("/settings/accounts?added=telegram:main")).text
    assert "Next for telegram:main</h2>" in page
    assert 'on the page <a href="/people">People</a>, as an owner.' in next_steps(page)[-1]
    *others, last = next_steps((await client.get("/settings/accounts?added=telegram:main&owner=1")).text)
    assert last == "Say hello to it from your own account: you are its owner."
    assert others == next_steps(page)[:-1] != []
    for strange in ("nowhere:main", "telegram", "telegram:<b>", "../x:y"):
        page = await client.get("/settings/accounts", params={"added": strange})
        assert page.status_code == 200
        assert "Next for" not in page.text


async def test_a_token_cannot_change_settings_and_neither_can_a_foreign_page(
    client: httpx.AsyncClient, shared: Opened, file: ConfigFile
) -> None:
    before = file.content()
    token, _ = await issue_token(shared.store, SystemClock().now(), name="all")
    headers = {"authorization": f"Bearer {token}"}
    async with httpx.AsyncClient(base_url=shared.url, headers=headers) as program:
        answer = await program.post("/settings/general", data={"timezone": "Asia/Tokyo"})
        assert answer.status_code == 403
        assert "only in a browser" in answer.text
        assert "Test and save" not in (await program.get("/settings/model", headers={"accept": "text/html"})).text
    for without in (
        {"x-csrf-token": ""},
        {"x-csrf-token": client.headers["x-csrf-token"], "origin": "https://evil.example"},
    ):
        answer = await client.post("/settings/general", data={"timezone": "Asia/Tokyo"}, headers=without)
        assert answer.status_code == 403
    assert file.content() == before


async def test_a_file_that_is_not_ours_is_shown_and_not_changed(
    client: httpx.AsyncClient, file: ConfigFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = file.content()

    def refuses(*_: object) -> bool:
        return False

    monkeypatch.setattr(os, "access", refuses)
    page = (await client.get("/settings/general")).text
    assert "change it where it is kept. You can read the settings here." in page
    assert "<button>Save</button>" not in page
    assert (await save(client, "general", timezone="Asia/Tokyo")).status_code == 400
    monkeypatch.undo()
    file.path.write_text("timezone: Mars\n")
    page = await client.get("/settings/general")
    assert page.status_code == 200
    assert "The configuration has a mistake" in page.text
    file.path.write_text(before)


async def test_what_an_app_needs_is_public_and_says_nothing_of_anybody(shared: Opened) -> None:
    async with httpx.AsyncClient(base_url=shared.url, headers={"accept": "text/html"}) as stranger:
        for path in ("/manifest.webmanifest", "/service-worker.js", "/offline"):
            answer = await stranger.get(path)
            assert answer.status_code == 200
            assert "worker-src 'self'" in answer.headers["content-security-policy"]
            assert not {"Settings", "csrf"} & set(answer.text.split('"'))
        for path in ("/", "/settings/model"):
            assert (await stranger.get(path)).headers["location"].startswith("/login")


async def test_the_palette_leads_to_every_page_that_a_person_can_see(shared: Opened, client: httpx.AsyncClient) -> None:
    paths = {*(link.path for link in (*NAVIGATION, *DIAGNOSTICS)), *(f"/settings/{name}" for name in SECTIONS), "/"}
    listed = re.findall(r'<a href="([^"]+)" data-kind', (await client.get("/usage")).text)
    assert paths <= set(listed)
    for path in {each for each in listed if each.startswith("/")}:
        page = await client.get(path.partition("#")[0], follow_redirects=True)
        assert page.status_code == 200, path
        assert f'id="{path.partition("#")[2]}"' in page.text or "#" not in path, path
    async with shared.visit("web:eve") as eve:
        listed = re.findall(r'<a href="([^"]+)" data-kind', (await eve.get("/usage")).text)
        assert "/jobs" in listed
        assert not {"/settings", "/people", "/people#f-who", "/"} & set(listed)


async def test_how_long_things_stay_is_set_and_shown_before_anything_goes(
    shared: Opened, client: httpx.AsyncClient, file: ConfigFile
) -> None:
    before = file.content()
    long_ago = SystemClock().now() - timedelta(days=400)
    await Stage(shared.store, long_ago).exchange(dm("old", "signal"), "from long ago", "yes")
    await shared.store.transact(_all_delivered())
    field = "retention.chat.age"
    page = (await client.get("/settings/data?preview=1")).text
    assert f'name="{field}" value="forever"' in page
    assert "× chat" not in page
    assert "It applies now" in (await save(client, "data", **{field: "365d"})).text
    assert "retention:\n  chat:\n    age: 365d\n" in file.content()
    assert "1 × chat" in (await client.get("/settings/data?preview=1")).text
    refused = await save(client, "data", **{field: "1h"})
    assert refused.status_code == 400
    assert "from 1d" in refused.text
    await save(client, "data", **{field: ""})
    assert file.content() == before


@transaction
def _all_delivered() -> Statements[None]:
    yield "UPDATE outbox SET state = 'delivered', worker = NULL, claim_until = NULL WHERE state <> 'delivered'", ()


async def test_the_database_is_backed_up_while_the_gateway_runs(shared: Opened, client: httpx.AsyncClient) -> None:
    await Stage(shared.store, SystemClock().now()).exchange(dm("88", "signal"), "keep this", "kept")
    made = await client.post("/settings/data/backup")
    name = made.text.split()[3]
    assert name in (await client.get("/settings/data")).text
    archive = shared.config.data_dir / "backups" / name
    assert archive.stat().st_mode & 0o077 == 0
    place = shared.config.data_dir.parent / "restored"
    restore(archive, place)
    async with await open_store(str(place / "palaver.db")) as store:
        (found,) = await store.read(store.session_list.recent_sessions(Principal.operator(), 1))
        assert found.last_said == "keep this"
    archive.unlink()
    token, _ = await issue_token(shared.store, SystemClock().now(), name="backup")
    without = {"x-csrf-token": "", "authorization": f"Bearer {token}", "cookie": ""}
    async with httpx.AsyncClient(base_url=shared.url, headers=without) as program:
        assert (await program.post("/settings/data/backup")).status_code == 403


async def test_work_that_breaks_says_so_on_its_page() -> None:
    async def breaks(show: Callable[[str], None]) -> None:
        show("Starting")
        raise ValueError(KEY)

    unused: Any = None
    settings = Settings(
        file=unused, reload=unused, find_deferred=unused, ask_agent=unused, ask_account=unused, install=unused
    )
    await settings.start("extra", breaks, lambda: None)
    assert settings.works["extra"].problem == INTERNAL_ERROR
