"""Ports for the servers that tests start."""

import random
import socket
from collections import deque

__all__ = ["free_port"]

_BELOW = 32768
"""The kernel gives these and higher ones to connections, at any time."""
_KEPT = 64
_claims: deque[socket.socket] = deque()


def free_port() -> int:
    """Return a port of 127.0.0.1 that nobody listens on, and that no other process gets for its server meanwhile.

    A UDP socket claims it: it is in nobody's way, and goes with this process.
    """
    while True:
        port = random.SystemRandom().randrange(10_000, _BELOW)
        claim = socket.socket(type=socket.SOCK_DGRAM)
        try:
            claim.bind(("127.0.0.1", port))
            with socket.socket() as probe:
                probe.bind(("127.0.0.1", port))
        except OSError:
            claim.close()
            continue
        _claims.append(claim)
        if len(_claims) > _KEPT:
            _claims.popleft().close()
        return port
