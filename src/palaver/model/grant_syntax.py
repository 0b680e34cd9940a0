"""Grant syntax: parse and describe whom a grant is for."""

from collections.abc import Collection

from palaver.model.access import Basis, Effect, Grant
from palaver.model.errors import BadArgument, UnknownPlatform
from palaver.model.source import decode_id, encode_id

EVERYBODY = "everybody"
GRANTEE_FORMS = f"platform:ID, a whole platform, person:ID, or {EVERYBODY}"
_PERSON = "person:"


def parse_grantee(text: str, known: Collection[str]) -> dict[str, str]:
    """Return the fields of a grant for a grantee such as `telegram:7`; `known` are the platforms."""
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
    """Return the platform and the user id in `telegram:7` or `matrix:@ann:example.org`."""
    platform, _, user = text.strip().partition(":")
    if not user:
        raise BadArgument("{found} has no user id", found=text, allowed=GRANTEE_FORMS, example="telegram:7")
    return _platform(platform, known), decode_id(user)


def normalize_identity(text: str, known: Collection[str]) -> str:
    """Return the identity in its stored form."""
    platform, user = parse_identity(text, known)
    return f"{platform}:{encode_id(user)}"


def _platform(name: str, known: Collection[str]) -> str:
    if name.lower() not in known:
        raise UnknownPlatform("Unknown platform", found=name, allowed=", ".join(sorted(known)), example="telegram:7")
    return name.lower()


_BASIS_TEXTS = {
    Basis.PLATFORM_ROLE: "people with the role on the platform",
    Basis.RELAY: "people who come through the relay",
    Basis.BOT: "bots",
}


def describe_grantee(grant: Grant) -> str:
    named = f"user {grant.user_id}" if grant.user_id else f"person {grant.person}" if grant.person else ""
    return ", ".join(filter(None, (named, _BASIS_TEXTS.get(grant.basis)))) or EVERYBODY


def describe_grant_place(grant: Grant) -> str:
    parts = (("account", grant.account), ("server", grant.scope_id), ("chat", grant.chat_id))
    place = ", ".join([grant.platform or "everywhere", *(f"{name} {value}" for name, value in parts if value)])
    return f"{place} (blocked)" if grant.effect is Effect.BLOCK else place
