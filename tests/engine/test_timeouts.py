"""Limits cancel what takes too long, exactly as asyncio.timeout does, and share a timer."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest

from palaver.engine.retry import StrayCancellation, Timeout, Timeouts, contain_cancellation
from tests.simulation.loop import VirtualLoop, run

LONG = 3600.0


def virtual(test: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    """In a loop where time passes at once, and exactly."""

    def runs() -> None:
        run(test(), VirtualLoop())

    runs.__name__, runs.__doc__ = test.__name__, test.__doc__
    return runs


def now() -> float:
    return asyncio.get_running_loop().time()


def cancelling() -> int:
    task = asyncio.current_task()
    assert task is not None
    return task.cancelling()


async def _hang(limit: Timeout) -> None:
    with limit:
        await asyncio.sleep(LONG)


async def _break_when_cancelled() -> None:
    try:
        await asyncio.sleep(LONG)
    except asyncio.CancelledError as error:
        raise LookupError from error


@virtual
async def test_what_ends_in_time_is_left_alone() -> None:
    with Timeouts().timeout(10) as limit:
        await asyncio.sleep(9.999)
    await asyncio.sleep(LONG)
    assert not limit.expired


@virtual
async def test_what_takes_too_long_is_cancelled_when_its_time_is_over() -> None:
    with pytest.raises(TimeoutError) as raised, Timeouts().timeout(10) as limit:
        await asyncio.sleep(LONG)
    assert (now(), limit.expired, cancelling()) == (10, True, 0)
    assert isinstance(raised.value.__cause__, asyncio.CancelledError)


@pytest.mark.parametrize("seconds", [0, -1])
async def test_one_that_is_over_already_cancels_at_the_first_wait(seconds: float) -> None:
    with pytest.raises(TimeoutError), Timeouts().timeout(seconds):
        await asyncio.sleep(LONG)


@virtual
async def test_what_does_not_wait_is_not_interrupted() -> None:
    with Timeouts().timeout(0) as limit:
        pass
    await asyncio.sleep(1)
    assert not limit.expired


@virtual
async def test_of_two_the_inner_runs_out_first() -> None:
    limits = Timeouts()
    with limits.timeout(20) as outer:
        with pytest.raises(TimeoutError), limits.timeout(10) as inner:
            await asyncio.sleep(LONG)
        await asyncio.sleep(5)
    assert (inner.expired, outer.expired) == (True, False)


@virtual
async def test_whether_the_outer_runs_out_first_or_both_at_once_it_is_one_error() -> None:
    limits = Timeouts()
    for seconds in (20, 10):
        with pytest.raises(TimeoutError), limits.timeout(10) as outer, limits.timeout(seconds) as inner:
            await asyncio.sleep(LONG)
        assert (inner.expired, outer.expired, cancelling()) == (seconds == 10, True, 0)


@virtual
async def test_one_within_a_timeout_of_asyncio_and_around_one() -> None:
    limits = Timeouts()
    with pytest.raises(TimeoutError), limits.timeout(10) as outer:
        async with asyncio.timeout(20):
            await asyncio.sleep(LONG)
    assert outer.expired
    inner = limits.timeout(20)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(10):
            await _hang(inner)
    assert (inner.expired, cancelling()) == (False, 0)


@virtual
async def test_errors_of_what_it_watches_come_out_as_they_are() -> None:
    limits = Timeouts()
    with pytest.raises(LookupError), limits.timeout(10):
        raise LookupError
    with pytest.raises(asyncio.CancelledError), limits.timeout(10):
        raise asyncio.CancelledError
    limit = limits.timeout(10)
    with pytest.raises(LookupError), limit:
        await _break_when_cancelled()
    assert (limit.expired, cancelling()) == (True, 0)


@virtual
async def test_what_heeds_no_cancellation_ends_as_it_will() -> None:
    with Timeouts().timeout(10) as limit:
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(LONG)
        await asyncio.sleep(5)
    assert (now(), limit.expired, cancelling()) == (15, True, 0)


@asynccontextmanager
async def _hanging(seconds: float) -> AsyncGenerator["asyncio.Task[None]"]:
    task = asyncio.create_task(_hang(Timeouts().timeout(seconds)))
    await asyncio.sleep(0)
    yield task
    with pytest.raises(asyncio.CancelledError):
        await task
    assert task.cancelled()


@virtual
async def test_cancelled_from_outside_it_is_no_timeout() -> None:
    async with _hanging(10) as task:
        task.cancel()
    await asyncio.sleep(LONG)


@virtual
async def test_cancelled_from_outside_at_the_same_instant_it_is_no_timeout() -> None:
    async with _hanging(10) as task:
        asyncio.get_running_loop().call_at(10, task.cancel)
        await asyncio.sleep(9)
    async with _hanging(10) as task:
        asyncio.get_running_loop().call_at(now() + 10, task.cancel)
        await asyncio.sleep(10)


@virtual
async def test_in_a_task_that_was_cancelled_before_it_is_a_timeout_all_the_same() -> None:
    async def stubborn() -> int:
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(LONG)
        with suppress(TimeoutError), Timeouts().timeout(10):
            await asyncio.sleep(LONG)
        return cancelling()

    task = asyncio.create_task(stubborn())
    await asyncio.sleep(0)
    task.cancel()
    assert await task == 1


@virtual
async def test_what_foreign_code_cancels_within_it_is_distinguished() -> None:
    with pytest.raises(StrayCancellation), Timeouts().timeout(10), contain_cancellation():
        raise asyncio.CancelledError
    with pytest.raises(TimeoutError), Timeouts().timeout(10), contain_cancellation():
        await asyncio.sleep(LONG)


@virtual
async def test_each_of_many_runs_out_at_its_own_time() -> None:
    limits, ends = Timeouts(), list[tuple[str, float]]()

    async def take(who: str, start: float, seconds: float) -> None:
        await asyncio.sleep(start)
        with suppress(TimeoutError), limits.timeout(10):
            await asyncio.sleep(seconds)
        ends.append((who, now()))

    await asyncio.gather(
        take("in time", 0, 3),
        take("late", 1, LONG),
        take("in time, too", 2, 8),
        take("as late", 1, LONG),
        take("later", 4, LONG),
        take("long after", 60, LONG),
    )
    assert ends == [
        ("in time", 3),
        ("in time, too", 10),
        ("late", 11),
        ("as late", 11),
        ("later", 14),
        ("long after", 70),
    ]


@virtual
async def test_a_line_calls_once_each_waiter_who_has_not_left() -> None:
    line, called = Timeouts().queue(10), list[str]()
    calls = {who: lambda who=who: called.append(who) for who in "abc"}
    for call in calls.values():
        line.add(call)
    await asyncio.sleep(5)
    line.remove(calls["a"])
    await asyncio.sleep(LONG)
    line.remove(calls["b"])
    assert called == ["b", "c"]


def test_equal_limits_have_one_timer_together() -> None:
    class Counting(VirtualLoop):
        timers = 0

        def call_at(self, *args: Any, **named: Any) -> asyncio.TimerHandle:
            self.timers += 1
            return super().call_at(*args, **named)

    async def many() -> None:
        limits = Timeouts()
        for _ in range(100):
            with limits.timeout(10):
                pass

    loop = Counting()
    run(many(), loop)
    assert loop.timers == 1


@virtual
async def test_outside_a_task_there_is_nothing_to_be_cancelled() -> None:
    entered: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def enter() -> None:
        with pytest.raises(RuntimeError, match="needs a running task"), Timeouts().timeout(1):
            pass
        entered.set_result(None)

    asyncio.get_running_loop().call_soon(enter)
    await entered
