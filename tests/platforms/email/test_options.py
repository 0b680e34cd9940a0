"""What can be configured, and which sentences say what is wrong."""

import pytest
from pydantic import ValidationError

from tests.platforms.email.test_parse import options


def test_addresses_are_compared_in_lower_case() -> None:
    chosen = options(address="Helper@Example.net", aliases=["US@example.net"])
    assert (chosen.login, chosen.own) == ("helper@example.net", {"helper@example.net", "us@example.net"})
    assert options(username="helper").login == "helper"


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"address": "helper"}, "an e-mail address, like helper@example.org"),
        ({"aliases": ["helper@"]}, "an e-mail address, like helper@example.org"),
        ({"imap_encryption": "none"}, "the password would be readable"),
        ({"smtp_encryption": "none", "smtp_host": "10.0.0.1"}, "the password would be readable"),
        ({"imap_port": 0}, "greater than or equal to 1"),
        ({"unverified": "trust"}, "'refuse' or 'stranger'"),
        ({"auth_server": ""}, "at least 1 character"),
    ],
)
def test_what_is_wrong_is_named(wrong: dict[str, object], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        options(**wrong)


def test_without_encryption_only_on_this_machine() -> None:
    for host in ("localhost", "127.0.0.1", "::1"):
        assert options(imap_host=host, imap_encryption="none", smtp_host=host, smtp_encryption="none")
