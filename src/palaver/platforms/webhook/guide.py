"""What a person is told and asked who lets a program call, or be told what happens."""

import base64
import secrets

from palaver.platforms.webhook.options import event_name
from palaver.platforms.webhook.signing import PREFIX, Scheme
from palaver.ports.guide import Guide, Question
from palaver.ports.hooks import Kind

__all__ = ["GUIDE"]

_BYTES = 32


def _secret() -> str:
    return PREFIX + base64.b64encode(secrets.token_bytes(_BYTES)).decode()


GUIDE = Guide(
    before="A program calls, or is told what happens. A secret shows that calls are from it, or posts from us.",
    questions=[
        Question(
            option="url",
            asks="The address of a program that is told what happens, not shown while you type; nothing, if it calls:",
            needed=False,
        ),
        Question(
            option="events",
            asks=f"What is it told? {', '.join(map(event_name, Kind))}, with commas; nothing, for messages alone:",
            needed=False,
            where="url",
        ),
        Question(
            option="scheme",
            asks=f"How does it sign? {', '.join(Scheme)}:",
            usual=Scheme.STANDARD.value,
            unless="url",
        ),
        Question(option="secret", asks="The secret, not shown while you type; nothing, for a new one:", make=_secret),
        Question(
            option="text",
            asks="What is said because of a call, like: Build {{ build.status }}; nothing, for all that it brings:",
            needed=False,
            unless="url",
        ),
    ],
    after=(
        "Give the program the secret. Where it calls, it does so at /in/webhook/{account} of the public name of your "
        "window, and is let in by: palaver grants add webhook:{account}"
    ),
)
