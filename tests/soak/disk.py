"""A disk that can be filled: a small file system where that can be mounted, else a limit on the size of files."""

import os
import resource
import subprocess
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["SmallDisk", "small_disk"]

_SIZE = 1 << 30
_CHUNK = 16 << 20


class SmallDisk:
    def __init__(self, folder: Path, *, is_mounted: bool) -> None:
        self.folder = folder
        self.is_mounted = is_mounted
        self._eater = folder / "eater"

    def fill(self, gateway: int) -> None:
        """Leave no room; or, where nothing can be mounted, none for the files of this process."""
        if not self.is_mounted:
            sizes = [file.stat().st_size for file in self.folder.glob("palaver.db-wal")]
            self._limit(gateway, max(sizes, default=0))
            return
        eater = os.open(self._eater, os.O_WRONLY | os.O_CREAT)
        size = _CHUNK
        while size:
            try:
                os.write(eater, bytes(size))
            except OSError:
                size //= 2
        os.close(eater)

    def free(self, gateway: int) -> None:
        if self.is_mounted:
            self._eater.unlink(missing_ok=True)
        else:
            self._limit(gateway, None)

    def _limit(self, gateway: int, most: int | None) -> None:
        try:
            _, hard = resource.prlimit(gateway, resource.RLIMIT_FSIZE)
            resource.prlimit(gateway, resource.RLIMIT_FSIZE, (hard if most is None else most, hard))
        except ProcessLookupError:
            return


@contextmanager
def small_disk(folder: Path) -> Generator[SmallDisk]:
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={_SIZE}", "palaver-soak", str(folder)]
    is_mounted = subprocess.run(mount, capture_output=True, check=False).returncode == 0
    try:
        yield SmallDisk(folder, is_mounted=is_mounted)
    finally:
        if is_mounted:
            subprocess.run(["umount", "-l", str(folder)], check=True)
