"""The local adapter: each message becomes a file, in a folder for its owner and one for its name."""

import asyncio
import hashlib
import re
import shutil
import unicodedata
from collections.abc import Callable
from pathlib import Path

from palaver.protocols import Limits, Outbound, Platform, PlatformBusy, Receiver

LOCAL = Platform(name="local", title="Local files", place="files on this machine", for_people=False, output_only=True)

_MAX_TEXT = 10_000_000
_DISK_PAUSE_SECONDS = 60.0
_MAX_NAME = 60
_UNSAFE = re.compile(r"[^a-z0-9]+")
_UNSAFE_TIME = re.compile(r"[^0-9A-Za-z-]+")
_UNSAFE_SUFFIX = re.compile(r"[^A-Za-z0-9.]+")


class LocalAdapter:
    """`<folder>/<owner>/<name>/<time>-<digest>.md`. Nothing from outside is used in a path as it is."""

    platform = LOCAL
    account: str | None = None
    limits = Limits(text=_MAX_TEXT, repeats_safely=True)

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    async def run(self, receiver: Receiver) -> None:
        await receiver.connected()
        await asyncio.Event().wait()

    async def send(self, outbound: Outbound, *, idempotency_key: str) -> str:
        """Write the file; sent again under the same key, it is the same file."""
        name = file_name(outbound, idempotency_key, ".md")
        text = f"{outbound.text.rstrip()}\n".encode()
        return await self._write(name, lambda path: path.write_bytes(text))

    async def send_file(self, outbound: Outbound, content: Path, *, idempotency_key: str) -> str:
        suffix = Path(outbound.file.name.plain() if outbound.file else "").suffix[:20]
        name = file_name(outbound, idempotency_key, _UNSAFE_SUFFIX.sub("", suffix))
        return await self._write(name, lambda path: shutil.copyfile(content, path))

    async def _write(self, name: str, write: Callable[[Path], object]) -> str:
        """Write the whole file or none, readable only by the gateway's user; return its name."""

        def store() -> None:
            path = self._folder / name
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            unfinished = path.with_name(f".{path.name}")
            unfinished.touch(mode=0o600)
            write(unfinished)
            unfinished.replace(path)

        def store_again() -> None:
            try:
                store()
            except FileNotFoundError:  # retention has just deleted the folder, which was empty
                store()

        try:
            await asyncio.to_thread(store_again)
        except OSError as error:
            raise PlatformBusy(_DISK_PAUSE_SECONDS) from error
        return name


def file_name(outbound: Outbound, key: str, suffix: str) -> str:
    """Return where a message is written, below the folder. The key keeps messages of one second apart."""
    time = _UNSAFE_TIME.sub("", outbound.thread_id or "")[:_MAX_NAME] or "message"
    digest = hashlib.sha256(key.encode()).hexdigest()[:8]
    return f"{owner_folder(outbound.scope_id or '')}/{safe_name(outbound.chat_id)}/{time}-{digest}{suffix}"


def safe_name(text: str) -> str:
    """Return a readable file name for any text: lowercase letters, digits and hyphens."""
    plain = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode().lower()
    return _UNSAFE.sub("-", plain)[:_MAX_NAME].strip("-") or "job"


def owner_folder(identity: str) -> str:
    """Return the folder of a person: readable, and different for every identity."""
    return f"{safe_name(identity)}-{hashlib.sha256(identity.encode('utf-8', 'surrogatepass')).hexdigest()[:8]}"


def output_folder(data_dir: Path) -> Path:
    return data_dir / "output"


def output_eraser(data_dir: Path) -> Callable[[frozenset[str]], None]:
    """Return what deletes everything that was written for people who are forgotten."""

    def forget(identities: frozenset[str]) -> None:
        for identity in identities:
            path = output_folder(data_dir) / owner_folder(identity)
            if path.exists():
                shutil.rmtree(path)

    return forget
