"""The options of a Signal account, and the steps of `palaver setup signal`."""

import re
from typing import Annotated

from pydantic import AfterValidator, Field, field_validator

from palaver.protocols import check_url
from palaver.protocols.options import AccountOptions

_NUMBER = re.compile(r"\+[1-9][0-9]{4,14}")
Url = Annotated[str, AfterValidator(check_url("a URL, like http://127.0.0.1:8080"))]


class SignalOptions(AccountOptions):
    number: str = Field(description="The phone number of the account, with its country code.")
    url: Url = Field(default="http://127.0.0.1:8080", description="URL of the signal-cli daemon.")
    read_receipts: bool = Field(default=True, description="Whether people see that their message was read.")

    @field_validator("number")
    @classmethod
    def _check_number(cls, number: str) -> str:
        if not _NUMBER.fullmatch(number):
            raise ValueError("a phone number with its country code and no spaces, like +15550100200")
        return number
