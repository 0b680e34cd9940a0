"""Commands that an agent runs: in the foreground, in the background, and from one to the other."""

import asyncio
import json
from collections.abc import AsyncGenerator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from palaver.agents.echo import EchoAgent
from palaver.engine.settings import Agents
from palaver.model.key import ScopedSetting
from palaver.model.process import Process, ProcessState
from palaver.model.transcript import ToolCall
from palaver.model.turn import BusyMode
from palaver.processes import manager
from palaver.processes.directory import ProcessDirectory
from palaver.processes.launcher import Launch
from palaver.processes.manager import ProcessManager
from palaver.protocols.agent import Event, Final, Request
from palaver.store.processes import ProcessLimits
from tests.engine.agents import Scripted
from tests.engine.gateway import until
from tests.processes.workshop import Workshop, use, workshop
from tests.settings import change


async def test_a_command_runs_and_says_how_it_ended(store_url: str, tmp_path: Path) -> None:
    async with workshop(store_url, tmp_path) as shop:
        assert await shop.runs("pwd; echo oops >&2; exit 3") == f"(exit code 3 after 0 s)\n{tmp_path}/work\noops"
        assert await shop.does("list") == "There are no processes in this conversation."
        assert shop.manager.home.ids() == []


async def test_the_environment_names_the_session_and_has_none_of_the_gateways_secrets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "canary")
    monkeypatch.setenv("PALAVER_STORE", "postgresql://canary")
    async with workshop(tmp_path / "p.db", tmp_path) as shop:
        told = await shop.runs("env | sort")
        names = {line.partition("=")[0] for line in told.splitlines()[1:]}
        assert names <= {"HOME", "LANG", "LOGNAME", "OLDPWD", "PATH", "PWD", "PALAVER_PROCESS", "PALAVER_SESSION"} | {
            "SHELL",
            "SHLVL",
            "TMPDIR",
            "TZ",
            "USER",
            "_",
        } | {name for name in names if name.startswith("LC_")}
        session = (await shop.here.rows("SELECT id FROM sessions"))[0][0]
        assert f"PALAVER_SESSION={session}" in told
        assert "canary" not in told
        # Nor does a file or a descriptor of the gateway reach it.
        assert await shop.runs("ls /proc/self/fd | tr '\\n' ' '") == "(exit code 0 after 0 s)\n0 1 2 3 "


