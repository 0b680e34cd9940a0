"""Where files are looked for, on every kind of machine."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from palaver.config.paths import Files, configuration_files, data_directory


@pytest.mark.parametrize(
    ("environment", "platform", "expected"),
    [
        ({"PALAVER_HOME": "/data"}, "linux", "/data"),
        ({"XDG_DATA_HOME": "/xdg"}, "linux", "/xdg/palaver"),
        ({}, "linux", "~/.local/share/palaver"),
        ({"PALAVER_HOME": ""}, "linux", "~/.local/share/palaver"),
        ({"XDG_DATA_HOME": "/xdg"}, "darwin", "~/Library/Application Support/palaver"),
        ({"APPDATA": "/roaming"}, "win32", "/roaming/palaver"),
    ],
)
def test_the_data_directory(environment: Mapping[str, str], platform: str, expected: str) -> None:
    assert data_directory(environment, platform) == Path(expected).expanduser()


@pytest.mark.parametrize(
    ("environment", "user", "is_named"),
    [
        ({}, "~/.config/palaver/palaver.yaml", False),
        ({"XDG_CONFIG_HOME": ""}, "~/.config/palaver/palaver.yaml", False),
        ({"XDG_CONFIG_HOME": "/xdg"}, "/xdg/palaver/palaver.yaml", False),
        ({"PALAVER_CONFIG": "", "XDG_CONFIG_HOME": "/xdg"}, "/xdg/palaver/palaver.yaml", False),
        ({"PALAVER_CONFIG": "/own.yaml", "XDG_CONFIG_HOME": "/xdg"}, "/own.yaml", True),
        ({"PALAVER_CONFIG": "own.yaml"}, "/here/own.yaml", True),
        ({"PALAVER_CONFIG": "~/own.yaml"}, "~/own.yaml", True),
    ],
)
def test_the_files(environment: Mapping[str, str], user: str, is_named: bool) -> None:
    expected = Files(user=Path(user).expanduser(), project=Path("/here/palaver.yaml"), is_named=is_named)
    assert configuration_files(Path("/here"), environment) == expected
