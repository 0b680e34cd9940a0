"""Only who knows the secret is heard, and only while the call is fresh."""

import base64
import hashlib
import hmac
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

import pytest
from standardwebhooks import Webhook

from palaver.platforms.webhook.signature import Scheme, SignatureError, decode_secret, sign, verify

NOW = datetime(2021, 2, 25, 15, 2, 10, tzinfo=UTC)
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"  # noqa: S105 - of the specification
MESSAGE = "msg_p5jXN8AQM9LWM0D4loKWxJek"
BODY = b'{"test": 2432232314}'


def test_what_the_specification_signs_is_signed_alike() -> None:
    """The example that the libraries of Standard Webhooks are tried with."""
    headers = sign(decode_secret(Scheme.STANDARD, SECRET), MESSAGE, datetime.fromtimestamp(1614265330, UTC), BODY)
    assert headers == {
        "webhook-id": MESSAGE,
        "webhook-timestamp": "1614265330",
        "webhook-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
    }


def test_the_reference_library_and_we_accept_each_other() -> None:
    now = datetime.now(UTC)
    headers = sign(decode_secret(Scheme.STANDARD, SECRET), MESSAGE, now, BODY)
    assert Webhook(SECRET).verify(BODY, headers) == {"test": 2432232314}
    theirs = {**headers, "webhook-signature": Webhook(SECRET).sign(MESSAGE, now, BODY.decode())}
    assert verify(Scheme.STANDARD, SECRET, theirs, BODY, now) == MESSAGE


def _github(delivery: str) -> str | None:
    headers = {
        "x-hub-signature-256": "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17",
        "x-github-delivery": delivery,
    }
    return verify(Scheme.GITHUB, "It's a Secret to Everybody", headers, b"Hello, World!", NOW)


def test_what_github_documents_is_let_in_and_known_again_by_what_is_signed() -> None:
    found = _github("72d3162e-cc78-11e3-81ab-4c9367dc0958")
    assert found
    assert found == _github("of whoever has caught it")
    # A signature that holds is written down nowhere.
    assert "757107ea" not in found


def _standard(body: bytes = BODY, at: datetime = NOW) -> dict[str, str]:
    return sign(decode_secret(Scheme.STANDARD, SECRET), MESSAGE, at, body)


def _stripe(secret: str = SECRET, at: datetime = NOW) -> dict[str, str]:
    time = str(int(at.timestamp()))
    digest = hmac.new(secret.encode(), f"{time}.".encode() + BODY, hashlib.sha256).hexdigest()
    return {"stripe-signature": f"t={time},v0=00,v1={'0' * 64},v1={digest}"}


_RIGHT = {
    Scheme.STANDARD: _standard(),
    Scheme.STRIPE: _stripe(),
    Scheme.GITHUB: {"x-hub-signature-256": f"sha256={hmac.new(SECRET.encode(), BODY, hashlib.sha256).hexdigest()}"},
    Scheme.TOKEN: {"authorization": f"bearer {SECRET}"},
}


@pytest.mark.parametrize(("scheme", "headers"), _RIGHT.items())
def test_a_right_signature_is_taken_and_nothing_else(scheme: Scheme, headers: Mapping[str, str]) -> None:
    verify(scheme, SECRET, headers, BODY, NOW)
    other = "whsec_" + base64.b64encode(b"x" * 24).decode()
    with pytest.raises(SignatureError):
        verify(scheme, other, headers, BODY, NOW)
    with pytest.raises(SignatureError):
        verify(scheme, SECRET, {}, BODY, NOW)
    for name, value in headers.items():
        for wrong in ("", value[:-1], value[:-2] + "é", f"x{value}", value[: len(value) // 2]):
            with pytest.raises(SignatureError):
                verify(scheme, SECRET, {**headers, name: wrong}, BODY, NOW)
    if scheme is not Scheme.TOKEN:
        with pytest.raises(SignatureError):
            verify(scheme, SECRET, headers, BODY + b" ", NOW)


def test_a_caller_without_the_secret_learns_where_it_goes() -> None:
    with pytest.raises(SignatureError, match=r"Send Authorization: Bearer and the secret"):
        verify(Scheme.TOKEN, SECRET, {"authorization": "Bearer x"}, BODY, NOW)


def test_one_of_several_signatures_is_enough_while_secrets_change() -> None:
    headers = _standard()
    headers["webhook-signature"] = f"v1,AAAA v1a,BBBB {headers['webhook-signature']}"
    assert verify(Scheme.STANDARD, SECRET, headers, BODY, NOW) == MESSAGE


def test_a_signature_of_another_version_is_none() -> None:
    standard, stripe = _standard(), _stripe()["stripe-signature"]
    standard["webhook-signature"] = standard["webhook-signature"].replace("v1,", "v2,")
    time, *_, right = stripe.split(",")
    for scheme, headers in (
        (Scheme.STANDARD, standard),
        (Scheme.STRIPE, {"stripe-signature": f"{time},{right.replace('v1=', 'v0=')}"}),
    ):
        with pytest.raises(SignatureError):
            verify(scheme, SECRET, headers, BODY, NOW)


@pytest.mark.parametrize("minutes", [-5.1, 5.1])
@pytest.mark.parametrize("scheme", [Scheme.STANDARD, Scheme.STRIPE])
def test_what_was_signed_long_ago_or_ahead_of_time_is_not_taken(scheme: Scheme, minutes: float) -> None:
    then = NOW + timedelta(minutes=minutes)
    headers = _standard(at=then) if scheme is Scheme.STANDARD else _stripe(at=then)
    with pytest.raises(SignatureError, match="minutes"):
        verify(scheme, SECRET, headers, BODY, NOW)
    verify(scheme, SECRET, headers, BODY, NOW + timedelta(minutes=minutes))


@pytest.mark.parametrize("time", ["", "now", "-5", "1e9", "٣", "9" * 400])
def test_a_time_that_is_none_is_not_taken(time: str) -> None:
    digest = hmac.new(
        decode_secret(Scheme.STANDARD, SECRET), f"{MESSAGE}.{time}.".encode() + BODY, hashlib.sha256
    ).digest()
    signature = f"v1,{base64.b64encode(digest).decode()}"
    headers = {"webhook-id": MESSAGE, "webhook-timestamp": time, "webhook-signature": signature}
    with pytest.raises(SignatureError):
        verify(Scheme.STANDARD, SECRET, headers, BODY, NOW)


@pytest.mark.parametrize("secret", ["", "hunter2", "whsec_", "whsec_%%%", "whsec_c2hvcnQ=", SECRET[6:]])
def test_a_secret_that_could_be_guessed_is_refused(secret: str) -> None:
    with pytest.raises(ValueError, match="random bytes in base64"):
        decode_secret(Scheme.STANDARD, secret)


@pytest.mark.parametrize("scheme", sorted(set(Scheme) - {Scheme.STANDARD}))
@pytest.mark.parametrize("secret", ["", " " * 40, "hunter2"])
def test_no_scheme_has_a_secret_that_is_empty_or_short(scheme: Scheme, secret: str) -> None:
    with pytest.raises(ValueError, match="at least 16 characters"):
        decode_secret(scheme, secret)
