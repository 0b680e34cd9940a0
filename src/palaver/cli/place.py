"""Where the data is: the store that a command works on."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

__all__ = ["StoreOption", "store_url"]

StoreOption = Annotated[
    str | None,
    typer.Option(
        "--store",
        metavar="URL",
        help="A path, sqlite:///path or postgresql://…; else PALAVER_STORE, else the store of the configuration.",
        show_default=False,
    ),
]


def store_url(option: str | None, environment: Mapping[str, str] = os.environ) -> str:
    if option is not None:
        return option
    if environment.get("PALAVER_STORE"):
        return environment["PALAVER_STORE"]
    from palaver.config.loading import load  # noqa: PLC0415 - slow to import, and often not needed

    return load(Path(), environment).store
