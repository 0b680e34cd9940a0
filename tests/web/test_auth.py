"""Who is let in, and what a request has to show."""

import httpx
import pytest

from palaver.config.model import Config
from palaver.model.errors import StoreUnavailable
from palaver.protocols.clock import SystemClock
from palaver.store.people.api_tokens import Right
from palaver.web.address import Address
from palaver.web.limits import RateLimiter
from palaver.web.tokens import Authenticator, issue_token
from tests.web.conftest import Opened, opened
from tests.web.test_api import token

HERE = Address(host="127.0.0.1", port=8787, url="http://127.0.0.1:8787")
AWAY = Address(host="127.0.0.1", port=8787, url="https://palaver.example.org")
NOWHERE = {"default-src", "base-uri", "frame-ancestors"}
"""What no page of ours takes from anywhere."""
POLICY = {
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
    "cache-control": "no-store",
}


async def test_a_link_logs_in_once(window: Opened) -> None:
    code = window.links[0].partition("#")[2].split()[0]
    async with httpx.AsyncClient(timeout=60, base_url=window.url) as client:
        first = await client.post("/login", data={"code": code, "next": "/"})
        assert (first.status_code, first.headers["location"]) == (303, "/")
        cookie = first.headers["set-cookie"]
        assert cookie.startswith(f"palaver-{window.config.web.port}="), "one of another gateway on this host stays"
        assert "HttpOnly" in cookie
        assert "SameSite=lax" in cookie
        assert (await client.get("/")).status_code == 200
        again = await client.post("/login", data={"code": code, "next": "/chat"})
        assert (again.status_code, again.headers["location"]) == (303, "/chat"), "they are in already"
    async with httpx.AsyncClient(timeout=60, base_url=window.url) as other:
        assert (await other.post("/login", data={"code": code})).status_code == 401
        other.cookies.set(next(iter(client.cookies)), "made up")
        assert (await other.post("/login", data={"code": code})).status_code == 401
        assert (await other.get("/")).status_code == 401


async def test_a_browser_is_sent_to_the_login_and_back_but_nowhere_else(window: Opened) -> None:
    async with httpx.AsyncClient(timeout=60, base_url=window.url, headers={"accept": "text/html"}) as client:
        answer = await client.get("/?x=1")
        assert answer.headers["location"] == "/login?next=%2F%3Fx%3D1"
        assert (await client.post("/logout")).status_code == 401
    foreign = (
        "//evil.example",
        "https://evil.example",
        "/\\evil.example",
        "/a\\b",
        "javascript:alert(1)",
        "/a\nb",
        "//[",
    )
    for place in foreign:
        code = (await window.link()).partition("#")[2]
        async with httpx.AsyncClient(timeout=60, base_url=window.url) as client:
            answer = await client.post("/login", data={"code": code, "next": place})
            assert answer.headers["location"] == "/"


async def test_logging_out_takes_the_login_back(window: Opened, client: httpx.AsyncClient) -> None:
    cookies = dict(client.cookies)
    assert (await client.post("/logout")).status_code == 303
    async with httpx.AsyncClient(timeout=60, base_url=window.url, cookies=cookies) as again:
        assert (await again.get("/")).status_code == 401


async def test_only_our_pages_can_make_a_login_do_something(client: httpx.AsyncClient) -> None:
    csrf = client.headers.pop("x-csrf-token")
    assert (await client.post("/logout")).status_code == 403
    for wrong in ("0" * 64, csrf[:-1], ""):
        assert (await client.post("/logout", headers={"x-csrf-token": wrong})).status_code == 403
    for method in ("DELETE", "PATCH", "PUT"):
        assert (await client.request(method, "/api/v1/sessions/x")).status_code == 403
    same_host = str(client.base_url.copy_with(port=1))
    foreign = [{"sec-fetch-site": site} for site in ("cross-site", "same-site")]
    for header in (*foreign, *({"origin": origin} for origin in ("https://evil.example", "null", same_host))):
        assert (await client.post("/logout", headers={"x-csrf-token": csrf, **header})).status_code == 403
    assert (await client.get("/", headers={"sec-fetch-site": "cross-site"})).status_code == 200, "a link leads here"
    assert (await client.post("/logout", data={"csrf": csrf})).status_code == 303


