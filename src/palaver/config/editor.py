"""Change the configuration file of a running gateway: check a change with everything else, then write it."""

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from palaver.config.accounts import AgentOptions, DescribeAdapter
from palaver.config.errors import MalformedConfig, Mistake
from palaver.config.loader import Loaded, load, load_with_sources, refuse_missing_backups
from palaver.config.nodes import dotted_path
from palaver.config.paths import configuration_files, exists
from palaver.config.writer import Written, line_of, remove_value, replace_file, replace_value
from palaver.model.errors import InvalidInput
from palaver.model.platform import Platform
from palaver.model.value import value

_MAX_SHOWN = 5
"""How many mistakes one refusal lists."""


@value(kw_only=False)
class Edit:
    path: tuple[str, ...]
    value: Written | None
    """None removes the field, so that its default applies again."""

    def apply(self, content: str) -> str:
        if self.value is None:
            return remove_value(content, self.path)
        return replace_value(content, self.path, self.value)


class FileNotWritable(InvalidInput):
    """The configuration file belongs to somebody else, or cannot be changed here."""

    def __init__(self, problem: str) -> None:
        super().__init__(problem, found="", allowed="change the file itself", example="palaver config path")

    def __str__(self) -> str:
        return self.problem


class EditsRefused(InvalidInput):
    """The file would have mistakes with these edits. It is as before, so its lines are those of before."""

    def __init__(self, mistakes: Sequence[Mistake], edits: Sequence[Edit], file: Path, before: str) -> None:
        first = mistakes[0]
        super().__init__(first.problem, found=first.found, allowed=first.allowed, example=first.example, fix=first.fix)
        edited = tuple(dotted_path(edit.path) for edit in edits)
        self._sentences = [_place(each, edited, file, before) + each.sentence for each in mistakes[:_MAX_SHOWN]]

    def __str__(self) -> str:
        return "\n".join(self._sentences)


def _place(mistake: Mistake, edited: Sequence[str], file: Path, before: str) -> str:
    """Say where a mistake is that the file has already; the form shows where an edit is wrong."""
    if mistake.position.file != file:
        return f"{mistake.position}: "
    if mistake.field.startswith(tuple(edited)):
        return ""
    line = line_of(before, mistake.field.split("."))
    return f"{file.name}, line {line}: " if line else ""


@dataclass(frozen=True, kw_only=True)
class ConfigFile:
    """Your configuration file, as the gateway that runs in `folder` reads it."""

    folder: Path
    environ: Mapping[str, str]
    platforms: Mapping[str, Platform] | None = None
    describe_adapter: DescribeAdapter | None = None
    agent_options: AgentOptions | None = None
    store: str | None = None
    """The store of the command line, which goes before every file."""

    @property
    def path(self) -> Path:
        return configuration_files(self.folder, self.environ).user.absolute()

    def load(self) -> Loaded:
        """Return the configuration as the files say now; raise MalformedConfig with all mistakes."""
        loaded = load_with_sources(self.folder, self.environ, self.platforms, self.describe_adapter, self.agent_options)
        if self.store is None:
            return loaded
        config = loaded.config.model_copy(update={"store": self.store})
        refuse_missing_backups(config, loaded.sources)
        return replace(loaded, config=config)

    def content(self) -> str:
        return self.path.read_bytes().decode("utf-8-sig") if exists(self.path) else ""

    def problem(self) -> str:
        """Say why the file cannot be changed here; nothing if it can."""
        place = Path(os.path.realpath(self.path))
        if exists(place):
            # The file is replaced, not overwritten: its folder has to be ours too.
            is_ours = os.access(place, os.W_OK) and os.access(place.parent, os.W_OK)
        else:
            folder = next(parent for parent in place.parents if parent.exists())
            is_ours = os.access(folder, os.W_OK)
        return "" if is_ours else f"Palaver cannot write {self.path}: change it where it is kept."

    def change(self, edits: Sequence[Edit], secrets: Mapping[str, str], use: Callable[[Loaded], None]) -> Loaded:
        """Write the edits, and secrets into files beside, and use the result. If it is refused, put everything back.

        Raises FileNotWritable, or what is wrong with the configuration or its use.
        """
        if problem := self.problem():
            raise FileNotWritable(problem)
        before = self.content()
        after = before
        for edit in edits:
            after = edit.apply(after)
        try:
            load(self.folder, self.environ, draft=after)  # before anything is replaced
            return self._use(after, secrets, use)
        except MalformedConfig as error:
            raise EditsRefused(error.mistakes, edits, self.path, before) from error

    def _use(self, content: str, secrets: Mapping[str, str], use: Callable[[Loaded], None]) -> Loaded:
        """Write the file and the secrets, and use them; if that fails, put everything back."""
        files = {self.path.parent / name: f"{secret}\n" for name, secret in secrets.items()}
        kept = {place: _bytes(place) for place in (*files, self.path)}
        try:
            for place, secret in files.items():
                replace_file(place, secret, private=True)
            replace_file(self.path, content)
            loaded = self.load()
            use(loaded)
        except Exception:
            for place, old in kept.items():
                _put_back(place, old)
            raise
        return loaded


def _bytes(place: Path) -> bytes | None:
    return place.read_bytes() if place.exists() else None


def _put_back(place: Path, content: bytes | None) -> None:
    if content is None:
        with suppress(FileNotFoundError):
            place.unlink()
    else:
        replace_file(place, content.decode())
