"""Settings as form fields: what each accepts, what it is now, and the line that says so."""

from collections.abc import Iterator, Mapping, Sequence
from enum import Enum
from zoneinfo import ZoneInfo, available_timezones

from palaver.config.editor import Edit
from palaver.config.effective import Setting, effective_settings
from palaver.config.loader import Loaded
from palaver.config.nodes import Position, dotted_path
from palaver.config.secrets import mask_secrets
from palaver.config.validation import format_value, locate_field
from palaver.model.value import value

_SWITCH = (("true", "Yes"), ("false", "No"))


@value
class SettingField:
    path: tuple[str, ...]
    label: str
    help: str
    value: str
    options: tuple[tuple[str, str], ...] = ()
    """The values to choose from, each with its label; empty for text."""
    hint: str = ""
    """An example of what can be written."""
    position: Position
    is_masked: bool = False
    """Part of it is a secret or a variable, which is not shown: to save it would replace that part."""

    @property
    def name(self) -> str:
        return dotted_path(self.path)

    @property
    def where(self) -> str:
        place = describe_position(self.position)
        return f"{place}; change it there, it refers to a secret or a variable" if self.is_masked else place

    @property
    def is_locked(self) -> bool:
        """Only its file, or the environment variable that sets it, can change it."""
        return self.is_masked or bool(self.position.variable)


def describe_position(position: Position) -> str:
    if position.variable:
        return f"set by the variable {position.variable}"
    if position.file is None:
        return "the default"
    return f"{position.file.name}, line {position.line}" if position.line else position.file.name


def read_fields(loaded: Loaded, wanted: Mapping[str, str]) -> list[SettingField]:
    """Return the fields for these settings, each with its label."""
    found = {setting.field: setting for setting in effective_settings(loaded)}
    return [_read_field(loaded, tuple(name.split(".")), label, found) for name, label in wanted.items()]


def _read_field(loaded: Loaded, path: tuple[str, ...], label: str, found: Mapping[str, Setting]) -> SettingField:
    # The fields of an agent depend on its name.
    place = locate_field((path[0], loaded.config.agent.name, *path[1:]) if path[0] == "agent" else path)
    node = loaded.sources.at(path)
    setting, field = found.get(dotted_path(path)), place.field if place else None
    syntax = place.syntax if place else None
    return SettingField(
        path=path,
        label=label,
        help=(field.description or "") if field else "",
        value=format_value(setting.value) if setting else "",
        options=_options(field.annotation) if field else (),
        hint=syntax.example if syntax else "",
        position=setting.position if setting else Position(),
        is_masked=node is not None and mask_secrets(node.raw) != node.raw,
    )


def _options(annotation: object) -> tuple[tuple[str, str], ...]:
    if annotation is bool:
        return _SWITCH
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return tuple((str(each.value), str(each.value)) for each in annotation)
    if annotation is ZoneInfo:
        return tuple((zone, zone.replace("_", " ")) for zone in sorted(available_timezones()))
    return ()


def changed_fields(fields: Sequence[SettingField], form: Mapping[str, str]) -> Iterator[Edit]:
    """Yield the edits that a form asks for; an empty field goes back to its default."""
    for field in fields:
        said = form.get(field.name)
        if said is None or field.is_locked or said.strip() == field.value:
            continue
        yield Edit(field.path, said.strip() or None)
