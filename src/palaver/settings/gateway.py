"""The gateway itself: its log, metrics and traces, jobs, backups and encryption."""

from datetime import timedelta
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Self

from pydantic import AfterValidator, Field, model_validator

from palaver.model.errors import BadArgument
from palaver.model.log_line import LogLevel
from palaver.settings.agents import web_address
from palaver.settings.types import Duration, DurationOrOff, Port, Secret, Section, Syntax, as_pydantic_error


class LogFormat(StrEnum):
    HUMAN = "human"
    JSON = "json"


class LogConfig(Section):
    level: LogLevel = Field(default=LogLevel.INFO, description="Log this level and above.")
    format: LogFormat = Field(default=LogFormat.HUMAN, description="Lines for people, or one JSON object per line.")
    keep_megabytes: int = Field(
        default=10,
        ge=0,
        le=10_000,
        description="Keep this much of the log in the data directory, for `palaver logs`. 0 keeps none.",
    )


class MetricsConfig(Section):
    port: Port = Field(default=None, description="Serve metrics on this local port.")


class TracesConfig(Section):
    endpoint: Annotated[
        str | None,
        AfterValidator(lambda text: text and web_address(text)),
        Syntax("a web address", "http://127.0.0.1:4318"),
    ] = Field(default=None, description="Send traces to this OTLP/HTTP address.")


class JobsConfig(Section):
    scripts: Annotated[Path | None, Syntax("a folder, absolute or relative to this file", "~/palaver-scripts")] = Field(
        default=None, description="Jobs of admins can run the executable files in this folder. Default: none."
    )
    script_limit: Duration = Field(
        default=timedelta(minutes=2),
        ge=timedelta(seconds=1),
        le=timedelta(days=1),
        description="Stop a script after this long.",
    )


class BackupConfig(Section):
    every: DurationOrOff = Field(
        default=None,
        ge=timedelta(minutes=10),
        le=timedelta(days=365),
        description="Make a backup this often while the gateway runs.",
    )
    folder: Annotated[Path | None, Syntax("a folder, absolute or relative to this file", "~/palaver-backups")] = Field(
        default=None, description="Where backups go. Default: the folder backups in the data directory."
    )
    keep: int = Field(default=7, ge=1, le=10_000, description="Keep this many backups, the newest.")


class EncryptionConfig(Section):
    key_file: Annotated[Path | None, Syntax("a file, absolute or relative to this file", "~/.secrets/palaver.key")] = (
        Field(default=None, description="Encrypt what is stored, with the key in this file.")
    )
    key: Annotated[Secret | None, Syntax("the key, from an environment variable", "${PALAVER_KEY}")] = Field(
        default=None, description="Encrypt what is stored, with this key."
    )
    keyring: Annotated[str | None, Syntax("the name of the entry", "main")] = Field(
        default=None, min_length=1, description="Encrypt what is stored, with the key in this entry of your keyring."
    )

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        given = [name for name in ("key_file", "key", "keyring") if getattr(self, name)]
        if len(given) > 1:
            raise as_pydantic_error(
                BadArgument(
                    "The key cannot be in",
                    found=" and ".join(given),
                    allowed="one place",
                    example=given[0],
                )
            )
        return self

    @property
    def is_on(self) -> bool:
        return bool(self.key_file or self.key or self.keyring)
