"""Commands in containers: over the engine's own HTTP API, and never on this machine.

No Docker engine is there: a server on this machine speaks its documented wire format.
"""

import asyncio
import os
import socket
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path

from palaver.processes.backends.base import Order
from palaver.processes.backends.docker import DockerBackend
from tests.engine.gateway import until
from tests.processes.fake_docker import fake_docker
from tests.processes.workshop import workshop


async def test_a_command_runs_in_a_container_and_not_on_this_machine(tmp_path: Path) -> None:
    async with fake_docker(tmp_path) as (docker, path):
        backend = DockerBackend(image="debian:12", folder=tmp_path / "work", socket=path, environment={"CI": "1"})
        async with workshop(tmp_path / "p.db", tmp_path, backend=backend) as shop:
            told = await shop.runs("echo hello; complain of it; exit 3", folder="src")
            assert told == "(exit code 3 after 0 s)\nhello\nof it"
            (made,) = docker.made
            assert made["Cmd"] == ["sh", "-c", "echo hello; complain of it; exit 3"]
            assert made["WorkingDir"] == "/workspace/src"
            assert made["HostConfig"]["Binds"] == [f"{tmp_path}/work:/workspace"]
            assert made["HostConfig"]["NetworkMode"] == "none"
            assert made["HostConfig"]["CapDrop"] == ["ALL"]
            names = {each.partition("=")[0] for each in made["Env"]}
            assert names == {"CI", "PALAVER_PROCESS", "PALAVER_SESSION"}
            assert docker.containers == {}

            # No matter what it is, it does not touch this machine.
            for command in (f"touch {tmp_path}/a", f"'; touch {tmp_path}/a; '", f"$(touch {tmp_path}/a)", "\n touch a"):
                process = await shop.starts(command)
                await shop.manager.kill([process], by="test", grace=0.1)
            assert not any((folder / "a").exists() for folder in (tmp_path, tmp_path / "work"))
            await until(lambda: not docker.containers)


async def test_streams_go_both_ways_with_and_without_a_terminal(tmp_path: Path) -> None:
    async with fake_docker(tmp_path) as (docker, path):
        backend = DockerBackend(image="debian:12", folder=tmp_path / "work", socket=path)
        async with workshop(tmp_path / "p.db", tmp_path, backend=backend) as shop:
            for has_terminal in (False, True):
                process = await shop.starts("cat", pty=has_terminal)
                await shop.does("submit", process=process.name, data="hello")
                await shop.writes(process, b"hello")
                assert shop.output(process).count(b"hello") == 1
                if has_terminal:
                    (container,) = docker.containers.values()
                    assert container.size == ("40", "120")
                    await shop.manager.kill([process], by="test", grace=60)
                else:
                    await shop.does("close", process=process.name)
                ended = await shop.ended(process)
                assert ended.exit_code == (143 if has_terminal else 0)
            assert docker.containers == {}


async def test_a_container_that_does_not_end_is_removed(tmp_path: Path) -> None:
    async with fake_docker(tmp_path) as (docker, path):
        backend = DockerBackend(image="debian:12", folder=tmp_path / "work", socket=path)
        async with workshop(tmp_path / "p.db", tmp_path, backend=backend) as shop:
            process = await shop.starts("stubborn")
            await until(lambda: bool(docker.containers))
            await shop.manager.kill([process], by="test", grace=60)
            assert (await shop.ended(process)).exit_code == 137
            await until(lambda: not docker.containers)


async def test_a_command_that_is_killed_before_it_has_a_container_never_runs(tmp_path: Path) -> None:
    async with fake_docker(tmp_path) as (docker, path):
        backend = DockerBackend(image="debian:12", folder=tmp_path / "work", socket=path)
        async with workshop(tmp_path / "p.db", tmp_path, backend=backend) as shop:
            docker.can_create.clear()
            process = await shop.starts("sleep 600")
            await until(lambda: "POST containers/create" in docker.calls)
            killing = asyncio.create_task(shop.manager.kill([process], by="test", grace=60))
            # The program that ends containers finds none yet.
            await until(lambda: any(call.startswith("DELETE") for call in docker.calls))
            docker.can_create.set()
            await killing
            assert (await shop.ended(process)).exit_code == 137
            assert docker.made
            assert docker.containers == {}
            assert not any(call.endswith("/start") for call in docker.calls)


