"""The homeserver that the tests of Matrix have started."""

from tests.platforms.matrix.conftest import home

__all__ = ["home"]
