"""The options of an account, as the configuration has them. It needs pydantic."""

from pydantic import BaseModel, ConfigDict

__all__ = ["AccountOptions"]


class AccountOptions(BaseModel):
    """An option that is not among them is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True)
