"""`python -m palaver`."""

from palaver.cli.main import run

run()
