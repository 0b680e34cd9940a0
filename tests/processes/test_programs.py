"""Programs of all kinds under a supervisor: interactive, stubborn, forking, binary, and endless ones."""

import os
import signal
import sys
from pathlib import Path

import pytest

from palaver.processes.directory import SEGMENT_BYTES, SEGMENTS, is_running
from palaver.processes.supervisor.process_table import start_time
from tests.engine.gateway import until
from tests.processes.workshop import Workshop, workshop

ASKS_PASSWORD = f"{sys.executable} -c \"import getpass; print('got', len(getpass.getpass()))\""
IGNORES_TERM = "trap '' TERM; echo deaf; while true; do sleep 0.05; done"
FORKS_AWAY = (
    "import os, time\n"
    "if os.fork() == 0:\n"
    "    os.setsid()\n"
    "    if os.fork() == 0:\n"
    "        open('daemon', 'w').write(str(os.getpid()))\n"
    "        for number in range(3): os.close(number)\n"
    "        time.sleep(600)\n"
    "    os._exit(0)\n"
)


async def says(shop: Workshop, name: str, text: str, answer: str) -> None:
    """Submit a line to a program, and wait for its answer."""
    await shop.does("submit", process=name, data=text)
    await shop.writes(await shop.process(name), answer.encode())


@pytest.mark.needs("less")
async def test_interactive_programs_have_a_terminal(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    (tmp_path / "work/poem").write_text("".join(f"line {number}\n" for number in range(500)))
    async with workshop(tmp_path / "p.db", tmp_path) as shop:
        repl = await shop.starts(f"{sys.executable} -q", pty=True)
        await shop.writes(repl, b">>> ")
        await says(shop, repl.name, "6 * 7", "42")
        await says(shop, repl.name, "import sys; sys.stdout.isatty()", "True")
        await shop.does("close", process=repl.name)
        assert (await shop.ended(repl)).exit_code == 0

        pager = await shop.starts("less poem", pty=True)
        await shop.writes(pager, b"line 0")
        assert b"line 499" not in shop.output(pager)
        await shop.does("write", process=pager.name, data="G")
        await shop.writes(pager, b"line 499")
        await shop.does("write", process=pager.name, data="q")
        assert (await shop.ended(pager)).exit_code == 0

        prompt = await shop.starts(ASKS_PASSWORD, pty=True)
        await shop.writes(prompt, b"Password: ")
        await says(shop, prompt.name, "open sesame", "got 11")
        assert b"sesame" not in shop.output(prompt)


async def test_pipes_are_written_and_closed(tmp_path: Path) -> None:
    async with workshop(tmp_path / "p.db", tmp_path) as shop:
        process = await shop.starts("sort; echo sorted")
        assert "p1: running" in await shop.does("submit", process="p1", data="b")
        await shop.does("write", process="p1", data="a\n")
        await shop.does("close", process="p1")
        await shop.ended(process)
        assert shop.output(process) == b"a\nb\nsorted\n"
        assert "takes no input: exit code 0" in await shop.does("write", process="p1", data="c")
        assert "closed already" in await shop.does("close", process="p1")
        full = await shop.starts("sleep 60")
        assert [await shop.manager.write(full, b"x" * 500_000) for _ in range(4)][-1] is False
        assert "Write it to a file first" in await shop.does("write", process=full.name, data="x" * 20_001)


async def test_everything_that_a_command_started_is_killed(tmp_path: Path) -> None:
    async with workshop(tmp_path / "p.db", tmp_path) as shop:
        deaf = await shop.starts(IGNORES_TERM)
        await shop.writes(deaf, b"deaf")
        tree = await shop.starts("sleep 600 & (sleep 600 & sleep 600) & echo up; wait")
        await shop.writes(tree, b"up")
        (tmp_path / "work/fork.py").write_text(FORKS_AWAY)
        away = await shop.starts(f"{sys.executable} fork.py")
        daemon = tmp_path / "work/daemon"
        await until(lambda: daemon.exists() and bool(daemon.read_text()))
        pid = int(daemon.read_text())
        born = start_time(pid)

        async def has_exited() -> bool:
            return (await shop.process(away.name)).exit_code == 0

        await until(has_exited)
        told = await shop.does("poll", process=away.name)
        assert told.startswith(f"{away.name}: exit code 0, and what it started still runs")
        assert is_running(pid, born)

        stopping = await shop.manager.kill([tree, away], by="test")
        assert stopping == 2
        assert not is_running(pid, born)
        assert (await shop.process(tree.name)).exit_code == -signal.SIGTERM
        assert (await shop.process(away.name)).ended is not None
        await shop.manager.kill([deaf], by="test", grace=0.2)
        assert (await shop.process(deaf.name)).exit_code == -signal.SIGKILL
        await until(lambda: not _zombies())


def _zombies() -> list[str]:
    """Children of this process that ended and that nobody has waited for."""
    found: list[str] = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, parent = stat.read_text().rpartition(")")[2].split()[:2]
        except OSError:
            continue
        if (state, parent) == ("Z", str(os.getpid())):
            found.append(stat.parent.name)
    return found


async def test_binary_output_is_kept_and_described(tmp_path: Path) -> None:
    async with workshop(tmp_path / "p.db", tmp_path) as shop:
        process = await shop.starts("head -c 70000 /dev/urandom; printf '\\033[31mred\\033[0m\\r\\n\\377\\000'")
        process = await shop.ended(process)
        assert process.output_bytes == 70_000 + 16
        assert "70 kB of binary output" in await shop.does("poll", process=process.name)
        coloured = await shop.runs("printf '\\033[31mred\\033[0m \\tand 50%%\\r100%%\\r\\nend'")
        assert coloured == "(exit code 0 after 0 s)\n100%\nend"


async def test_a_secret_in_the_output_is_redacted(tmp_path: Path) -> None:
    secret = "sk-proj-" + "a1B2c3D4" * 6
    async with workshop(tmp_path / "p.db", tmp_path) as shop:
        assert secret not in await shop.runs(f"echo {secret}")
        process = await shop.starts(f"echo {secret}; echo; echo over")
        await shop.chat.hears("over")
        assert secret not in process.command
        assert not any(secret in each.text for each in shop.chat.shown[1:])


async def test_endless_output_fills_neither_disk_nor_memory(tmp_path: Path) -> None:
    size = (SEGMENTS + 20) * SEGMENT_BYTES
    async with workshop(tmp_path / "p.db", tmp_path) as shop:
        process = await shop.starts(f"echo first; head -c {size} /dev/zero | tr '\\0' x; echo last")
        process = await shop.ended(process)
        directory = shop.manager.directory(process)
        assert process.output_bytes == directory.size() == size + 11
        assert len(directory.segments()) == SEGMENTS
        assert sum(directory.segments().values()) <= SEGMENTS * SEGMENT_BYTES
        assert directory.read(0, 6) == [(0, b"first\n")]
        assert directory.tail(5)[1] == b"last\n"
        assert "(no longer kept)" in await shop.does("log", process=process.name, offset=5 * SEGMENT_BYTES)


async def test_many_processes_run_at_once(tmp_path: Path) -> None:
    async with workshop(tmp_path / "p.db", tmp_path) as shop:
        found = [await shop.starts("cat") for _ in range(12)]
        for process in found:
            assert await shop.manager.write(process, process.name.encode())
        for process in found:
            await shop.writes(process, process.name.encode())
        assert await shop.manager.kill(found, by="test") == len(found)
        assert {(await shop.process(process.name)).exit_code for process in found} == {-signal.SIGTERM}
