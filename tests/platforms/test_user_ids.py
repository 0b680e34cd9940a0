"""However people write an id, a grant for it matches the person whom the adapter reports."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from palaver.model.access import Effect, Grant, Verdict, decide_access, parse_grantee
from palaver.model.errors import BadArgument
from palaver.model.people import parse_code_or_identity
from palaver.model.source import Source, Trust
from palaver.model.target import Place, parse_targets
from palaver.platforms.irc import lower
from palaver.platforms.plugins import PLATFORMS
from palaver.platforms.whatsapp.adapter import canonical_form
from palaver.settings.quotas import GrantConfig

UUID = "0a1b2c3d-0000-4000-8000-00000000abcd"
FORMS = [
    ("whatsapp", "15551234567", ["+15551234567", "+1 (555) 123-4567", "0015551234567", "1 555 123 45 67"]),
    ("whatsapp", "15551234567", ["15551234567@s.whatsapp.net", "15551234567:3@s.whatsapp.net", "15551234567@c.us"]),
    ("whatsapp", "112233445566@lid", ["112233445566@lid", "112233445566:12@lid"]),
    ("signal", "+15551234567", ["+1 555 123 4567", "15551234567", " +1-555-123-4567 ", "+1(555)1234567"]),
    ("signal", UUID, [UUID, UUID.upper()]),
    ("sms", "+15551234567", ["+1 555 1234567", "+1.555.123.4567", "0015551234567"]),
    ("sms", "40404", ["40404"]),
    ("email", "ann@example.org", ["Ann@Example.ORG", "Ann <ann@example.org>", "mailto:ann@example.org"]),
    ("imessage", "+15551234567", ["+1 555 123 4567"]),
    ("imessage", "ann@example.org", ["Ann@Example.org"]),
    ("xmpp", "ann@example.org", ["Ann@Example.org/phone", "xmpp:ann@example.org"]),
    ("matrix", "@ann:example.org", ["@ann:Example.ORG"]),
    ("irc", "ann[m]", ["Ann[m]", "ANN[M]"]),
    ("telegram", "7", ["7", " 7 "]),
    ("discord", "80351110224678912", ["<@80351110224678912>", "<@!80351110224678912>"]),
    ("slack", "U024BE7LH", ["u024be7lh", "<@U024BE7LH>", "<@U024BE7LH|ann>"]),
]
NO_IDS = [
    *(("whatsapp", text) for text in ("ann", "+1 555", "123", "ann@example.org", "1" * 16, "+")),
    *(("signal", text) for text in ("ann", "+1 55", "0a1b2c3d")),
    *(("sms", "+"), ("email", "ann"), ("email", "a@b@c"), ("imessage", "ann"), ("xmpp", "ann"), ("matrix", "ann")),
    *(("irc", "ann@host"), ("irc", "#dev"), ("telegram", "@ann"), ("telegram", "ann"), ("discord", "ann#1234")),
    *(("slack", "@ann"), ("slack", "bob"), ("slack", "Ulrike"), ("slack", "C024BE91L")),
]


def decide(grant: Grant, platform: str, user: str) -> Verdict:
    return decide_access(Source(platform=platform, chat_id=user, user_id=user), Trust(), [grant]).verdict


@pytest.mark.parametrize(("platform", "user", "forms"), FORMS)
def test_every_form_of_an_id_grants_and_blocks_the_person(platform: str, user: str, forms: list[str]) -> None:
    for form in (user, *forms):
        allow = Grant(**parse_grantee(f"{platform}:{form}", PLATFORMS))
        assert decide(allow, platform, user) is Verdict.ALLOW, form
        block = Grant(effect=Effect.BLOCK, **parse_grantee(f"{platform}:{form}", PLATFORMS))
        assert (
            decide_access(Source(platform=platform, chat_id=user, user_id=user), Trust(), [allow, block]).verdict
            is Verdict.REFUSE
        ), form
        assert GrantConfig(platform=platform, user_id=form).grant().user_id == user
        assert parse_code_or_identity(f"{platform}:{form}", PLATFORMS).partition(":")[0] == platform
    for form in (user, *forms):
        assert PLATFORMS[platform].canonical_user(form) == user
        assert PLATFORMS[platform].canonical_user(user) == user, "the canonical form is its own"


@pytest.mark.parametrize(("platform", "text"), NO_IDS)
def test_what_can_be_no_id_is_refused_with_an_example(platform: str, text: str) -> None:
    for parse in (parse_grantee, parse_code_or_identity):
        with pytest.raises(BadArgument, match="cannot be the id of a person"):
            parse(f"{platform}:{text}", PLATFORMS)
    with pytest.raises(ValidationError, match="refused"):
        GrantConfig(platform=platform, user_id=text)
    with pytest.raises(BadArgument) as told:
        PLATFORMS[platform].canonical_user(text)
    example = told.value.example.partition(":")[2]
    assert PLATFORMS[platform].canonical_user(example) == example


@given(st.from_regex(r"[1-9][0-9]{6,14}", fullmatch=True), st.integers(0, 99))
def test_the_bridges_forms_are_ours(number: str, device: int) -> None:
    for form in (number, f"{number}@s.whatsapp.net", f"{number}:{device}@s.whatsapp.net", f"{number}:{device}@lid"):
        assert PLATFORMS["whatsapp"].canonical_user(form) == canonical_form(form)


@given(st.from_regex(r"[A-Za-z\[\]\\^{}|_-][A-Za-z0-9\[\]\\^{}|_-]{0,15}", fullmatch=True))
def test_nicks_are_compared_as_the_adapter_does(nick: str) -> None:
    assert PLATFORMS["irc"].canonical_user(nick) == lower(nick)


@pytest.mark.parametrize(
    ("target", "chat"),
    [
        ("whatsapp:+1 (555) 123-4567", "15551234567"),
        ("whatsapp:120363043968066561@g.us", "120363043968066561@g.us"),
        ("signal:+1 555 123 4567", "+15551234567"),
        ("signal:Z3JvdXAtaWQ=", "Z3JvdXAtaWQ="),
        ("sms:+1 555 123 4567", "+15551234567"),
        ("email:Ann@Example.org", "ann@example.org"),
        ("xmpp:Ann@Example.org", "ann@example.org"),
        ("irc:#Dev", "#Dev"),
        ("telegram:-100", "-100"),
    ],
)
def test_targets_name_chats_as_the_adapter_does(target: str, chat: str) -> None:
    assert parse_targets(target, PLATFORMS) == (Place(platform=target.partition(":")[0], chat=chat),)
