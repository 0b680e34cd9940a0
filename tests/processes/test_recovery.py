"""A gateway that dies: its processes go on, the next gateway finds them again, and each end is reported once."""

import asyncio
import os
import signal
import subprocess
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from palaver.db.transaction import Statements, transaction
from palaver.model.key import ScopedSetting, SessionKey
from palaver.model.process import Process, ProcessState
from palaver.model.reset import ResetMode, ResetPolicy
from palaver.processes import manager
from palaver.processes.backends.base import LocalBackend, Order
from palaver.processes.backends.docker import DockerBackend
from palaver.processes.directory import ProcessDirectory, is_running
from palaver.processes.launcher import Launch, StartFailed, reap, start
from palaver.processes.supervisor.process_table import start_time, stat_fields
from palaver.processes.watcher import Watcher
from palaver.store import processes
from palaver.store.opening import open_store
from palaver.store.records import source_of
from palaver.store.status.invariants import violations
from tests.engine.gateway import until
from tests.processes.fake_docker import fake_docker
from tests.processes.workshop import OPERATOR, Workshop, use, workshop

WAITS = "echo begun; while ! test -e go; do sleep 0.05; done; echo done; exit 5"


def notices(shop: Workshop) -> list[str]:
    return [each.text for each in shop.chat.shown if "has ended" in each.text]


async def test_a_process_that_ends_meanwhile_is_reported_once(store_url: str, tmp_path: Path) -> None:
    async with workshop(store_url, tmp_path, keeps=True) as shop:
        process = await shop.starts(WAITS)
    (tmp_path / "work/go").touch()
    await until(lambda: not shop.manager.directory(process).is_supervised())
    async with workshop(store_url, tmp_path, again=shop, worker="w2") as shop:
        await shop.chat.hears("exit code 5. Its last output:\n```\nbegun\ndone")
    async with workshop(store_url, tmp_path, again=shop, worker="w3") as shop:
        await shop.here.settled()
        assert (await shop.process("p1")).exit_code == 5
        assert len(await shop.here.rows("SELECT no FROM inbox WHERE message_id LIKE 'process%'")) == 1
        assert await shop.here.store.read(violations()) == []


async def test_a_running_process_is_found_again_with_its_output(store_url: str, tmp_path: Path) -> None:
    async with workshop(store_url, tmp_path, keeps=True) as shop:
        await shop.starts("cat; echo over")
        await shop.does("submit", process="p1", data="one")
        await shop.here.settled()
    async with workshop(store_url, tmp_path, again=shop, worker="w2") as shop:
        process = await shop.process("p1")
        assert process.pid is not None
        assert is_running(process.pid, process.pid_started or "")
        await shop.does("submit", process="p1", data="two")
        assert shop.output(process) == b"one\ntwo\n"
        await shop.does("close", process="p1")
        await shop.chat.hears("one\ntwo\nover")


async def test_a_process_whose_supervisor_was_killed_is_lost_and_not_left_running(
    store_url: str, tmp_path: Path
) -> None:
    async with workshop(store_url, tmp_path) as shop:
        process = await shop.starts("echo alive; sleep 600")
        await shop.writes(process, b"alive")
        assert process.pid
        os.kill(int(stat_fields(process.pid)[1]), signal.SIGKILL)
        await shop.chat.hears("lost: its supervisor was killed, so it was killed too. Its last output:\n```\nalive")
        lost = await shop.process("p1")
        assert lost.state is ProcessState.LOST
        assert lost.exit_code is None
        await until(lambda: not is_running(process.pid or 0, process.pid_started or ""))


async def test_a_process_that_never_started_is_reported(store_url: str, tmp_path: Path) -> None:
    """The gateway died after it had recorded the process and before it started the supervisor."""

    @transaction
    def forget_start(number: int) -> Statements[None]:
        unknown = "pid = NULL, exited = NULL, exit_code = NULL, ended = NULL"
        yield f"UPDATE processes SET {unknown}, exit_notice = 'due' WHERE no = ?", (number,)  # noqa: S608

    async with workshop(store_url, tmp_path) as shop:
        process = await shop.starts("true", notify=False)
        await shop.ended(process)
        await shop.here.settled()
    shop.manager.directory(process).remove()
    async with await open_store(store_url) as store:
        await store.transact(forget_start(process.number))
    async with workshop(store_url, tmp_path, again=shop, worker="w2") as shop:
        await shop.chat.hears("lost: it was never started")


