"""Models from the public hub: find a GGUF file by name, download it with progress and resume, and check its hash."""

import fcntl
import hashlib
import http.client
import json
import os
import re
import shutil
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from pathlib import Path, PurePosixPath
from typing import IO, Any, cast
from urllib.parse import quote

from palaver.model.attachment import format_size
from palaver.model.errors import BadArgument, PalaverError
from palaver.model.value import value

HUB = "https://huggingface.co"
_REPOSITORY = re.compile(r"[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95}")
_SPLIT = re.compile(r"-[0-9]{5}-of-[0-9]{5}\.gguf$")
_USUAL_QUANTISATION = "q4_k_m"
_TIMEOUT_SECONDS = 30
_CHUNK_BYTES = 1 << 20
_MAX_ANSWER_BYTES = 16 << 20
_ATTEMPTS_WITHOUT_A_BYTE = 3
_CONTAINER_LIMIT = Path("/sys/fs/cgroup/memory.max")

Progress = Callable[[int, int], None]
"""Called with the bytes that are there and those of the whole file, also before each request. Its error ends it."""


class NotDownloaded(PalaverError):
    """The hub cannot be reached, refuses, or sent something else than it announced."""


@value
class Suggestion:
    """A model that is known to work."""

    name: str
    repository: str
    file: str
    says: str
    """What it is, for a person who chooses."""
    memory: int
    """Bytes of memory that a machine should have for it."""


SUGGESTIONS = (
    Suggestion(
        name="qwen3-4b",
        repository="Qwen/Qwen3-4B-GGUF",
        file="Qwen3-4B-Q4_K_M.gguf",
        says="4 billion parameters: answers well, some seconds for each answer",
        memory=8 << 30,
    ),
    Suggestion(
        name="qwen3-0.6b",
        repository="Qwen/Qwen3-0.6B-GGUF",
        file="Qwen3-0.6B-Q8_0.gguf",
        says="0.6 billion parameters: quick, and often wrong",
        memory=2 << 30,
    ),
)
"""The largest first."""


@value
class HubFile:
    """A model file on the hub, as the hub describes it."""

    repository: str
    revision: str
    path: str
    size: int
    sha256: str
    licence: str

    @property
    def name(self) -> str:
        return PurePosixPath(self.path).name


@value
class ModelHub:
    """Where models for this machine come from, and where they go."""

    url: str
    folder: Path

    def describe(self, model: HubFile) -> str:
        """Say what would be downloaded, for a person who decides."""
        size = format_size(model.size)
        return f"{model.repository}, {model.name}: {size}, licence {model.licence}, from {self.url}."

    def get(self, model: HubFile, show: Callable[[str], None]) -> Path:
        """Return the file, downloaded as far as it is not there yet, and show how far that is."""

        def progress(there: int, whole: int) -> None:
            show(f"{model.name}: {format_size(there)} of {format_size(whole)}, {100 * there // whole} %")

        return download(model, self.folder, progress, self.url)


def memory_of_machine() -> int:
    """Return the bytes of memory of this machine, or of the container that this runs in."""
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    try:
        limit = _CONTAINER_LIMIT.read_text().strip()
    except OSError:
        return memory
    return min(memory, int(limit)) if limit.isdecimal() else memory


def suggested(memory: int) -> Suggestion:
    """Return the largest suggestion that fits into the memory; the smallest if none does."""
    return next((each for each in SUGGESTIONS if each.memory <= memory), SUGGESTIONS[-1])


def label_suggestions(memory: int) -> list[tuple[str, str]]:
    """Return the name of each suggestion, and what it is for a machine with this much memory."""
    best = suggested(memory)
    return [
        (each.name, f"{each.name}, {each.says}{', suggested for this machine' if each is best else ''}")
        for each in SUGGESTIONS
    ]


def find_model(name: str, hub: str = HUB) -> HubFile:
    """Find a suggestion, OWNER/REPOSITORY or OWNER/REPOSITORY/FILE.gguf on the hub."""
    repository, wanted = _parse(name)
    answer = _ask(f"{hub}/api/models/{repository}/revision/main?blobs=true", repository)
    try:
        files = {each["rfilename"]: each for each in answer["siblings"] if each["rfilename"].endswith(".gguf")}
        path = _choose(repository, sorted(files), wanted)
        blob = files[path]["lfs"]
        return HubFile(
            repository=repository,
            revision=str(answer["sha"]),
            path=path,
            size=int(blob["size"]),
            sha256=str(blob.get("sha256") or blob["oid"]).removeprefix("sha256:"),
            licence=_licence(answer),
        )
    except (KeyError, TypeError, ValueError, AttributeError):
        raise NotDownloaded(f"{hub} describes {repository} in a form that Palaver does not know.") from None


def _parse(name: str) -> tuple[str, str]:
    """Return the repository and the file in it, "" if none is named."""
    if known := next((each for each in SUGGESTIONS if each.name == name.lower()), None):
        return known.repository, known.file
    owner, _, rest = name.partition("/")
    repository, _, file = rest.partition("/")
    if not _REPOSITORY.fullmatch(f"{owner}/{repository}") or (file and not file.endswith(".gguf")):
        names = ", ".join(each.name for each in SUGGESTIONS)
        raise BadArgument(
            "There is no model",
            found=name,
            allowed=f"{names}, OWNER/REPOSITORY or OWNER/REPOSITORY/FILE.gguf",
            example=SUGGESTIONS[0].name,
        )
    return f"{owner}/{repository}", file


