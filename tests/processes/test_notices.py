"""What a conversation learns of its processes: matches, checks, and nothing twice."""

from dataclasses import replace
from pathlib import Path

import pytest

from palaver.model.access import AccessRole, Grant
from palaver.processes.notices import MAX_WATCH_NOTICES
from tests.engine.gateway import until
from tests.processes.workshop import Workshop, workshop
from tests.store.world import NOON


async def notices(shop: Workshop, kind: str) -> list[str]:
    rows = await shop.here.rows("SELECT message_id FROM inbox WHERE message_id LIKE 'process%' ORDER BY no")
    return [row[0] for row in rows if kind in row[0]]


async def test_matching_output_is_reported_and_rate_limited(store_url: str, tmp_path: Path) -> None:
    async with workshop(store_url, tmp_path) as shop:
        process = await shop.starts("while read line; do echo $line; done", watch="needle", notify=False)
        await shop.does("submit", process="p1", data="hay, then a needle.")
        told = await shop.chat.hears("has written what you watch for")
        assert told.text.endswith("has written what you watch for:\n```\nhay, then a needle.\n```")
        for word in ("nee", "needle one", "needle two"):
            await shop.does("submit", process="p1", data=word)
        await shop.writes(process, b"needle two")
        assert len(await notices(shop, "match")) == 1
        shop.clock.later(seconds=31)
        await shop.does("submit", process="p1", data="hay")
        told = await shop.chat.hears("and 1 more times since the last notice")
        assert told.text.endswith(":\n```\nneedle one\n```")
        await shop.here.settled()
        assert len(await notices(shop, "match")) == 2
        # What is left when it ends is not lost.
        await shop.does("submit", process="p1", data="last needle")
        await shop.does("close", process="p1")
        await shop.chat.hears("has written what you watch for:\n```\nlast needle")
        await shop.ended(process)
        await shop.here.settled()
        assert len(await notices(shop, "match")) == 3
        assert await notices(shop, "exit") == []


async def test_a_match_is_code_that_it_cannot_close(tmp_path: Path) -> None:
    async with workshop(tmp_path / "p.db", tmp_path) as shop:
        await shop.starts('while read -r line; do echo "$line"; done', watch="needle")
        await shop.does("submit", process="p1", data="a ``` *needle* @all")
        assert (await shop.chat.hears("watch for")).text.endswith("watch for:\n````\na ``` *needle* @all\n````")
        await shop.chat.say(shop.alice, "/new")
        await shop.chat.hears("Started a new conversation")
        shop.clock.later(seconds=31)
        await shop.manager.write(await shop.process("p1"), b"/new `needle`\n")
        told = await shop.chat.hears("watch for: ")
        assert told.text.startswith("Process p1 (`while read")
        assert told.text.endswith("has written what you watch for: `/new 'needle'`")


async def test_a_text_that_is_cut_by_two_reads_is_found(tmp_path: Path) -> None:
    async with workshop(tmp_path / "p.db", tmp_path) as shop:
        await shop.starts("while read line; do printf %s $line; done", watch="needle")
        for part in ("nee", "dle;nee"):
            await shop.does("submit", process="p1", data=part)
        await shop.chat.hears("has written what you watch for:\n```\nneedle\n```")
        # The second one had begun when the first one was reported.
        shop.clock.later(seconds=31)
        await shop.does("submit", process="p1", data="dle!")
        await shop.chat.hears("has written what you watch for:\n```\nneedle\n```", times=2)


@pytest.mark.parametrize(
    "parts",
    [
        [f"ghp_{36 * '7'}-{470 * 'y'}-needle"],
        ["ghp_7777", f"{32 * '7'}-needle"],
        ["the needle ghp_7777", 32 * "7"],
        ["the ghp_777needle", 33 * "7"],
    ],
)
async def test_a_notice_has_no_half_of_a_secret(tmp_path: Path, parts: list[str]) -> None:
    async with workshop(tmp_path / "p.db", tmp_path) as shop:
        await shop.starts("while read line; do printf %s $line; done", watch="needle")
        for part in parts:
            await shop.does("submit", process="p1", data=part)
            await shop.here.settled()
        told = await shop.chat.hears("has written what you watch for")
        assert "needle" in told.text
        assert "777" not in told.text


