"""What a check of a store found, and how to fix it."""

from collections.abc import Awaitable, Iterable
from dataclasses import dataclass

from palaver.model import text
from palaver.model.errors import StoreError

MAX_LISTED = 5
REPORT_A_BUG = "palaver doctor --bundle report.zip makes a file for a bug report, without anything said or secret"
FIX_THE_CAUSE = f"fix what the error says, then run palaver doctor again; if you cannot, {REPORT_A_BUG}"
RESTORE_OR_SALVAGE = (
    "restore a backup, or stop the gateway and copy everything readable into a new store: palaver doctor --salvage"
    " NEW_STORE"
)


@dataclass(frozen=True, kw_only=True)
class HealthCheck:
    """What a check found. One that fails or warns says how to fix it: a command or an exact step."""

    name: str
    ok: bool
    found: str
    fix: str = ""
    is_warning: bool = False
    """It works, but not as somebody may expect."""
    is_refused: bool = False
    """The database refused the check itself."""
    public: str = ""
    """What it found in our own words and numbers alone, for a bug report. Empty if that cannot be said."""
    topic: str = ""
    """What is checked, if the name says what somebody configured."""

    def __post_init__(self) -> None:
        if not self.fix and (self.is_warning or not self.ok):
            raise ValueError(f"the check {self.topic or self.name} does not say how to fix what it found")


async def or_problem(name: str, check: Awaitable[HealthCheck]) -> HealthCheck:
    """Report a check that the database refuses, so that the others are still made."""
    try:
        return await check
    except StoreError as error:
        found = f"it cannot be checked: {error}"
        return HealthCheck(name=name, ok=False, found=found, fix=FIX_THE_CAUSE, is_refused=True)


def listed(names: Iterable[str]) -> str:
    """Return the first few, and how many more there are."""
    return text.listed(names, MAX_LISTED, "; ")
