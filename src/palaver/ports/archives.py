"""Conversations as files."""

from enum import StrEnum
from typing import Protocol

from palaver.domain.session import Principal
from palaver.ports.work import Work

__all__ = ["Archives", "Form"]


class Form(StrEnum):
    JSONL = "jsonl"
    """Everything, to be imported again."""
    MARKDOWN = "markdown"
    HTML = "html"


class Archives(Protocol):
    def written(self, session: str, form: Form, principal: Principal) -> Work[bytes]:
        """One conversation as it is shown, whole. What was taken back or deleted is not in it."""
        ...
