"""Pigeon post: an adapter for Palaver. This declares it; Palaver loads the adapter itself only for an account."""

from palaver.protocols import Platform, SetupGuide, SetupQuestion

__all__ = ["PIGEON"]

PIGEON = Platform(
    name="pigeon",
    title="Pigeon post",
    adapter="pigeon_post.adapter:PigeonAdapter",
    guide=SetupGuide(
        before=(
            "Ask the keeper of the loft for a pigeon.",
            "It wears a ring with a number on it.",
        ),
        questions=[
            SetupQuestion(option="host", prompt="Where is the loft?", default="127.0.0.1"),
            SetupQuestion(option="port", prompt="On which port?", default="7400"),
            SetupQuestion(option="ring", prompt="Number on the ring (hidden while you type):"),
        ],
        owner_prompt="Your own name at the loft?",
    ),
)