async def test_a_gateway_that_dies_while_a_process_starts_leaves_it_to_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Unheard(subprocess.Popen[bytes]):
        """Nobody is left to read that the supervisor is ready."""

        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **options)
            assert self.stdout
            self.stdout.close()

    directory, backend = ProcessDirectory(tmp_path / "one"), LocalBackend(folder=tmp_path)
    order = Order(command="echo begun; sleep 0.2; echo done; exit 5", process="one", session="s")
    monkeypatch.setattr("subprocess.Popen", Unheard)
    with pytest.raises(ValueError, match="closed"):
        await start(directory, backend.launch(order))
    await until(lambda: not directory.is_supervised())
    assert directory.status().exit_code == 5
    assert directory.tail(100) == (0, b"begun\ndone\n")


async def test_a_process_that_starts_while_the_gateway_stops_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, drained = asyncio.Event(), asyncio.Event()

    async def start_late(directory: ProcessDirectory, launch: Launch) -> None:
        begun.set()
        await drained.wait()
        await start(directory, launch)

    monkeypatch.setattr(manager, "start", start_late)
    async with workshop(tmp_path / "p.db", tmp_path, drain_limit=timedelta(0), keeps=True) as shop:
        await shop.chat.say(shop.alice, use("terminal", command=WAITS, background=True))
        await begun.wait()
        await shop.here.engine.drain()
        drained.set()
        await shop.writes(await shop.process("p1"), b"begun")
    async with workshop(tmp_path / "p.db", tmp_path, again=shop, worker="w2") as shop:
        await shop.chat.hears("interrupted: no result was recorded")
        (tmp_path / "work/go").touch()
        await shop.chat.hears("exit code 5. Its last output:\n```\nbegun\ndone")


def test_a_process_id_that_was_used_before_passes_for_nobody() -> None:
    assert is_running(os.getpid(), start_time(os.getpid()))
    assert not is_running(os.getpid(), "another boot:1")
    assert not is_running(1 << 30, start_time(1 << 30))


async def test_each_gateway_looks_after_its_own_processes(store_url: str, tmp_path: Path) -> None:
    if store_url.startswith("sqlite"):
        return  # one gateway owns the file
    async with (
        workshop(store_url, tmp_path, worker="w1", home="a", alone=False, keeps=True) as one,
        workshop(store_url, tmp_path, worker="w2", home="b", alone=False) as two,
    ):
        process = await one.starts("sleep 600")
        keeper = two if process.worker == "w2" else one
        other = one if keeper is two else two
        assert keeper.manager.is_here(process)
        assert not other.manager.is_here(process)
        await other.manager.look_after()
        assert (await one.process("p1")).worker == process.worker
        # The other one can ask for its end, and reads where the output is.
        assert await other.manager.kill([process], by="test") == 1
        await one.ended(process)


async def test_a_process_that_does_not_answer_holds_up_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed, both = set[str](), asyncio.Event()

    async def kill(watcher: Watcher) -> bool:
        killed.add(watcher.process.name)
        if len(killed) > 1:
            both.set()
        await both.wait()
        return True

    async with workshop(tmp_path / "p.db", tmp_path) as shop:
        found = [await shop.starts("sleep 600") for _ in range(2)]
        with monkeypatch.context() as patched:
            patched.setattr(Watcher, "kill", kill)
            numbers = [process.number for process in found]
            await shop.here.store.transact(processes.ask_stop(numbers, shop.clock.now(), by="test"))
            await asyncio.wait_for(both.wait(), 60)


async def test_an_error_with_one_process_leaves_nothing_running_for_others(tmp_path: Path) -> None:
    asked, answered = list[str](), list[str]()

    class Asked(Watcher):
        async def obey(self, process: Process) -> None:
            asked.append(process.name)
            if process.name == "p1":
                raise OSError
            await asyncio.sleep(0.05)
            answered.append(process.name)

    async with workshop(tmp_path / "p.db", tmp_path) as shop:
        here = shop.manager
        other = manager.ProcessManager(store=here.store, home=here.home, keeper=here.keeper, clock=here.clock)
        for process in [await shop.starts("sleep 600") for _ in range(2)]:
            other.watchers[process.number] = Asked(process, here.directory(process), here.store, here.clock)
        for count in (1, 2):
            with pytest.raises(OSError):  # noqa: PT011 - it has no message
                await other.look_after()
            assert (sorted(asked), answered) == (["p1"] * count + ["p2"] * count, ["p2"] * count)


