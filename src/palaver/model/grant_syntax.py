"""Whom a grant is for, as people write it and read it."""

from collections.abc import Collection

from palaver.model.access import Basis, Effect, Grant
from palaver.model.errors import BadArgument, UnknownPlatform
from palaver.model.ids import decode_id, encode_id

__all__ = [
    "EVERYBODY",
    "GRANTEE_FORMS",
    "describe_grant_place",
    "describe_grantee",
    "normalize_identity",
    "parse_grantee",
    "parse_identity",
]

EVERYBODY = "everybody"
GRANTEE_FORMS = f"telegram:7, a whole platform, person:ID, or {EVERYBODY}"
_PERSON = "person:"


def parse_grantee(text: str, known: Collection[str]) -> dict[str, str]:
    """The fields of a grant that say whom it is for; `known` are the platforms there are."""
    text = text.strip()
    if text == EVERYBODY:
        return {}
    if text.startswith(_PERSON) and text != _PERSON:
        return {"person": text.removeprefix(_PERSON)}
    if ":" not in text:
        return {"platform": _platform(text, known)}
    platform, user = parse_identity(text, known)
    return {"platform": platform, "user_id": user}


def parse_identity(text: str, known: Collection[str]) -> tuple[str, str]:
    """The platform and the user id in `telegram:7`, or `matrix:@ann:example.org`."""
    platform, _, user = text.strip().partition(":")
    if not user:
        raise BadArgument("Nobody is called", found=text, allowed=GRANTEE_FORMS, example="telegram:7")
    return _platform(platform, known), decode_id(user)


def normalize_identity(text: str, known: Collection[str]) -> str:
    """The same identity as it is kept."""
    platform, user = parse_identity(text, known)
    return f"{platform}:{encode_id(user)}"


def _platform(name: str, known: Collection[str]) -> str:
    if name.lower() not in known:
        raise UnknownPlatform("Unknown platform", found=name, allowed=", ".join(sorted(known)), example="telegram:7")
    return name.lower()


_SHOWS = {
    Basis.PLATFORM_ROLE: "whoever has the role on the platform",
    Basis.RELAY: "whoever comes through the relay",
    Basis.BOT: "bots",
}


def describe_grantee(grant: Grant) -> str:
    named = f"user {grant.user_id}" if grant.user_id else f"person {grant.person}" if grant.person else ""
    return ", ".join(filter(None, (named, _SHOWS.get(grant.basis)))) or EVERYBODY


def describe_grant_place(grant: Grant) -> str:
    parts = (("account", grant.account), ("server", grant.scope_id), ("chat", grant.chat_id))
    place = ", ".join([grant.platform or "everywhere", *(f"{name} {value}" for name, value in parts if value)])
    return f"{place} (blocked)" if grant.effect is Effect.BLOCK else place
