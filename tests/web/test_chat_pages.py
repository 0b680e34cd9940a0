"""A long conversation in the chat, page by page: nothing is left out between two pages, and nothing moves."""

import re
from collections.abc import AsyncIterator
from datetime import timedelta

import httpx
import pytest

from palaver.protocols.clock import SystemClock
from tests.web.conftest import Opened
from tests.web.demo_data import Stage, dm
from tests.web.test_chat import until_said

PAGE = 20
"""Exchanges on a page."""
FRAGMENT = {"x-fragment": "1"}


@pytest.fixture
def stage(window: Opened) -> Stage:
    return Stage(window.store, SystemClock().now())


async def talk(stage: Stage, first: int, count: int, ago: timedelta = timedelta()) -> None:
    stage.now = SystemClock().now() - ago
    for number in range(first, first + count):
        await stage.exchange(dm("owner", "web"), f"question {number}.", f"answer {number}.")


async def pages(client: httpx.AsyncClient) -> AsyncIterator[str]:
    """Yield the messages as a reader gets them who scrolls up."""
    address = "/chat/main"
    while address:
        shown = (await client.get(address, headers=FRAGMENT)).text.partition('<ol id="messages"')[2]
        yield shown
        earlier = re.search(r'data-earlier="(\d+)"', shown)
        address = f"/chat/main?before={earlier[1]}" if earlier else ""


async def test_the_beginning_of_a_long_answer_is_on_the_same_page(client: httpx.AsyncClient, stage: Stage) -> None:
    """A page knows an answer by its turn, so that a second part of it would be left out."""
    await talk(stage, 0, 1)
    await stage.exchange(dm("owner", "web"), "dig", *[f"step {number}." for number in range(100)])
    shown = [page async for page in pages(client)]
    assert [f"step {number}." for number in range(100) if f"step {number}." not in shown[0]] == []
    assert "dig" in shown[0]
    assert sum(page.count("question 0.") for page in shown) == 1


async def test_a_command_between_two_pages_is_on_one_of_them(client: httpx.AsyncClient, stage: Stage) -> None:
    await talk(stage, 0, 2, timedelta(hours=1))
    await client.post("/chat/main", data={"text": "/whoami", "id": "1"})
    await until_said(client, 6)
    await talk(stage, 2, PAGE)
    shown = [page async for page in pages(client)]
    assert [page.count(">/whoami<") for page in shown] == [0, 1]


async def test_a_pager_of_an_earlier_page_stands_on_no_other(client: httpx.AsyncClient, stage: Stage) -> None:
    await client.post("/chat/main", data={"text": "uno", "id": "1"})
    await until_said(client, 2)
    page = (await client.get("/chat/main", headers=FRAGMENT)).text
    session, entry = re.findall(r'data-session="([^"]+)"|data-seq="(\d+)"', page)[:2]
    again = await client.post(f"/chat/-/{session[0]}/again", data={"entry": entry[1], "text": "due"})
    assert again.status_code == 200, again.text
    await until_said(client, 2)
    await talk(stage, 0, PAGE)
    shown = [page async for page in pages(client)]
    assert [page.count('class="pager"') for page in shown] == [0, 1]