async def test_of_a_line_that_goes_on_only_the_match_is_shown(tmp_path: Path) -> None:
    async with workshop(tmp_path / "p.db", tmp_path) as shop:
        await shop.starts('while read -r line; do printf %s "$line"; done', watch="needle")
        await shop.does("submit", process="p1", data='password: "correct horse needle sta')
        await shop.chat.hears("has written what you watch for:\n```\nneedle\n```")
        shop.clock.later(seconds=31)
        await shop.does("submit", process="p1", data="ple; hide the needle? [y/N]")
        await shop.chat.hears("hide the needle? [y/N]\n```")


async def test_a_line_that_is_written_over_is_a_line(tmp_path: Path) -> None:
    async with workshop(tmp_path / "p.db", tmp_path) as shop:
        await shop.starts(r"printf 'one\rthe needle 10%%\rpass'; cat", watch="needle")
        await shop.chat.hears("has written what you watch for:\n```\nthe needle 10%\n```")


async def test_the_end_of_a_line_that_goes_on_is_shown_when_nothing_more_can_come(tmp_path: Path) -> None:
    async with workshop(tmp_path / "p.db", tmp_path) as shop:
        await shop.starts('while read line; do printf %s "$line"; done', watch="[y/N]", notify=False)
        await shop.does("submit", process="p1", data="Overwrite? [y/N] ghp_77")
        await shop.chat.hears("has written what you watch for:\n```\n[y/N]\n```")
        await shop.does("submit", process="p1", data=" Really? [y/N] at the end")
        await shop.does("close", process="p1")
        await shop.chat.hears("Really? [y/N] at the end\n```")


async def test_a_process_that_matches_without_end_is_no_longer_reported(tmp_path: Path) -> None:
    async with workshop(tmp_path / "p.db", tmp_path) as shop:
        await shop.starts("while read line; do echo needle; done", watch="needle")
        for number in range(MAX_WATCH_NOTICES + 2):
            shop.clock.later(seconds=31)
            await shop.manager.write(await shop.process("p1"), b"\n")
            if number < MAX_WATCH_NOTICES:
                await until(lambda number=number: _has(shop, number + 1))
        await shop.chat.hears("This is the last notice of this kind")
        await shop.here.settled()
        assert len(await notices(shop, "match")) == MAX_WATCH_NOTICES


async def _has(shop: Workshop, count: int) -> bool:
    return len(await notices(shop, "match")) == count


async def test_matches_from_before_a_crash_are_not_reported_again(store_url: str, tmp_path: Path) -> None:
    async with workshop(store_url, tmp_path, keeps=True) as shop:
        await shop.starts("echo a needle; cat", watch="needle")
        await shop.chat.hears("has written what you watch for")
        await shop.here.settled()
    shop.clock.later(seconds=31)
    async with workshop(store_url, tmp_path, again=shop, worker="w2") as shop:
        await shop.does("submit", process="p1", data="hay")
        await shop.here.settled()
        assert len(await notices(shop, "match")) == 1


async def test_a_running_process_is_checked_at_an_interval(store_url: str, tmp_path: Path) -> None:
    async with workshop(store_url, tmp_path) as shop:
        process = await shop.starts("echo working; cat", check_every=60)
        await shop.writes(process, b"working")
        shop.clock.later(minutes=1)
        await shop.manager.write(process, b"x\n")
        told = await shop.chat.hears("still runs after 1 min")
        assert "Its last output:\n```\nworking" in told.text
        # After a long pause it is reported once.
        shop.clock.later(minutes=10)
        await shop.manager.write(process, b"y\n")
        await shop.chat.hears("still runs after 11 min")
        await shop.here.settled()
        assert len(await notices(shop, "check")) == 2


async def test_a_check_has_no_half_of_a_secret(tmp_path: Path) -> None:
    half, hidden = 'password: "correct horse battery sta', 'password: "[redacted: password]"'
    steps = (half, r'ple"\nOverwrite? [y/N]', rf"\n{half}p")
    shown = (
        ". Its last line is not finished, so it is not shown yet.",
        f"```\n{hidden}\nOverwrite? [y/N]\n```",
        f"```\n{hidden}\nOverwrite? [y/N]\n```",
    )
    async with workshop(tmp_path / "p.db", tmp_path) as shop:
        process = await shop.starts(_says(*steps) + "; cat", check_every=60)
        for minute, (step, expected) in enumerate(zip(steps, shown, strict=True), 1):
            await shop.writes(process, step[-5:].encode())
            shop.clock.later(minutes=1)
            await shop.manager.write(process, b"\n")
            assert (await shop.chat.hears(f"still runs after {minute} min")).text.endswith(expected)
            await shop.manager.write(process, b"\n")


