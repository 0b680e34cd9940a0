"""The configuration as it can be given away: without secrets and comments."""

import re
from collections.abc import Mapping

from palaver.config.editor import ConfigFile
from palaver.config.effective import effective_settings
from palaver.config.nodes import Node, dotted_path
from palaver.config.secrets import FILE, SET, mask_secrets
from palaver.config.writer import Written, replace_value
from palaver.model.value import FieldPath

_REFERENCE = re.compile(r"\$\{\w+\}", re.ASCII)


def without_secrets(file: ConfigFile) -> str:
    """Return what your file says. A secret becomes `(set)`; the name of a variable or of a file with one stays."""
    loaded = file.load()
    shown = {setting.field: str(setting.value) for setting in effective_settings(loaded)}
    text = ""
    if isinstance(loaded.sources.value, dict):
        for name, node in loaded.sources.value.items():
            written = _written(node, (name,), shown, file)
            if written is not None:
                text = replace_value(text, (name,), written)
    return text


def _written(node: Node, path: FieldPath, shown: Mapping[str, str], file: ConfigFile) -> Written | None:
    match node.value:
        case dict(inner):
            fields = {name: _written(each, (*path, name), shown, file) for name, each in inner.items()}
            return {name: each for name, each in fields.items() if each is not None} or None
        case list(items):
            each = [_written(item, (*path, index), shown, file) for index, item in enumerate(items)]
            return [item for item in each if item is not None]
        case _ if node.position.file is None or node.position.file.absolute() != file.path:
            return None
        case _:
            return _shown(node, path, shown)


def _shown(node: Node, path: FieldPath, shown: Mapping[str, str]) -> str:
    is_named_file = isinstance(path[-1], str) and path[-1].endswith(FILE)
    if is_named_file or _REFERENCE.fullmatch(node.raw):
        return node.raw
    known = shown.get(dotted_path(path))
    if known is None or "*" * 5 in known:
        return SET
    return mask_secrets(node.raw) if known != SET else SET
