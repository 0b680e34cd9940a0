"""The options of a pigeon, and the questions of setup."""

from pydantic import BaseModel, ConfigDict, Field, SecretStr

from palaver.protocols import SetupGuide, SetupQuestion

__all__ = ["GUIDE", "Options"]


class Options(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    host: str = Field(default="127.0.0.1", description="Host of the loft.")
    port: int = Field(default=7400, ge=1, le=65535, description="Port of the loft.")
    ring: SecretStr = Field(description="Identifies your pigeon at the loft.")


GUIDE = SetupGuide(
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
)