async def test_a_name_that_is_not_ours_is_not_answered(client: httpx.AsyncClient) -> None:
    for name in ("evil.example", "evil.example:8787", "127.0.0.1.evil.example", "evil.localhost", "1.127.0.0.1", ""):
        assert (await client.get("/", headers={"host": name})).status_code == 421


async def test_probes_are_answered_under_any_name(window: Opened) -> None:
    async with httpx.AsyncClient(timeout=60, base_url=window.url, headers={"host": "palaver-1:8787"}) as client:
        assert [(await client.get(path)).status_code for path in ("/health", "/ready")] == [200, 200]
        assert (await client.get("/login")).status_code == 421


def test_bare_addresses_and_names_that_were_configured_are_ours() -> None:
    assert all(HERE.accepts_host(host) for host in ("127.0.0.1:8787", "localhost", "[::1]:1", "192.168.0.7"))
    assert not HERE.accepts_host("palaver.example.org")
    assert AWAY.accepts_host("palaver.example.org")
    assert not any(
        AWAY.accepts_host(host) for host in ("evil.palaver.example.org", "evilpalaver.example.org", "example.org")
    )
    assert AWAY.is_own_origin("https://palaver.example.org", "127.0.0.1:8787")
    for origin in ("https://evil.example", "https://palaver.example.org:1", "https://palaver.example.org.evil.example"):
        assert not AWAY.is_own_origin(origin, "127.0.0.1:8787")
    assert not HERE.is_own_origin("http://127.0.0.1:9999", "127.0.0.1:8787")
    assert HERE.is_own_origin("http://localhost:8787", "localhost:8787")


async def test_a_token_does_what_its_scopes_allow(window: Opened) -> None:
    now = SystemClock().now()
    reads, _ = await issue_token(window.store, now, name="reads", rights={Right.READ})
    chats, key = await issue_token(window.store, now, name="chats", rights={Right.CHAT})
    async with httpx.AsyncClient(timeout=60, base_url=window.url) as client, window.visit() as browser:
        assert (await client.get("/", headers={"authorization": f"Bearer {reads}"})).status_code == 200
        assert (await client.get("/", headers={"authorization": f"Bearer {chats}"})).status_code == 403
        for wrong in ("Bearer pal_wrong", f"Basic {reads}"):
            headers = {"authorization": wrong, "accept": "*/*"}
            assert (await client.get("/", headers=headers)).status_code == 401
            assert (await browser.get("/", headers=headers)).status_code == 401, "it wins over a login"
        await window.store.transact(window.store.api_tokens.revoke(key.number))
        assert (await client.get("/", headers={"authorization": f"Bearer {chats}"})).status_code == 401


async def test_someone_who_guesses_has_to_wait_and_locks_nobody_out(window: Opened) -> None:
    async with httpx.AsyncClient(timeout=60, base_url=window.url) as client:
        for _ in range(5):
            assert (await client.post("/login", data={"code": "wrong"})).status_code == 401
        answer = await client.post("/login", data={"code": "wrong"})
        assert answer.status_code == 429
        assert 0 < int(answer.headers["retry-after"]) <= 60
        right = await client.post("/login", data={"code": (await window.link()).partition("#")[2]})
        assert right.status_code == 303


@pytest.mark.parametrize("foreign", ["other[x]=1; {}", "a/b=1; {}", '"; {}', "{}; x=\xff", "=; ;; {}"])
async def test_cookies_of_other_programs_lock_nobody_out(client: httpx.AsyncClient, foreign: str) -> None:
    ((name, secret),) = client.cookies.items()
    client.cookies.clear()
    line, ours = foreign.format(f"{name}={secret}").encode("latin-1"), f"{name}={secret}".encode()
    assert (await client.get("/", headers=[(b"cookie", line)])).status_code == 200
    assert (await client.get("/", headers=[(b"cookie", b"other=1"), (b"cookie", ours)])).status_code == 200


async def test_an_origin_that_is_none_is_refused(client: httpx.AsyncClient) -> None:
    answer = await client.post("/logout", headers={"origin": "http://["})
    assert (answer.status_code, "content-security-policy" in answer.headers) == (403, True)


