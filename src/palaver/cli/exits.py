"""Exit codes: what scripts and supervisors are told, as far as sysexits.h has it in its words."""

__all__ = ["FAILED", "INTERNAL", "TEMPORARY", "WRONG"]

FAILED = 1
WRONG = 2
"""What was asked for, the configuration or the store: as long as nobody changes it, another try will not help."""
INTERNAL = 70
TEMPORARY = 75
