"""What a person is told and asked who lets a program call."""

import base64
import secrets

from palaver.platforms.webhook.signing import PREFIX, Scheme
from palaver.ports.guide import Guide, Question

__all__ = ["GUIDE"]

_BYTES = 32


def _secret() -> str:
    return PREFIX + base64.b64encode(secrets.token_bytes(_BYTES)).decode()


GUIDE = Guide(
    before="A program is let in by a secret that it signs its calls with.",
    questions=[
        Question(option="scheme", asks=f"How does it sign? {', '.join(Scheme)}:", usual=Scheme.STANDARD.value),
        Question(option="secret", asks="The secret, not shown while you type; nothing, for a new one:", make=_secret),
        Question(
            option="text",
            asks="What is said because of a call, like: Build {{ build.status }}; nothing, for all that it brings:",
            needed=False,
        ),
    ],
    after=(
        "Give the secret and the address /in/webhook/NAME at the public name of your window to the program, "
        "and let it in: palaver grants add webhook:NAME."
    ),
)