def _says(*steps: str) -> str:
    """Return a command that writes these, each after a line of input, and a space after the next."""
    return "; read line; ".join(f"printf '{step}'; read line; printf ' '" for step in steps)


async def test_a_check_shows_progress_that_is_written_over(tmp_path: Path) -> None:
    async with workshop(tmp_path / "p.db", tmp_path) as shop:
        process = await shop.starts(_says(r"10%%\r20%%\r30%%") + "; cat", check_every=60)
        await shop.writes(process, b"30%")
        shop.clock.later(minutes=1)
        await shop.manager.write(process, b"\n")
        assert (await shop.chat.hears("still runs after 1 min")).text.endswith("```\n20%\n```")


async def test_a_notice_waits_for_the_answer_that_runs_and_withdraws_no_question(tmp_path: Path) -> None:
    async with workshop(tmp_path / "p.db", tmp_path) as shop:
        await shop.starts("while ! test -e go; do sleep 0.05; done")
        await shop.chat.say(shop.alice, "!approve the plan")
        await shop.chat.hears("May I use the echo tool")
        (tmp_path / "work/go").touch()
        await until(lambda: _has_exit(shop))
        await shop.chat.say(shop.alice, "/approve")
        await shop.chat.hears("You said: the plan")
        await shop.chat.hears("has ended")


async def _has_exit(shop: Workshop) -> bool:
    return len(await notices(shop, "exit")) == 1


@pytest.mark.parametrize("now", [AccessRole.GUEST, None])
async def test_who_cannot_use_the_terminal_any_more_gets_no_output(tmp_path: Path, now: AccessRole | None) -> None:
    async with workshop(tmp_path / "db", tmp_path, grants=()) as shop:
        store, alice = shop.here.store, shop.alice
        shop.manager.sees_output = shop.here.engine.sees_output
        admin = Grant(role=AccessRole.ADMIN, platform="fake", user_id=alice.id)
        number = await store.transact(store.grants.add(admin, NOON, by="test"))
        process = await shop.starts("read line; echo found $line; read more", watch="found", notify=True)
        await store.transact(store.grants.remove(number, NOON, by="test"))
        if now:
            await store.transact(store.grants.add(replace(admin, role=now), NOON, by="test"))
        await shop.manager.watchers[process.number].order(b"w", b"secret of the house\n")
        await shop.writes(process, b"secret of the house")
        await until(lambda: _has_notices(shop, "match"))
        rows = await shop.here.rows("SELECT body FROM inbox WHERE message_id LIKE 'process%'")
        assert rows
        assert not [body for (body,) in rows if b"secret of the house" in body]
        if now:  # otherwise it is refused, and its content deleted
            assert [body for (body,) in rows if b"cannot use the terminal now" in body]


async def test_a_notice_that_waits_when_the_terminal_is_lost_comes_without_output(
    store_url: str, tmp_path: Path
) -> None:
    async with workshop(store_url, tmp_path, grants=()) as shop:
        store, alice = shop.here.store, shop.alice
        admin = Grant(role=AccessRole.ADMIN, platform="fake", user_id=alice.id)
        number = await store.transact(store.grants.add(admin, NOON, by="test"))
        process = await shop.starts("read line; echo found $line; read more", watch="found", notify=True)
        await shop.here.settled()
        await shop.chat.say(alice, "!slow 600 wait")
        await until(lambda: _has_turns(shop))
        await shop.manager.watchers[process.number].order(b"w", b"secret of the house\n")
        await until(lambda: _has_notices(shop, "match"))
        bodies = await shop.here.rows("SELECT body FROM inbox WHERE message_id LIKE 'process%' AND state = 'waiting'")
        assert [body for (body,) in bodies if b"secret of the house" in bytes(body)]
        await store.transact(store.grants.remove(number, NOON, by="test"))
        await store.transact(store.grants.add(replace(admin, role=AccessRole.MEMBER), NOON, by="test"))
        await shop.chat.say(alice, "/stop")
        told = await shop.chat.hears("cannot use the terminal now")
        assert "(read line; echo found $line; read more) has written what you watch for. Its output is not" in told.text
        assert not [each for each in await shop.here.entries() if "secret of the house" in each.text]
        left = await shop.here.rows("SELECT body FROM inbox")
        assert not [body for (body,) in left if b"secret of the house" in bytes(body)]


async def _has_turns(shop: Workshop) -> bool:
    return bool(await shop.here.rows("SELECT 1 FROM turns WHERE state = 'running'"))


async def _has_notices(shop: Workshop, kind: str) -> bool:
    return bool(await notices(shop, kind))