async def test_a_supervisor_that_cannot_be_reached_takes_no_input_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("palaver.processes.watcher._CONNECT_SECONDS", 0.05)
    async with workshop(tmp_path / "p.db", tmp_path) as shop:
        process = await shop.starts("sleep 600")
        watcher = Watcher(process, ProcessDirectory(tmp_path / "elsewhere"), shop.here.store, shop.clock)
        assert not await asyncio.wait_for(watcher.order(b"w", b"hello"), 60)


async def test_a_gateway_takes_over_from_a_dead_one_with_the_same_directory(store_url: str, tmp_path: Path) -> None:
    async with workshop(store_url, tmp_path, alone=False, keeps=True) as shop:
        process = await shop.starts(WAITS)
    shop.clock.later(seconds=60)
    async with workshop(store_url, tmp_path, again=shop, alone=False, worker="w2") as shop:
        await until(lambda: bool(shop.manager.watchers))
        assert (await shop.process("p1")).worker == "w2"
        (tmp_path / "work/go").touch()
        await shop.chat.hears("exit code 5")
        await shop.ended(process)


async def test_a_process_of_a_machine_that_is_gone_counts_as_lost_after_a_day(store_url: str, tmp_path: Path) -> None:
    async with workshop(store_url, tmp_path, home="gone", alone=False) as shop:
        process = await shop.starts("sleep 600")
    shop.clock.later(hours=25)
    async with workshop(store_url, tmp_path, again=shop, home="other", alone=False, worker="w2") as shop:
        await shop.chat.hears("lost: the gateway on host gone has not looked after it since")
        assert (await shop.process(process.name)).state is ProcessState.LOST


async def test_a_live_process_holds_off_the_reset_until_it_is_a_day_old(store_url: str, tmp_path: Path) -> None:
    idle = ScopedSetting(default=ResetPolicy(mode=ResetMode.IDLE, idle_minutes=60))
    async with workshop(store_url, tmp_path, resets=idle) as shop:
        process = await shop.starts("sleep 600")
        shop.clock.later(hours=3)
        await shop.chat.say(shop.alice, "still here?")
        await shop.chat.hears("still here?")
        sessions = await shop.here.rows("SELECT id FROM sessions")
        assert len(sessions) == 1
        # Its notice belongs to the same conversation, although nobody has spoken for long, and does not count as talk.
        shop.clock.later(hours=3)
        spoken = await shop.here.rows("SELECT last_human FROM sessions")
        await shop.manager.kill([process], by="test")
        await shop.chat.hears("has ended")
        assert await shop.here.rows("SELECT last_human FROM sessions") == spoken
        assert len(await shop.here.rows("SELECT id FROM sessions")) == 1
        await shop.chat.say(shop.alice, "hello again")
        await shop.chat.hears("You said: hello again")
        assert len(await shop.here.rows("SELECT id FROM sessions")) == 2
        await shop.starts("sleep 600")
        shop.clock.later(hours=25)
        await shop.chat.say(shop.alice, "a day later")
        await shop.chat.hears("You said: a day later")
        assert len(await shop.here.rows("SELECT id FROM sessions")) == 3


async def test_a_notice_for_a_conversation_that_is_over_goes_to_its_chat(store_url: str, tmp_path: Path) -> None:
    async with workshop(store_url, tmp_path) as shop:
        await shop.starts(WAITS)
        await shop.chat.say(shop.alice, "/new")
        await shop.chat.hears("Started a new conversation")
        (tmp_path / "work/go").touch()
        told = await shop.chat.hears("has ended")
        assert told.text.startswith("Process p1 (`echo begun; ")
        assert "Its last output" not in told.text
        await shop.here.settled()
        assert await shop.here.rows("SELECT no FROM inbox WHERE message_id LIKE 'process%'") == []


