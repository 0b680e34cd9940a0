"""Find the configuration files, the data directory and the store, and resolve the paths in a configuration."""

import os
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote, unquote

from palaver.config.nodes import Node, Position, merge
from palaver.model.errors import BadArgument

DATABASE = "palaver.db"
SQLITE = "sqlite:///"
_FILE = "palaver.yaml"


class Files(NamedTuple):
    user: Path
    project: Path
    is_named: bool
    """PALAVER_CONFIG names the user's file, so it must exist."""


def configuration_files(cwd: Path, environment: Mapping[str, str] = os.environ) -> Files:
    named = environment.get("PALAVER_CONFIG")
    folder = environment.get("XDG_CONFIG_HOME") or "~/.config"
    user = cwd / expand_home(named) if named else expand_home(folder) / "palaver" / _FILE
    return Files(user=user, project=cwd / _FILE, is_named=bool(named))


def expand_home(text: str) -> Path:
    """Replace `~` by the home directory; raise BadArgument if there is none."""
    try:
        return Path(text).expanduser()
    except RuntimeError as error:
        raise BadArgument(
            "There is no home directory for the path",
            found=text,
            allowed="a path without ~ in PALAVER_HOME, PALAVER_CONFIG and the configuration, or set HOME",
            example="PALAVER_HOME=/var/lib/palaver PALAVER_CONFIG=/etc/palaver.yaml",
        ) from error


def exists(file: Path) -> bool:
    """Return whether the file exists. Without permission to look, assume so: reading it then reports why."""
    try:
        file.stat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True
    return True


def data_directory(environment: Mapping[str, str] = os.environ, platform: str = sys.platform) -> Path:
    """Return PALAVER_HOME, else the usual folder for user data on this system."""
    if environment.get("PALAVER_HOME"):
        return expand_home(environment["PALAVER_HOME"])
    if platform == "darwin":
        return expand_home("~/Library/Application Support/palaver")
    if platform == "win32":
        return Path(environment.get("APPDATA") or expand_home("~/AppData/Roaming")) / "palaver"
    return Path(environment.get("XDG_DATA_HOME") or expand_home("~/.local/share")) / "palaver"


def default_places(environ: Mapping[str, str]) -> Node:
    """Return the data directory and a store in it, where nothing else is configured."""
    return _section(data_dir=str(data_directory(environ)), store=DATABASE)


def _section(**fields: str) -> Node:
    """Build a node from default values."""
    nodes = {name: Node(position=Position(), value=value, raw=value) for name, value in fields.items()}
    return Node(position=Position(), value=dict[str, Node](nodes))


def with_default_store(sources: Node) -> Node:
    """Put the store into the data directory unless it was set."""
    folder, store = sources.at(("data_dir",)), sources.at(("store",))
    if folder is None or store is None or not isinstance(folder.value, str) or str(store.position) != "default":
        return sources
    return merge(sources, _section(store=str(expand_home(folder.value) / DATABASE)))


def with_absolute_paths(node: Node, folder: Path) -> Node:
    """Resolve paths relative to the folder of their file."""
    if isinstance(node.value, list):
        return replace(node, value=[with_absolute_paths(each, folder) for each in node.value])
    if not isinstance(node.value, dict):
        return node
    return replace(node, value={name: _with_absolute_path(name, inner, folder) for name, inner in node.value.items()})


def _with_absolute_path(name: str, node: Node, folder: Path) -> Node:
    if isinstance(node.value, str):
        return replace(node, value=_PATH_FIELDS[name](node.value, folder)) if name in _PATH_FIELDS else node
    inside = {
        **dict.fromkeys(
            ("agent", "fallback", "backup", "encryption", "jobs", "tools", "terminal", "ssh"), with_absolute_paths
        ),
        **dict.fromkeys(
            ("profiles", "platforms", "kinds", "servers", "chats", "threads"), _with_absolute_paths_by_name
        ),
    }
    return inside[name](node, folder) if name in inside else node


def _with_absolute_paths_by_name(node: Node, folder: Path) -> Node:
    if not isinstance(node.value, dict):
        return node
    return replace(node, value={name: with_absolute_paths(inner, folder) for name, inner in node.value.items()})


def absolute_path(text: str, folder: Path) -> str:
    return str((folder / expand_home(text)).absolute()) if text else text


def _absolute_url(text: str, folder: Path) -> str:
    if text.lower().startswith(SQLITE):
        return SQLITE + quote(absolute_path(unquote(text[len(SQLITE) :]), folder))
    return text if "://" in text else absolute_path(text, folder)


_PATH_FIELDS = {
    "data_dir": absolute_path,
    "store": _absolute_url,
    **dict.fromkeys(
        ("key_file", "known_hosts_file", "instructions_file", "prices", "file", "folder", "scripts"), absolute_path
    ),
}
"""Fields that hold paths, of the gateway, of agents, of jobs and of the terminal."""