async def test_a_command_that_takes_long_goes_on_in_the_background(
    store_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wait = ProcessManager.wait

    async def wait_once_begun(manager: ProcessManager, process: Process, *args: Any) -> Process:
        await until(lambda: manager.directory(process).size() > 0)
        return await wait(manager, process, *args)

    monkeypatch.setattr(ProcessManager, "wait", wait_once_begun)
    async with workshop(store_url, tmp_path) as shop:
        told = await shop.runs("echo begun; while ! test -e go; do sleep 0.05; done; echo done", timeout=1)
        assert told.startswith("It still runs after 1 s, and goes on in the background as p1.")
        assert told.endswith("\nbegun")
        (tmp_path / "work/go").touch()
        await shop.chat.hears("has ended")
        assert "exit code 0. Its last output:\n```\nbegun\ndone" in shop.chat.shown[-1].text
        assert shop.chat.shown[-1].reply_to is None, "nobody wrote the notice"


async def test_a_foreground_command_reads_an_empty_input(tmp_path: Path) -> None:
    async with workshop(tmp_path / "p.db", tmp_path) as shop:
        assert await shop.runs("cat; echo done") == "(exit code 0 after 0 s)\ndone"


async def test_a_command_that_cannot_start_says_why(tmp_path: Path) -> None:
    async with workshop(tmp_path / "p.db", tmp_path) as shop:
        assert "Cannot run" in await shop.runs("true", folder="nowhere")
        assert "not found" in await shop.runs("no-such-program")
        assert "exit code 127" in await shop.runs("no-such-program")
        before = await shop.does("list")
        for wrong in ({"command": "echo \ud800"}, {"command": "true", "folder": "\ud800"}):
            assert "not started: it has half a character in it." in await shop.uses("terminal", **wrong)
        assert await shop.does("list") == before


async def test_numbers_without_end_are_clamped(tmp_path: Path) -> None:
    async with workshop(tmp_path / "p.db", tmp_path) as shop:
        assert "exit code 0" in await shop.runs("true", timeout=10**400)
        process = await shop.starts("sleep 60", check_every=10**30)
        assert process.check_every == timedelta(days=366)


@pytest.mark.parametrize(
    ("says", "changed"),
    [
        ("/stop", {}),
        ("/stop all", {}),
        ("never mind", {"busy": ScopedSetting(default=BusyMode.INTERRUPT)}),
        ("", {"turn_limit": timedelta(seconds=1)}),
    ],
    ids=["stop", "stop all", "interrupt", "turn limit"],
)
async def test_a_command_ends_with_its_answer_and_nobody_hears_of_it(
    tmp_path: Path, says: str, changed: dict[str, Any]
) -> None:
    async with workshop(tmp_path / "p.db", tmp_path, **changed) as shop:
        await shop.chat.say(shop.alice, use("terminal", command="sleep 60 & sleep 60"))
        await until(lambda: bool(shop.manager.home.ids()))
        if says:
            await shop.chat.say(shop.alice, says)
        assert (await shop.ended(await shop.process("p1"))).exit_code == -15
        await _is_silent(shop)


async def test_a_command_that_starts_while_its_answer_is_stopped_is_no_news(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go = asyncio.Event()

    async def start_late(directory: ProcessDirectory, launch: Launch) -> None:
        await go.wait()
        await start(directory, launch)

    start = manager.start
    monkeypatch.setattr(manager, "start", start_late)
    async with workshop(tmp_path / "p.db", tmp_path) as shop:

        async def has_begun() -> bool:
            return bool(await shop.here.rows("SELECT 1 FROM processes"))

        await shop.chat.say(shop.alice, use("terminal", command="true"))
        await until(has_begun)
        await shop.chat.say(shop.alice, "/stop")
        await shop.chat.hears("Stopping.")
        await shop.here.settled()
        go.set()
        await shop.ended(await shop.process("p1"))
        await _is_silent(shop)


async def _is_silent(shop: Workshop) -> None:
    """Assert that no notice of a process follows."""
    await until(lambda: not shop.manager.watchers)
    await shop.here.settled()
    assert await shop.here.rows("SELECT exit_notice FROM processes") == [("done",)]
    assert await shop.here.rows("SELECT 1 FROM inbox WHERE message_id LIKE 'process%' AND state <> 'done'") == []
    assert not any("has ended" in each for each in await shop.here.texts())


async def test_limits_hold_for_a_conversation_and_for_all(store_url: str, tmp_path: Path) -> None:
    async with workshop(store_url, tmp_path, limits=ProcessLimits(per_session=2, total=3)) as shop:
        for _ in range(2):
            await shop.starts("sleep 60")
        told = await shop.runs("sleep 60", background=True)
        assert told == "This conversation already runs 2 processes. Kill one that you no longer need."
        await shop.chat.say(shop.alice, "/new")
        await shop.starts("sleep 60")
        assert "This gateway already runs 3 processes." in await shop.runs("true")
        assert await shop.does("kill", process="all") == "Killed 1 processes."
        assert await shop.here.rows("SELECT exit_notice FROM processes WHERE no = 3") == [("done",)]
        assert "exit code 0" in await shop.runs("true")


async def test_an_agent_sees_only_the_processes_of_its_conversation(tmp_path: Path) -> None:
    async with workshop(tmp_path / "p.db", tmp_path) as shop:
        await shop.starts("sleep 60")
        bob = shop.here.world.person("bob")
        his = shop.here.world.dm(bob)
        for text, told in (
            (use("process", action="list"), "process: There are no processes in this conversation."),
            (use("process", action="kill", process="p1"), "There is no such process in this conversation."),
            (use("process", action="log", process="p1; DROP TABLE x"), "There is no such process"),
        ):
            await his.say(bob, text)
            await his.hears(told)
        assert (await shop.process("p1")).state is ProcessState.RUNNING


async def test_wait_is_clamped_and_says_so(tmp_path: Path) -> None:
    async with workshop(tmp_path / "p.db", tmp_path, wait_limit=timedelta(seconds=0.2)) as shop:
        await shop.starts("sleep 60")
        told = await shop.does("wait", process="p1", timeout=3600)
        assert told.startswith("The wait ended after 0 seconds (at most 0 seconds at a time). The process goes on.")


async def test_no_call_waits_until_the_limit_of_tools_also_after_a_reload(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits = list[float]()

    async def slow_start(manager: ProcessManager, *arguments: Any, **options: Any) -> Process:
        await asyncio.sleep(0.2)
        return await start(manager, *arguments, **options)

    async def no_wait(_: ProcessManager, process: Process, seconds: float, *_interrupted: object) -> Process:
        waits.append(seconds)
        return process

    start = ProcessManager.start
    monkeypatch.setattr(ProcessManager, "start", slow_start)
    monkeypatch.setattr(ProcessManager, "wait", no_wait)
    async with workshop(tmp_path / "p.db", tmp_path, wait_limit=timedelta(hours=1)) as shop:
        engine = shop.here.engine
        engine.reload(change(engine.settings, tool_limit=timedelta(seconds=60)), Agents(EchoAgent()))
        assert "at most" not in await shop.runs("sleep 60", timeout=5)
        told = await shop.runs("sleep 60", timeout=3600)
        assert (waits[0], waits[1] <= 54 - 0.2) == (5, True)
        assert told.startswith(
            f"It still runs after {int(waits[1])} s (at most {int(waits[1])} seconds at a time), and"
        )
        told = await shop.does("wait", process="p1", timeout=3600)
        assert 0 < waits[2] < 54
        assert told.startswith(
            f"The wait ended after {int(waits[2])} seconds (at most {int(waits[2])} seconds at a time)."
        )


async def test_wait_ends_early_when_the_person_writes(store_url: str, tmp_path: Path) -> None:
    async with workshop(store_url, tmp_path) as shop:
        await shop.starts("sleep 60")
        await shop.chat.say(shop.alice, use("process", action="wait", process="p1", timeout=20))
        await until(lambda: any(watcher.waiters for watcher in shop.manager.watchers.values()))
        await shop.chat.say(shop.alice, "are you there?")
        await shop.chat.hears("The wait ended because somebody has written to you. The process goes on.")
        await shop.chat.hears("You said: are you there?")


async def test_what_the_agent_saw_itself_is_not_reported_again(store_url: str, tmp_path: Path) -> None:
    async with workshop(store_url, tmp_path) as shop:
        await shop.starts("while ! test -e go; do sleep 0.05; done; exit 7")
        waiting = asyncio.create_task(shop.does("wait", process="p1"))
        await until(lambda: any(watcher.waiters for watcher in shop.manager.watchers.values()))
        (tmp_path / "work/go").touch()
        assert (await waiting).startswith("p1: exit code 7")
        await shop.here.settled()
        assert [each.text for each in shop.chat.shown if "has ended" in each.text] == []


async def test_a_notice_that_waits_is_withdrawn_when_the_agent_looks(store_url: str, tmp_path: Path) -> None:
    async def looks(request: Request) -> AsyncGenerator[Event]:
        toolbox, now = request.toolbox, {"command": "true", "background": True}
        await toolbox.use(ToolCall(id="a", name="terminal", arguments=json.dumps(now)))
        await until(lambda: has_notice)
        told = await toolbox.use(ToolCall(id="b", name="process", arguments='{"action": "poll", "process": "p1"}'))
        yield Final(text=told)

    has_notice = False
    async with workshop(store_url, tmp_path, agent=Scripted(looks)) as shop:
        await shop.chat.say(shop.alice, "look")

        async def notice_waits() -> bool:
            return bool(await shop.here.rows("SELECT 1 FROM inbox WHERE message_id LIKE 'process%'"))

        await until(notice_waits)
        has_notice = True
        await shop.chat.hears("p1: exit code 0")
        await shop.here.settled()
        states = await shop.here.rows("SELECT state, reason FROM inbox WHERE message_id LIKE 'process%'")
        assert states == [("done", "the agent has seen the end of the process")]


async def test_the_last_output_is_shown_and_a_log_can_be_read_in_pages(tmp_path: Path) -> None:
    async with workshop(tmp_path / "p.db", tmp_path) as shop:
        told = await shop.runs("seq 1 20000")
        assert told.startswith("(exit code 0 after 0 s; its whole output is in the log of p1)\n… ")
        assert told.endswith("\n20000")
        assert (await shop.does("log", process="p1", offset=0)).startswith(
            "(Bytes 0 to 19998 of 108894, 109 kB. Continue at offset 19998.)\n1\n2\n"
        )
        assert (await shop.does("log", process="p1")).endswith("\n20000\n")
        assert (await shop.does("log", process="p1", offset=999999)).startswith("(Bytes 108894 to 108894 of 108894")
        shop.manager.directory(await shop.process("p1")).remove()
        assert "Its output is on host here" in await shop.does("log", process="p1")
