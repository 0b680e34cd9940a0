"""What may be configured for a Mac, and what is reported where it is wrong."""

import pytest
from pydantic import ValidationError

from palaver.platforms.imessage.reader import IMessageOptions

MAC = {"url": "http://mac.local:1234/", "password": "open sesame"}


def test_a_url_and_a_password_are_enough_and_the_password_is_not_shown() -> None:
    made = IMessageOptions.model_validate(MAC)
    assert (made.url, made.public_url, made.poll_seconds, made.read_receipts) == (
        "http://mac.local:1234",
        None,
        2,
        True,
    )
    assert "sesame" not in repr(made)


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"url": "mac.local:1234"}, "a URL, like http://mac.local:1234"),
        ({"url": "http://mac.local?x"}, "a URL, like http://mac.local:1234"),
        ({"password": ""}, "password"),
        ({"secret": "short"}, "secret"),
        ({"poll_seconds": 0}, "poll_seconds"),
        ({"passwd": "x"}, "passwd"),
    ],
)
def test_mistakes_are_reported_with_what_is_wanted(changed: dict[str, str], words: str) -> None:
    with pytest.raises(ValidationError) as raised:
        IMessageOptions.model_validate({**MAC, **changed})
    assert words in str(raised.value)


def test_every_worker_has_the_same_secret_and_it_does_not_tell_the_password() -> None:
    first, again, other = (
        IMessageOptions.model_validate({**MAC, "password": word}).shared_secret for word in ("a", "a", "b")
    )
    assert first == again != other
    assert IMessageOptions.model_validate({**MAC, "secret": "kitchen-door"}).shared_secret.startswith("kitchen")
