"""Commands: which role each needs, where it is not the usual one."""

from collections.abc import Mapping
from difflib import get_close_matches
from importlib.metadata import entry_points
from typing import Annotated

from pydantic import AfterValidator

from palaver.commands.plugins import GROUP
from palaver.commands.standard import STANDARD_NAMES
from palaver.config.forms import Form, Role, refused
from palaver.domain.access import AccessRole
from palaver.domain.errors import BadArgument

__all__ = ["CommandRoles"]


def _known(roles: Mapping[str, AccessRole]) -> Mapping[str, AccessRole]:
    """Where plugins are installed, any name may be one of theirs."""
    for name in () if entry_points(group=GROUP) else roles:
        if name not in STANDARD_NAMES:
            close = get_close_matches(name, STANDARD_NAMES, n=1)
            known = ", ".join(sorted(STANDARD_NAMES)) + (f"; perhaps {close[0]}" if close else "")
            example = f"{{{(close or ['model'])[0]}: admin}}"
            raise refused(BadArgument("there is no command", found=name, allowed=known, example=example))
    return roles


CommandRoles = Annotated[
    Mapping[str, Role],
    AfterValidator(_known),
    Form("a section of commands by their names, each with a role", "{model: admin}"),
]