async def test_a_notice_follows_the_conversation_to_another_chat(store_url: str, tmp_path: Path) -> None:
    async with workshop(store_url, tmp_path) as shop:
        await shop.starts(WAITS)
        session = (await shop.here.rows("SELECT id FROM sessions"))[0][0]
        group = shop.here.world.group("Dev", shop.alice)
        await group.say(shop.alice, "hello")
        await group.hears("hello")
        await shop.here.settled()
        store, rows = shop.here.store, await shop.here.rows("SELECT key, address FROM routes ORDER BY session_no DESC")
        key, address = SessionKey.parse(rows[0][0]), source_of(rows[0][1])
        await store.transact(store.sessions.switch(key, address, session, OPERATOR, shop.clock.now(), by="test"))
        (tmp_path / "work/go").touch()
        await group.hears("has ended")
        assert notices(shop) == []
        assert await shop.here.store.read(violations()) == []


async def test_finished_processes_are_forgotten_after_a_while_with_their_output(tmp_path: Path) -> None:
    async with workshop(tmp_path / "p.db", tmp_path) as shop:
        process = await shop.starts("echo hello")
        await shop.chat.hears("has ended")
        await shop.manager.clean_up(shop.clock.now())
        assert shop.manager.is_here(process)
        shop.clock.later(hours=25)
        await shop.manager.clean_up(shop.clock.now())
        assert not shop.manager.is_here(process)
        assert await shop.here.store.read(shop.here.store.processes.list_visible(OPERATOR)) == []


async def test_a_command_whose_start_cannot_be_recorded_does_nothing(tmp_path: Path) -> None:
    class FullDisk(ProcessDirectory):
        def make(self) -> int:
            lock = super().make()
            (self.path / "status").symlink_to("/dev/full")
            return lock

    directory = FullDisk(tmp_path / "one")
    order = Order(command="echo $$ > ran; sleep 600", process="one", session="s")
    with pytest.raises(StartFailed):
        await start(directory, LocalBackend(folder=tmp_path).launch(order))
    await until(lambda: not directory.is_supervised())
    assert not (tmp_path / "ran").exists()


async def test_nothing_is_left_of_a_process_whose_supervisor_was_killed(tmp_path: Path) -> None:
    """Not what outlives the command, nor what has a session of its own, nor what runs elsewhere."""
    async with fake_docker(tmp_path) as (docker, path):
        backend = DockerBackend(image="debian:12", folder=tmp_path / "work", socket=path)
        async with workshop(tmp_path / "d.db", tmp_path / "d", backend=backend) as shop:
            process = await shop.starts("sleep 600")
            await until(lambda: any(call.endswith("/start") for call in docker.calls))
            os.kill(shop.manager.directory(process).status().supervisor or 0, signal.SIGKILL)
            await shop.ended(process)
            assert docker.containers == {}
    async with workshop(tmp_path / "p.db", tmp_path) as shop:
        for number, command in enumerate(
            ("sleep 600 & echo $! > pid0", "setsid sleep 600 & echo $! > pid1; sleep 600")
        ):
            process = await shop.starts(command)
            file = tmp_path / f"work/pid{number}"
            await until(lambda file=file: file.exists() and bool(file.read_text().strip()))
            pid = int(file.read_text())
            born = start_time(pid)
            if number == 0:
                await until(lambda process=process: shop.manager.directory(process).status().exited is not None)
            os.kill(shop.manager.directory(process).status().supervisor or 0, signal.SIGKILL)
            await shop.ended(process)
            await until(lambda pid=pid, born=born: not is_running(pid, born))


async def test_a_supervisor_whose_directory_was_removed_ends_with_its_command(tmp_path: Path) -> None:
    directory = ProcessDirectory(tmp_path / "one")
    await start(directory, LocalBackend(folder=tmp_path).launch(Order(command="yes", process="-", session="s")))
    await until(lambda: directory.size() > 0)
    status = directory.status()
    directory.remove()

    def are_over() -> bool:
        reap()
        found = ((status.pid, status.pid_started), (status.supervisor, status.supervisor_started))
        return not any(is_running(pid or 0, born or "") for pid, born in found)

    await until(are_over)


async def test_a_process_whose_control_socket_was_removed_can_be_killed(tmp_path: Path) -> None:
    async with workshop(tmp_path / "p.db", tmp_path, keeps=True) as shop:
        process = await shop.starts("sleep 600")
    shop.manager.directory(process).control.unlink()
    async with workshop(tmp_path / "p.db", tmp_path, again=shop, worker="w2") as shop:
        assert await shop.manager.kill([process], by="test") == 1
        await shop.ended(process)
    assert not is_running(process.pid or 0, process.pid_started or "")