def _choose(repository: str, files: Sequence[str], wanted: str) -> str:
    whole = [file for file in files if not _SPLIT.search(file)]
    usual = [file for file in whole if _USUAL_QUANTISATION in file.lower()]
    if wanted in whole:
        return wanted
    if not wanted and len(usual or whole) == 1:
        return (usual or whole)[0]
    problem = f"{repository} has no file" if wanted else f"{repository} has no single model file; name one:"
    allowed = ", ".join(whole[:20]) or "a repository with a GGUF file in one part"
    example = f"{repository}/{whole[0]}" if whole else SUGGESTIONS[0].name
    raise BadArgument(problem, found=wanted, allowed=allowed, example=example)


def _licence(answer: dict[str, Any]) -> str:
    tagged = (tag.removeprefix("license:") for tag in answer.get("tags", ()) if tag.startswith("license:"))
    card = cast("dict[str, Any]", answer.get("cardData") or {})
    return str(card.get("license") or next(tagged, "not stated"))


def download(model: HubFile, folder: Path, progress: Progress, hub: str = HUB) -> Path:
    """Return the file, downloaded as far as it is not there yet. What is there is continued, and checked as a whole."""
    target, part = folder / model.name, folder / f"{model.name}.{model.sha256[:16]}.part"
    if target.exists() and _sha256(target) == model.sha256:
        return target
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    with part.open("ab") as stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise NotDownloaded(f"{model.name} is being downloaded already. Wait until that has ended.") from None
        _check_room(folder, model.size - stream.tell())
        _fetch_rest(model, stream, progress, hub)
    if part.stat().st_size != model.size or _sha256(part) != model.sha256:
        part.unlink()
        raise NotDownloaded(f"{model.name} arrived damaged, so it was removed: its hash is not the hub's. Try again.")
    part.replace(target)
    return target


def _check_room(folder: Path, needed: int) -> None:
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise NotDownloaded(f"{folder} has {format_size(free)} free, and {format_size(needed)} are needed.")


def _fetch_rest(model: HubFile, stream: IO[bytes], progress: Progress, hub: str) -> None:
    failures = 0
    while (there := stream.tell()) < model.size:
        progress(there, model.size)
        try:
            _fetch(model, stream, progress, hub)
            problem = "the connection ended early"
        except (OSError, http.client.HTTPException) as error:
            if isinstance(error, urllib.error.HTTPError) and error.code < http.client.INTERNAL_SERVER_ERROR:
                raise NotDownloaded(_refusal(error, model.repository)) from error
            problem = str(getattr(error, "reason", "") or error) or type(error).__name__
        failures = failures + 1 if stream.tell() == there else 0
        if failures >= _ATTEMPTS_WITHOUT_A_BYTE:
            raise NotDownloaded(
                f"{model.name} stopped at {format_size(there)} of {format_size(model.size)}: {problem}. Try the same"
                " again to continue."
            )


def _fetch(model: HubFile, stream: IO[bytes], progress: Progress, hub: str) -> None:
    """Append what is missing, as far as the connection goes."""
    there = stream.tell()
    url = f"{hub}/{model.repository}/resolve/{model.revision}/{quote(model.path)}"
    request = urllib.request.Request(url, headers={"Range": f"bytes={there}-"} if there else {})  # noqa: S310
    with urllib.request.urlopen(request, timeout=_TIMEOUT_SECONDS) as answer:  # noqa: S310 - the person's hub
        if there and answer.status != http.client.PARTIAL_CONTENT:  # it begins anew
            stream.seek(0)
            stream.truncate()
        while chunk := answer.read(min(_CHUNK_BYTES, model.size - stream.tell())):
            stream.write(chunk)
            progress(stream.tell(), model.size)


def _sha256(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _ask(url: str, repository: str) -> dict[str, Any]:
    try:
        with urllib.request.urlopen(url, timeout=_TIMEOUT_SECONDS) as answer:  # noqa: S310 - the person's hub
            found = json.loads(answer.read(_MAX_ANSWER_BYTES))
    except urllib.error.HTTPError as error:
        raise NotDownloaded(_refusal(error, repository)) from error
    except (OSError, http.client.HTTPException) as error:
        reason = getattr(error, "reason", "") or error
        raise NotDownloaded(f"{url} cannot be reached: {reason}. Check the connection, or name another hub.") from error
    except ValueError:
        raise NotDownloaded(f"{url} does not answer as the hub does.") from None
    return cast("dict[str, Any]", found) if isinstance(found, dict) else {}


def _refusal(error: urllib.error.HTTPError, repository: str) -> str:
    match error.code:
        case http.client.NOT_FOUND | http.client.UNAUTHORIZED:
            return f"The hub has no model {repository}. Check its name."
        case http.client.FORBIDDEN:
            return f"{repository} needs an account of the hub. Choose another model, or download it in a browser."
        case http.client.TOO_MANY_REQUESTS:
            return "The hub takes no more requests from this address for now. Try again in some minutes."
        case _:
            return f"The hub refused {repository} with status {error.code}."
