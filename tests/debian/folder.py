"""The walk without a machine: a gateway in a folder, started and ended as a service manager would."""

import asyncio
import os
import shutil
import signal
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.forkserver import start_module

__all__ = ["Folder"]

_PATIENCE = 180.0


@dataclass(kw_only=True)
class Folder:
    """Both versions are this tree."""

    folder: Path
    port: int
    _gateway: "subprocess.Popen[str] | None" = field(default=None)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def archive(self) -> str:
        return str(self.folder / "palaver.tar")

    @property
    def _environment(self) -> Mapping[str, str]:
        usual = {name: value for name, value in os.environ.items() if not name.startswith("PALAVER")}
        return usual | {"PALAVER_HOME": str(self.folder / "data"), "PALAVER_WEB__PORT": str(self.port)}

    async def install(self, version: str) -> str:
        return f"{version} version: this tree"

    async def start(self) -> str:
        quiet = subprocess.DEVNULL
        self._gateway = start_module(
            "palaver", "up", stdin=quiet, stdout=quiet, stderr=quiet, env=self._environment, cwd=self.folder
        )
        return "started"

    async def end(self, how: signal.Signals = signal.SIGTERM) -> None:
        if self._gateway:
            self._gateway.send_signal(how)
            await asyncio.to_thread(self._gateway.wait, _PATIENCE)
            self._gateway = None

    async def restart(self) -> str:
        await self.end()
        return await self.start()

    async def break_down(self) -> str:
        await self.end(signal.SIGKILL)
        return await self.start()

    async def upgrade(self) -> str:
        return await self.restart()

    async def palaver(self, *words: str) -> str:
        process = start_module(
            *("palaver", *words),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=self._environment,
            cwd=self.folder,
        )
        out, complaints = await asyncio.to_thread(process.communicate, timeout=_PATIENCE)
        assert process.returncode == 0, complaints
        return out

    async def lose_disk(self) -> str:
        await self.end(signal.SIGKILL)
        shutil.rmtree(self.folder / "data")
        return "removed the data directory"
