"""A Debian of its own, booted with systemd-nspawn: its systemd is process 1 and runs the unit that Palaver installs."""

import asyncio
import os
import shutil
import subprocess
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil

__all__ = ["Debian", "bootstrap"]

SUITE, PYTHON = "bookworm", "3.11"
PACKAGES = "systemd,systemd-sysv,dbus,python3,python3-venv"
_PALAVER = "/opt/palaver/bin/palaver"
_ENVIRONMENT = ("PALAVER_HOME=/var/lib/palaver", "PALAVER_CONFIG=/etc/palaver/palaver.yaml")
_PATIENCE_SECONDS = 180.0


def bootstrap(cache: Path, packages: str = PACKAGES, name: str = SUITE) -> Path:
    """Return the folder with a fresh Debian, made on first use."""
    done = cache / name
    if not done.exists():
        partial = cache / f"{name}.part"
        shutil.rmtree(partial, ignore_errors=True)
        command = ["debootstrap", "--variant=minbase", f"--include={packages}", SUITE, str(partial)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        partial.rename(done)
    return done


@dataclass(kw_only=True)
class Debian:
    """An installation of Palaver as a service of a whole system, which shares only the network with this machine."""

    base: Path
    folder: Path
    wheels: Path
    """With `old` and `new`, a wheel of Palaver in each, and what they need."""
    port: int
    _boots: "subprocess.Popen[bytes] | None" = field(default=None)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def archive(self) -> str:
        return "/backup/palaver.tar"

    @property
    def _root(self) -> Path:
        return self.folder / "root"

    # The machine

    def _start(self) -> "subprocess.Popen[bytes]":
        (self.folder / "backup").mkdir(exist_ok=True)
        options = ["--quiet", "--register=no", "--keep-unit", "--resolv-conf=off", "--link-journal=no"]
        binds = [f"--bind={self.folder}/backup:/backup", f"--bind-ro={self.wheels}:/wheels"]
        command = ["systemd-nspawn", *options, *binds, "--console=pipe", f"--directory={self._root}", "--boot"]
        with (self.folder / "console").open("ab") as console:
            return subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=console, stderr=console, start_new_session=True
            )

    async def _boot(self) -> None:
        self._boots = self._start()
        async with asyncio.timeout(_PATIENCE_SECONDS):
            while True:
                with suppress(IndexError):  # its first process is not there yet
                    state = await self.run("systemctl", "is-system-running", "--wait", check=False)
                    if state.strip() in {"running", "degraded"}:
                        return
                assert self._boots.poll() is None, (self.folder / "console").read_text()[-3000:]
                await asyncio.sleep(0.2)

    async def shut_down(self) -> None:
        if self._boots is None:
            return
        with suppress(subprocess.CalledProcessError):
            await self.run("systemctl", "poweroff")
        await asyncio.to_thread(self._boots.wait, _PATIENCE_SECONDS)
        self._boots = None

    async def run(self, *words: str, check: bool = True) -> str:
        """Run a command in the machine, as root."""
        assert self._boots
        init = psutil.Process(self._boots.pid).children()[0].pid
        command = ["nsenter", f"--target={init}", "--all", "--wd", "env", "-i", f"PATH={os.defpath}:/usr/sbin:/sbin"]
        done = await asyncio.to_thread(
            subprocess.run, [*command, *words], check=False, capture_output=True, text=True, stdin=subprocess.DEVNULL
        )
        if check and done.returncode:
            raise subprocess.CalledProcessError(done.returncode, words, done.stdout, done.stderr)
        return done.stdout

    async def _shown(self, name: str) -> str:
        return (await self.run("systemctl", "show", "--value", f"--property={name}", "palaver")).strip()

    # Palaver

    async def install(self, version: str) -> str:
        await asyncio.to_thread(
            subprocess.run, ["cp", "-a", "--reflink=auto", str(self.base), str(self._root)], check=True
        )
        await self._boot()
        await self.run("useradd", "--system", "palaver")
        await self.run("chown", "palaver", "/backup")
        await self.run("python3", "-m", "venv", "/opt/palaver")
        await self._pip(version)
        await self.run("install", "-d", "-o", "palaver", "-m", "700", "/var/lib/palaver", "/etc/palaver")
        config = self._root / "etc/palaver/palaver.yaml"
        config.write_text(f"web: {{port: {self.port}}}\n")
        await self.run("chown", "palaver", "/etc/palaver/palaver.yaml")
        systemd = (await self.run("systemctl", "--version")).split()[1]
        return f"Debian {SUITE}, systemd {systemd}, {version} version"

    async def _pip(self, version: str) -> None:
        (wheel,) = (self.wheels / version).glob("*.whl")
        options = ["--quiet", "--no-index", "--find-links=/wheels"]
        # Two wheels of one version number: what is installed already has to go first.
        await self.run("/opt/palaver/bin/pip", "uninstall", "--quiet", "--yes", "palaver")
        await self.run("/opt/palaver/bin/pip", "install", *options, f"/wheels/{version}/{wheel.name}[web]")

    async def start(self) -> str:
        await self.run(_PALAVER, "service", "install", "--system", "--user", "palaver")
        assert await self._shown("ActiveState") == "active"
        user, filters = await self._shown("User"), await self._shown("SystemCallFilter")
        assert (user, bool(filters)) == ("palaver", True)
        return f"service active as {user}, watchdog {await self._shown('WatchdogUSec')}"

    async def restart(self) -> str:
        before = await self._shown("MainPID")
        await self.shut_down()
        await self._boot()
        assert await self._shown("ActiveState") == "active", "it does not start at boot"
        return f"rebooted; process {before} is now {await self._shown('MainPID')}"

    async def break_down(self) -> str:
        before = await self._shown("MainPID")
        await self.run("systemctl", "reload", "palaver")
        assert await self._shown("MainPID") == before, "a reload starts it anew"
        await self._signal("KILL")
        await self._until("NRestarts", "1")
        await self._until("ActiveState", "active")
        await self._signal("STOP")
        await self._until("NRestarts", "2")
        await self._until("ActiveState", "active")
        assert "Watchdog timeout" in await self.run("journalctl", "--unit=palaver", "--boot", "--output=cat")
        return "reloaded, killed and frozen; systemd started it again each time, the frozen one by its watchdog"

    async def _signal(self, name: str) -> None:
        await self.run("systemctl", "kill", f"--signal={name}", "--kill-who=main", "palaver")

    async def _until(self, name: str, value: str) -> None:
        async with asyncio.timeout(_PATIENCE_SECONDS):
            while await self._shown(name) != value:  # noqa: ASYNC110 - it is in another process
                await asyncio.sleep(0.1)

    async def upgrade(self) -> str:
        await self.run("systemctl", "stop", "palaver")
        await self._pip("new")
        await self.start()
        return "stopped, installed, started"

    async def palaver(self, *words: str) -> str:
        return await self.run("runuser", "-u", "palaver", "--", "env", *_ENVIRONMENT, _PALAVER, *words)

    async def lose_disk(self) -> str:
        await self.shut_down()
        await asyncio.to_thread(shutil.rmtree, self._root)
        return "removed the whole system"
