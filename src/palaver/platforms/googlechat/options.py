"""The options of a Google Chat app."""

import json
from typing import Annotated, Any

from pydantic import AfterValidator, ConfigDict, Field, SecretStr

from palaver.protocols import check_url
from palaver.protocols.options import AccountOptions

Url = Annotated[str, AfterValidator(check_url("a URL, like https://chat.googleapis.com"))]


def _check_key(key: SecretStr) -> SecretStr:
    read_key(key)
    return key


def read_key(key: SecretStr) -> dict[str, str]:
    """Return the fields of a service account's key. Raise ValueError if it is none."""
    words = "the content of the JSON file that Google made for the service account"
    try:
        found: Any = json.loads(key.get_secret_value())
        return {name: str(found[name]) for name in ("client_email", "private_key", "private_key_id")}
    except (ValueError, LookupError, TypeError):
        raise ValueError(words) from None


class GoogleChatOptions(AccountOptions):
    model_config = ConfigDict(coerce_numbers_to_str=True)

    project_number: str = Field(pattern=r"^[0-9]+$", description="The number of the project, the audience of calls.")
    service_account: Annotated[SecretStr, AfterValidator(_check_key)] = Field(description="The key, as JSON.")
    api_url: Url = Field(default="https://chat.googleapis.com", description="The API.")
    token_url: Url = Field(default="https://oauth2.googleapis.com/token", description="Where tokens come from.")
    keys_url: Url = Field(
        default="https://www.googleapis.com/service_accounts/v1/jwk/chat@system.gserviceaccount.com",
        description="Where the keys come from that sign Google's calls.",
    )