async def test_anything_that_breaks_is_answered_and_logged_without_its_words(
    client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def breaks(_doors: Authenticator, _secret: str) -> None:
        raise ValueError("words of somebody's")

    monkeypatch.setattr(Authenticator, "by_login", breaks)
    answer = await client.get("/")
    assert (answer.status_code, "content-security-policy" in answer.headers) == (500, True)
    assert [getattr(record, "action", "") for record in caplog.records if "failed" in record.getMessage()] == [
        "web.error"
    ]
    assert "somebody's" not in caplog.text + answer.text


async def test_nothing_but_the_entry_is_open(window: Opened) -> None:
    async with httpx.AsyncClient(timeout=60, base_url=window.url) as client:
        for path in ("/login", "/health", "/static/x/y"):
            assert (await client.get(path)).status_code != 401
        for path in ("/loginx", "/health/", "/ready/x", "/login/x", "/static"):
            assert (await client.get(path)).status_code == 401


async def test_there_are_no_sockets_of_the_web_to_upgrade_to(client: httpx.AsyncClient) -> None:
    upgrade = {"connection": "Upgrade", "upgrade": "websocket", "sec-websocket-version": "13"}
    answer = await client.get("/", headers={**upgrade, "sec-websocket-key": "x3JJHMbDL1EzLkh9GBhXDw=="})
    assert answer.status_code == 200


async def test_nobody_can_fill_the_memory_from_outside(window: Opened) -> None:
    async with httpx.AsyncClient(timeout=60, base_url=window.url) as client:
        assert (await client.post("/login", data={"code": "x" * 20_000})).status_code == 413


async def test_a_store_that_does_not_answer_is_said(
    window: Opened, client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fails(_doors: Authenticator, _secret: str) -> None:
        raise StoreUnavailable("the disk is away")

    monkeypatch.setattr(Authenticator, "by_login", fails)
    answer = await client.get(f"{window.url}/")
    assert (answer.status_code, "Try again" in answer.text, "disk" in answer.text) == (503, True, False)


def test_failures_are_forgotten_after_a_while_and_count_for_all_together() -> None:
    attempts = RateLimiter(per_caller=2, total=3, window=10)
    attempts.record("a", 0)
    attempts.record("a", 1)
    assert attempts.retry_after("a", 2) == 8
    assert attempts.retry_after("b", 2) == 0
    attempts.record("b", 2)
    assert attempts.retry_after("c", 3) == 7
    assert attempts.retry_after("a", 11) == 0


@pytest.mark.parametrize("path", ["/", "/nothing", "/login", "/health", "/static/x/y"])
async def test_every_answer_carries_the_policy(window: Opened, path: str) -> None:
    async with httpx.AsyncClient(timeout=60, base_url=window.url) as client:
        headers = (await client.get(path)).headers
    policy = dict(part.strip().split(" ", 1) for part in headers["content-security-policy"].split(";"))
    assert {name for name, sources in policy.items() if sources != "'self'"} == NOWHERE
    assert {policy[name] for name in NOWHERE} == {"'none'"}
    assert {name: headers[name] for name in POLICY} == POLICY


async def test_pages_of_named_origins_use_the_api_with_a_token(config: Config) -> None:
    page = "https://app.example.org"
    web = config.web.model_copy(update={"origins": frozenset({page})})
    async with opened(config.model_copy(update={"web": web})) as window, window.visit() as browser:
        asked = {"origin": page, "access-control-request-method": "POST"}
        wanted = "authorization, content-type, x-stainless-os"
        preflight = await browser.options(
            "/v1/chat/completions", headers={**asked, "access-control-request-headers": wanted}
        )
        assert (preflight.status_code, preflight.headers["access-control-allow-origin"]) == (204, page)
        assert preflight.headers["access-control-allow-headers"] == wanted
        assert "access-control-allow-credentials" not in preflight.headers
        headers = {"origin": page, "sec-fetch-site": "cross-site", "accept": "*/*"}
        body = {"model": "palaver", "messages": [{"role": "user", "content": "hello"}]}
        key = {"authorization": f"Bearer {await token(window)}"}
        answer = await browser.post("/v1/chat/completions", headers={**headers, **key}, json=body)
        assert (answer.status_code, answer.headers["access-control-allow-origin"]) == (200, page)
        assert "x-palaver-session" in answer.headers["access-control-expose-headers"]
        assert (await browser.get("/api/v1/sessions", headers=headers)).status_code == 401, "a login is for our pages"
        for path, origin in (("/sessions", page), ("/v1/chat/completions", "https://evil.example")):
            refused = await browser.post(path, headers={**key, "origin": origin}, json=body)
            assert refused.status_code == 403
            assert "access-control-allow-origin" not in refused.headers
