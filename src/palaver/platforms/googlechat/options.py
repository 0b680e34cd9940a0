"""The options of a Google Chat app."""

import json
from typing import Annotated, Any

from pydantic import AfterValidator, ConfigDict, Field, SecretStr

from palaver.protocols import SetupGuide, SetupQuestion, check_url
from palaver.protocols.options import AccountOptions

GUIDE = SetupGuide(
    before=(
        "Open console.cloud.google.com, make a project and enable the Google Chat API.",
        (
            "Under IAM & Admin, Service Accounts, create a service account and a JSON key for it, and store the file "
            "where only you can read it."
        ),
        "The dashboard of the project shows the project number.",
    ),
    questions=[
        SetupQuestion(option="project_number", prompt="Project number:"),
        SetupQuestion(
            option="service_account",
            prompt="Key of the service account, all in one line (hidden while you type):",
            help="Or name its file: palaver setup googlechat --set service_account_file=FILE",
        ),
    ],
    after=(
        (
            "Under Google Chat API, Configuration, turn off Build this Chat app as a Workspace add-on, choose HTTP "
            "endpoint URL and enter https://YOUR-ADDRESS/in/googlechat/{account}; as the authentication audience, "
            "choose Project Number."
        ),
        "Add your domain under Visibility.",
    ),
    owner_prompt="Your own id, users/ and digits? You can leave it out and pair later:",
    owner_pattern=r"users/[0-9]+",
    owner_example="users/107946847022116401880",
)

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
