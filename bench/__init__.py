"""Measurements: each figure beside the bare operation, taken in the same run. `python -m bench [--json FILE]`."""
