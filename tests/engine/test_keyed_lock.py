"""Under one name, one after the other; the name is forgotten when nobody stands there."""

import asyncio
from functools import partial

from palaver.engine.intake.receiver import KeyedLock


async def test_in_the_order_they_came_also_when_somebody_gives_up() -> None:
    turnstile, passed = KeyedLock(), list[str]()

    async def pass_through(who: str) -> None:
        await asyncio.sleep(0.001)
        passed.append(who)

    tasks = {who: asyncio.create_task(turnstile.run("door", partial(pass_through, who))) for who in "abcde"}
    await asyncio.sleep(0)
    tasks["c"].cancel()
    await asyncio.gather(*tasks.values(), return_exceptions=True)
    assert passed == ["a", "b", "d", "e"]
    assert turnstile.keys == ()


async def test_one_who_gives_up_does_not_let_the_next_overtake_the_one_in_front() -> None:
    turnstile, inside = KeyedLock(), list[str]()
    leave = asyncio.Event()

    async def stay(who: str) -> None:
        inside.append(who)
        await leave.wait()

    first, second, third = (asyncio.create_task(turnstile.run("door", partial(stay, who))) for who in "abc")
    await asyncio.sleep(0)
    second.cancel()
    await asyncio.sleep(0.01)
    assert inside == ["a"]
    leave.set()
    await asyncio.gather(first, third)
    assert inside == ["a", "c"]


async def test_when_the_last_in_line_gives_up_a_later_one_still_waits_for_the_one_inside() -> None:
    turnstile, inside = KeyedLock(), list[str]()
    leave = asyncio.Event()

    async def stay(who: str) -> str:
        inside.append(who)
        await leave.wait()
        return who

    first, second = (asyncio.create_task(turnstile.run("door", partial(stay, who))) for who in "ab")
    await asyncio.sleep(0)
    second.cancel()
    await asyncio.wait({second})
    third = asyncio.create_task(turnstile.run("door", partial(stay, "c")))
    await asyncio.sleep(0)
    assert inside == ["a"]
    leave.set()
    assert await asyncio.gather(first, third) == ["a", "c"]
    assert turnstile.keys == ()


async def test_the_name_of_one_who_gave_up_last_is_forgotten_once_the_one_inside_has_left() -> None:
    turnstile, leave = KeyedLock(), asyncio.Event()
    first, second = (asyncio.create_task(turnstile.run("door", leave.wait)) for _ in "ab")
    await asyncio.sleep(0)
    second.cancel()
    await asyncio.wait({second})
    leave.set()
    assert await first
    await asyncio.sleep(0)
    assert turnstile.keys == ()
