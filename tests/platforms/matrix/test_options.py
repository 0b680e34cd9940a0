"""What can be configured is checked before anything starts."""

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from palaver.model.errors import BadArgument
from palaver.platforms.matrix import client
from palaver.platforms.matrix.adapter import MatrixAdapter
from palaver.platforms.matrix.client import Invites, Options
from palaver.platforms.matrix.sync import accepts_invitation

GIVEN = {"homeserver": "https://m.example.org/", "user_id": "@helper:example.org", "access_token": "t0ken"}


def test_what_is_usual_is_safe_and_the_token_is_not_shown() -> None:
    options = Options.model_validate(GIVEN)
    assert (options.homeserver, options.invites, options.keys) == ("https://m.example.org", "server", None)
    assert "t0ken" not in repr(options)


@pytest.mark.parametrize(
    "wrong",
    [
        {"homeserver": "m.example.org"},
        {"homeserver": "https://m.example.org?x=1"},
        {"user_id": "helper"},
        {"access_token": None},
        {"password": "both"},
        {"device_id": "../x"},
        {"keys": "somewhere"},
        {"invites": "friends"},
        {"tokn": "x"},
    ],
)
def test_what_cannot_be_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        Options.model_validate({**GIVEN, **wrong})


def test_keys_need_the_part_for_encryption(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(client, "ENCRYPTION_ENABLED", False)
    with pytest.raises(BadArgument, match="matrix-encryption"):
        MatrixAdapter("helper", Options.model_validate({**GIVEN, "keys": tmp_path}))


@pytest.mark.parametrize(
    ("invites", "welcome"),
    [
        ("everybody", True),
        ("nobody", False),
        ("server", False),
        (("@eve:elsewhere.org",), True),
        (("elsewhere.org",), True),
        (("example.org", "@eve:example.org"), False),
    ],
)
def test_whose_invitations_are_taken(invites: Invites, welcome: bool) -> None:
    assert accepts_invitation("@eve:elsewhere.org", "@helper:example.org", invites) is welcome
    assert accepts_invitation("@ann:example.org", "@helper:example.org", "server")
