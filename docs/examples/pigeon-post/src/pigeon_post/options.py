"""The options of a pigeon."""

from pydantic import BaseModel, ConfigDict, Field, SecretStr

__all__ = ["Options"]


class Options(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    host: str = Field(default="127.0.0.1", description="Host of the loft.")
    port: int = Field(default=7400, ge=1, le=65535, description="Port of the loft.")
    ring: SecretStr = Field(description="Identifies your pigeon at the loft.")
