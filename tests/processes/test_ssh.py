"""Commands on another machine over ssh: a real client and a real sshd on loopback."""

import os
import pwd
from pathlib import Path

import pytest

from palaver.processes.backends.base import Order
from palaver.processes.backends.ssh import SshBackend
from palaver.processes.directory import is_running
from palaver.processes.supervisor.process_table import start_time
from tests.engine.gateway import until
from tests.processes.sshd import Sshd, sshd
from tests.processes.workshop import workshop


def backend(server: Sshd, folder: Path, **changed: object) -> SshBackend:
    given = {
        "host": server.host,
        "port": server.port,
        "key": server.key,
        "known_hosts": server.known_hosts,
        "folder": str(folder),
        **changed,
    }
    return SshBackend(**given)  # pyright: ignore[reportArgumentType]


@pytest.mark.needs("ssh", "sshd")
async def test_commands_run_there_with_their_streams_and_codes(tmp_path: Path) -> None:
    there = tmp_path / "there is a 'place'"
    (there / "src").mkdir(parents=True)
    async with sshd(tmp_path / "sshd") as server:
        over_there = backend(server, there, environment={"CI": "it's 1"})
        async with workshop(tmp_path / "p.db", tmp_path, backend=over_there) as shop:
            told = await shop.runs('pwd; echo "$CI $HOME"; test -n "$SSH_CONNECTION"; echo $?; exit 3', folder="src")
            assert told.startswith("(exit code 3 after 0 s)\n")  # then sshd may complain that there is no such home
            assert told.endswith(f"{there}/src\nit's 1 {pwd.getpwuid(os.getuid()).pw_dir}\n0")
            process = await shop.starts("cat; echo over")
            await shop.does("submit", process=process.name, data="hello")
            await shop.does("close", process=process.name)
            await shop.chat.hears("hello\nover")
            shell = await shop.starts("tty; read line; echo got $line", pty=True)
            await shop.writes(shell, b"/dev/pts")
            await shop.does("submit", process=shell.name, data="it")
            await shop.writes(shell, b"got it")


@pytest.mark.needs("ssh", "sshd")
async def test_a_command_is_killed_there_even_if_it_forks_away(tmp_path: Path) -> None:
    async with (
        sshd(tmp_path / "sshd") as server,
        workshop(tmp_path / "p.db", tmp_path, backend=backend(server, tmp_path)) as shop,
    ):
        # The second has no variable of ours any more.
        for away in ("setsid", "env -i PATH=$PATH setsid"):
            file = tmp_path / "pid"
            file.unlink(missing_ok=True)
            process = await shop.starts(f"{away} sh -c 'echo $$ > pid; trap \"\" HUP TERM; sleep 600' & sleep 600")
            await until(lambda file=file: file.exists() and bool(file.read_text().strip()))
            pid = int(file.read_text())
            born = start_time(pid)
            assert is_running(pid, born)
            await shop.manager.kill([process], by="test")
            await until(lambda pid=pid, born=born: not is_running(pid, born))


@pytest.mark.needs("ssh", "sshd")
async def test_nothing_runs_here_if_there_is_nobody_there(tmp_path: Path) -> None:
    async with sshd(tmp_path / "sshd") as server:
        wrong = {"port": 1}, {"known_hosts": Path("/dev/null")}, {"key": tmp_path / "sshd/host"}
        for number, changed in enumerate(wrong):
            other = backend(server, tmp_path, **changed)
            async with workshop(tmp_path / f"{number}.db", tmp_path, backend=other) as shop:
                told = await shop.runs(f"touch {tmp_path}/a")
                assert told.startswith("(exit code 255"), told
                assert await shop.does("list") == "There are no processes in this conversation."
    assert not (tmp_path / "a").exists()


def test_no_command_gets_out_of_its_argument() -> None:
    there = SshBackend(host="h", folder="/f")
    for command in ("'; touch a; '", "$(touch a)", "`touch a`", "-oProxyCommand=touch a", "a\nb", "a & b"):
        launch = there.launch(Order(command=command, process="p", session="s"))
        *options, line = launch.argv
        assert options[-2:] == ["--", "h"]
        assert options[0] == "ssh"
        assert not any("touch" in option for option in options)
        assert "touch" not in str(launch.cleanup)
        assert line.startswith("cd /f && exec env ")