def test_a_container_that_does_not_read_before_it_has_written_is_no_deadlock() -> None:
    """It answers each byte with twenty, and takes more only after somebody has read them."""
    ours, theirs = socket.socketpair()
    code = f"copy_streams(socket.socket(fileno={ours.fileno()}), is_raw=True, takes_input=True)"
    program = f"import socket; from palaver.processes.backends.docker_client import copy_streams; {code}"
    client = subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, pass_fds=[ours.fileno()]
    )
    ours.close()

    def feed() -> None:
        assert client.stdin
        with client.stdin as file:
            file.write(b"x" * 1_000_000)

    feeding = threading.Thread(target=feed)
    feeding.start()
    with theirs:
        while data := theirs.recv(1 << 16):
            theirs.sendall(data * 20)
    feeding.join()
    assert client.wait() == 0


def test_a_container_that_ends_without_reading_its_input_says_how_it_ended() -> None:
    ours, theirs = socket.socketpair()
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    code = f"copy_streams(socket.socket(fileno={ours.fileno()}), is_raw=True, takes_input=True)"
    program = f"import socket; from palaver.processes.backends.docker_client import copy_streams; {code}"
    client = subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, pass_fds=[ours.fileno()]
    )
    ours.close()
    assert client.stdin
    assert client.stdout
    client.stdin.write(bytes(60_000))
    client.stdin.flush()
    with theirs:
        assert theirs.recv(1)
        theirs.sendall(b"bye")
    assert client.stdout.read() == b"bye"
    assert client.wait() == 0
    client.stdout.close()
    with suppress(BrokenPipeError):
        client.stdin.close()


def test_input_that_cannot_be_read_ends_and_says_why(tmp_path: Path) -> None:
    ours, theirs = socket.socketpair()
    code = f"copy_streams(socket.socket(fileno={ours.fileno()}), is_raw=True, takes_input=True)"
    program = f"import socket; from palaver.processes.backends.docker_client import copy_streams; {code}"
    unread = os.open(tmp_path / "unread", os.O_WRONLY | os.O_CREAT)
    client = subprocess.Popen(
        [sys.executable, "-c", program], stdin=unread, stderr=subprocess.PIPE, pass_fds=[ours.fileno()], text=True
    )
    os.close(unread)
    ours.close()
    with theirs:
        theirs.settimeout(60)
        assert theirs.recv(1) == b""
    assert client.communicate()[1] == "Docker: the input ends early: Bad file descriptor\n"
    assert client.returncode == 0


async def test_without_an_engine_or_an_image_nothing_runs(tmp_path: Path) -> None:
    async with fake_docker(tmp_path) as (_, path):
        for image, socket, told in (
            ("missing", path, "Docker: No such image: missing"),
            ("debian:12", tmp_path / "nowhere", "Docker: the engine does not answer at"),
        ):
            backend = DockerBackend(image=image, folder=tmp_path / "work", socket=socket)
            folder = tmp_path / image
            async with workshop(tmp_path / f"{image}.db", folder, backend=backend) as shop:
                found = await shop.runs(f"touch {tmp_path}/a")
                assert found.startswith("(exit code 125")
                assert told in found
    assert not (tmp_path / "a").exists()


def test_the_command_is_no_argument_that_others_can_read() -> None:
    launch = DockerBackend(image="i", folder=Path("/f")).launch(Order(command="secret", process="p", session="s"))
    assert not any("secret" in each for each in (*launch.argv, *launch.cleanup))
