"""The pace of a chat: answers wait for it, drafts are dropped."""

import asyncio

from palaver.engine.delivery.sender import SendBudget
from tests.simulation.loop import VirtualLoop, run

HERE, THERE = ("telegram:", "", "here"), ("telegram:", "", "there")


def test_drafts_of_one_chat_keep_one_pace() -> None:
    async def show() -> list[bool]:
        budget, shown = SendBudget(), list[bool]()
        for _ in range(4):
            shown += [budget.try_acquire_draft(chat, 1.0, 6.0) for chat in (HERE, HERE, THERE)]
            await asyncio.sleep(3.0)
        return shown

    assert run(show(), VirtualLoop()) == 2 * [True, False, True, False, False, False]


def test_after_a_hold_answers_come_before_drafts_and_wait_no_longer_than_was_asked() -> None:
    async def wait() -> tuple[float, bool, bool]:
        budget = SendBudget()
        budget.back_off(HERE, 35.0)
        await asyncio.sleep(30.0)
        early = budget.try_acquire_draft(HERE, 1.0, 6.0)
        await budget.acquire(HERE, 1.0)
        answered = asyncio.get_running_loop().time()
        await asyncio.sleep(5.0)
        return answered, early, budget.try_acquire_draft(HERE, 1.0, 6.0)

    assert run(wait(), VirtualLoop()) == (35.0, False, False)


def test_a_chat_that_is_owed_an_answer_shows_no_draft() -> None:
    async def owe() -> list[bool]:
        budget = SendBudget()
        budget.owe({HERE})
        shown = [budget.try_acquire_draft(chat, 1.0, 6.0) for chat in (HERE, THERE)]
        budget.owe(())
        return [*shown, budget.try_acquire_draft(HERE, 1.0, 6.0)]

    assert run(owe(), VirtualLoop()) == [False, True, True]


def test_an_answer_waits_for_the_request_of_its_draft() -> None:
    async def wait() -> tuple[list[object], float]:
        budget = SendBudget()
        budget.hold(THERE)()
        for seconds in (1.5, 2.5):
            asyncio.get_running_loop().call_later(seconds, budget.hold(HERE))
        busy = budget.busy()
        await budget.acquire(HERE, 0.0)
        return [busy, budget.busy()], asyncio.get_running_loop().time()

    assert run(wait(), VirtualLoop()) == ([[HERE], []], 2.5)


def test_a_quiet_chat_is_forgotten() -> None:
    async def pass_by() -> object:
        budget = SendBudget()
        budget.hold(HERE)()
        budget.back_off(HERE, 35.0)
        budget.try_acquire_draft(THERE, 1.0, 6.0)
        await asyncio.sleep(71.0)
        return [value for value in vars(budget).values() if value and value is not budget.freed]

    assert run(pass_by(), VirtualLoop()) == []
