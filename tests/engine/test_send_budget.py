"""The pace of a chat: answers wait for it, drafts are dropped."""

import asyncio

from palaver.engine.delivery.sender import SendBudget
from tests.simulation.loop import VirtualLoop, run


def test_drafts_of_one_chat_keep_one_pace() -> None:
    async def show() -> list[bool]:
        budget, shown = SendBudget(), list[bool]()
        for _ in range(4):
            shown += [budget.try_acquire_draft(chat, 1.0, 6.0) for chat in ("here", "here", "there")]
            await asyncio.sleep(3.0)
        return shown

    assert run(show(), VirtualLoop()) == 2 * [True, False, True, False, False, False]


def test_after_a_hold_answers_come_before_drafts_and_wait_no_longer_than_was_asked() -> None:
    async def wait() -> tuple[float, bool, bool]:
        budget = SendBudget()
        budget.back_off("here", 35.0)
        await asyncio.sleep(30.0)
        early = budget.try_acquire_draft("here", 1.0, 6.0)
        await budget.acquire("here", 1.0)
        answered = asyncio.get_running_loop().time()
        await asyncio.sleep(5.0)
        return answered, early, budget.try_acquire_draft("here", 1.0, 6.0)

    assert run(wait(), VirtualLoop()) == (35.0, False, False)


def test_a_quiet_chat_is_forgotten() -> None:
    async def pass_by() -> object:
        budget = SendBudget()
        budget.back_off("here", 35.0)
        budget.try_acquire_draft("there", 1.0, 6.0)
        await asyncio.sleep(71.0)
        return [value for value in vars(budget).values() if value]

    assert run(pass_by(), VirtualLoop()) == []
