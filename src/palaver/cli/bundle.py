"""`palaver doctor --bundle`: an archive for a bug report, with nothing said and nothing secret in it.

Only what is known to be ours goes in: numbers, choices, our own words. Everything else is left out.
"""

import json
import os
import re
import zipfile
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from pathlib import Path

from palaver.cli.export import refuse_existing
from palaver.cli.versions import version_facts
from palaver.config.model import Config
from palaver.config.paths import data_directory
from palaver.config.public_settings import public_settings
from palaver.db.private_files import naming
from palaver.gateway.log_file import read_log
from palaver.model.errors import BadArgument
from palaver.model.log_line import LogFilter, LogLine
from palaver.platforms.plugins import known_platforms
from palaver.store.damage.health_check import HealthCheck

_MAX_LINES = 2_000
_LOG_FIELDS = ("inbox", "turn", "delivery", "number", "seconds", "refused", "failed")
"""Numbers and yes or no. Keys, accounts, tools and sentences can name somebody."""
_OUR_LOGGER = re.compile(r"palaver[\w.]*")
_PLACE = re.compile(r"\b[A-Z]\w* at [\w.]+\.py:\d+(?: > [\w.]+\.py:\d+)*")
"""The class of an error, and where it was raised."""
_EXAMPLE = "palaver doctor --bundle report.zip"
_README = """\
Made by `palaver doctor --bundle` for a bug report.

versions.json       Palaver, Python, SQLite, the system and the libraries
configuration.json  the settings in effect: numbers and choices; texts are only "(set)", and names are numbered
findings.json       what palaver doctor found, in words of Palaver
counts.json         rows per table and state
log.jsonl           the last lines of the log: actions, numbers and the places of errors

No message, name, id of a person or chat, address, path or secret is in it. Look before you send it.
"""


def write_bundle(
    file: Path, *, config: Config | None, checks: Sequence[HealthCheck], counts: Mapping[str, object], now: datetime
) -> None:
    """Write the archive; only its owner can read it. Raise BadArgument if the file exists or cannot be written.

    `config` is None if it cannot be loaded: a finding says why.
    """
    folder = config.data_dir if config else data_directory()
    parts = {
        "README.txt": _README,
        "versions.json": _json({"made": now.isoformat(timespec="seconds"), **version_facts()}),
        "configuration.json": _json(public_settings(config, known_platforms()) if config else {}),
        "findings.json": _json([_finding(check) for check in checks]),
        "counts.json": _json(counts),
        "log.jsonl": "".join(map(_log_line, read_log(folder, LogFilter(), _MAX_LINES))),
    }
    refuse_existing(file, _EXAMPLE, allowed="a new name")
    try:
        handle = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except OSError as error:
        raise BadArgument(
            "--bundle cannot be",
            found=f"{file} ({error.strerror})",
            allowed="a new file in a folder that you can write",
            example=_EXAMPLE,
        ) from error
    with (
        naming(file),
        os.fdopen(handle, "wb") as stream,
        zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive,
    ):
        for name, text in parts.items():
            archive.writestr(name, text)


def _json(found: Mapping[str, object] | Collection[object]) -> str:
    return json.dumps(found, indent=2) + "\n"


def _finding(check: HealthCheck) -> dict[str, object]:
    found = check.public or "(left out: it can name somebody)"
    return {"name": check.topic or check.name, "ok": check.ok, "warning": check.is_warning, "found": found}


def _log_line(line: LogLine) -> str:
    logger = str(line.fields.get("logger", ""))
    logger = logger if _OUR_LOGGER.fullmatch(logger) else logger.partition(".")[0]
    fields: dict[str, object] = dict(at=line.at.isoformat(), level=line.level, logger=logger, action=line.action)  # noqa: C408 - as it is written
    fields |= {name: line.fields[name] for name in _LOG_FIELDS if isinstance(line.fields.get(name), int | float)}
    place = _PLACE.search(line.sentence)
    return json.dumps(fields | ({"error": place[0]} if place else {})) + "\n"
