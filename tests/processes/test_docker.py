"""Commands in containers: over the engine's own HTTP API, and never on this machine.

No Docker engine is there: a server on this machine speaks its documented wire format.
"""

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

            # Whatever it is, it does not touch this machine.
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
                    await shop.manager.kill([process], by="test")
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
            await shop.manager.kill([process], by="test")
            assert (await shop.ended(process)).exit_code == 137
            await until(lambda: not docker.containers)


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
