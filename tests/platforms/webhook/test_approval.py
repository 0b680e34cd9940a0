"""What a call asks permission for is asked where its answers go."""

import re
from pathlib import Path

from palaver.model.access import AccessRole, Grant
from palaver.model.target import Place
from palaver.testkit.adapter import FakeAdapter
from palaver.testkit.platform import FakePlatform
from tests.engine.gateway import running
from tests.platforms.webhook.calling import GRANTS, account, call, called


async def test_an_admin_of_the_chat_that_answers_go_to_allows_it_there(tmp_path: Path) -> None:
    world = FakePlatform()
    alice, bob = world.person("alice"), world.person("bob")
    chat = world.group("builds", alice, bob)
    adapter = account(deliver="nowhere", text="!approve {{ build }}")
    adapter.forwards_to = lambda: [Place(platform="fake", chat=chat.id)]
    grants = (*GRANTS, Grant(platform="fake", role=AccessRole.ADMIN, user_id=alice.id))
    async with running(tmp_path / "p.db", world, adapters=[FakeAdapter(world), adapter], grants=grants) as here:
        await called(here, adapter, call({"build": "deploy"}))
        question = await chat.hears("May I")
        for choice in ("Approve", "Deny"):
            await chat.press(bob, question, choice)
            await chat.hears("somebody else's request needs the admin role")
        await chat.press(alice, question, "Approve")
        await chat.hears("You said: deploy")


async def test_where_a_question_is_shown_elsewhere_it_says_its_name_and_is_answered_in_words(tmp_path: Path) -> None:
    world = FakePlatform()
    alice = world.person("alice")
    chat = world.group("builds", alice)
    adapter = account(deliver="nowhere", text="!approve {{ build }}")
    adapter.forwards_to = lambda: [Place(platform="fake", chat=chat.id)]
    grants = (*GRANTS, Grant(platform="fake", role=AccessRole.ADMIN, user_id=alice.id))
    async with running(tmp_path / "p.db", world, adapters=[FakeAdapter(world), adapter], grants=grants) as here:
        await called(here, adapter, call({"build": "deploy"}))
        question = await chat.hears("May I")
        answers = re.fullmatch(r"Reply (/approve \d+-\d+) or (/deny \d+-\d+)\.", question.text.splitlines()[-1])
        assert answers
        assert [choice.says for choice in question.choices] == list(answers.groups())
        await chat.say(alice, answers[1], mentions=("bot",))
        await chat.hears("You said: deploy")
