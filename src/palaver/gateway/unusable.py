"""What a configuration names and a gateway could not use: folders, keys and tools. For `palaver config check`."""

from collections.abc import Iterator
from difflib import get_close_matches
from pathlib import Path
from tempfile import TemporaryDirectory

from palaver.config.model import Config
from palaver.db.file_lock import nearest_existing
from palaver.gateway.vault import read_key
from palaver.model.access import AccessRole
from palaver.model.errors import BadArgument, InvalidInput, StoreError
from palaver.model.tools import ALL_TOOLS, BUILT_IN_TOOLS
from palaver.model.value import FieldPath
from palaver.settings.terminal import BackendName

Refusals = Iterator[tuple[FieldPath, InvalidInput]]


def find_unusable(config: Config) -> Refusals:
    """Yield the fields that name something unusable, and why."""
    yield from _folders(config)
    yield from _keys(config)
    yield from _tools(config)


def _folders(config: Config) -> Refusals:
    try:
        # Rights do not tell it: nobody makes a folder in /proc, and nobody writes on a full disk.
        with TemporaryDirectory(dir=nearest_existing(config.data_dir), prefix=".palaver-check-"):
            pass
    except OSError as error:
        found = f"{config.data_dir}, which cannot be made or written: {error.strerror}"
        yield ("data_dir",), BadArgument("cannot be", found=found, allowed="a folder of yours", example="~/palaver")


def _keys(config: Config) -> Refusals:
    if config.encryption.is_on:
        source = next(name for name in ("key_file", "key", "keyring") if getattr(config.encryption, name))
        try:
            read_key(config)
        except InvalidInput as refusal:
            yield ("encryption", source), refusal
        except StoreError as error:
            yield ("encryption", source), _unusable(str(error), "a key that palaver encryption key makes")
    if config.tools.terminal.backend is BackendName.SSH:
        for name in ("key_file", "known_hosts_file"):
            file: object = getattr(config.tools.terminal.ssh, name)
            if isinstance(file, Path) and not file.is_file():
                yield ("tools", "terminal", "ssh", name), _unusable(f"{file} is missing", "a file that you can read")


def _unusable(problem: str, allowed: str) -> BadArgument:
    return BadArgument(f"{problem}.", found="", allowed=allowed, example="", fix=f"Use {allowed}.")


def _tools(config: Config) -> Refusals:
    named: list[tuple[FieldPath, str]] = [
        (("tools", role.text), name) for role in AccessRole for name in getattr(config.tools, role.text)
    ]
    named += [(("platforms", each, "tools"), name) for each, one in config.platforms.items() for name in one.tools]
    named += [(("tools", "allowed", name), name) for name in config.tools.allowed]
    for path, name in named:
        if name in BUILT_IN_TOOLS | ALL_TOOLS or "*" in name or "__" in name:
            continue
        close = get_close_matches(name, BUILT_IN_TOOLS, n=1)
        fix = f"Did you mean {close[0]}?" if close else None
        allowed = f"{', '.join(sorted(BUILT_IN_TOOLS))}, or SERVER__TOOL"
        yield path, BadArgument("there is no tool", found=name, allowed=allowed, example="search", fix=fix)
