"""Addresses: where the window is served, and under which names it may be asked for."""

import ipaddress
from urllib.parse import urlsplit

from palaver.model.value import value

__all__ = [
    "Address",
]


@value
class Address:
    host: str
    port: int
    url: str
    """Where browsers find it."""
    trusted_proxies: frozenset[str] = frozenset()

    def answers_to(self, host: str) -> bool:
        """Whether a Host header may stand here.

        A page of somebody else's whose name was pointed at this machine still asks under that name. A bare address
        belongs to nobody, and is no name that could be pointed elsewhere.
        """
        name = _name(host)
        return name is not None and (name in {"localhost", urlsplit(self.url).hostname} or _is_bare(name))

    def is_own(self, origin: str, host: str) -> bool:
        """Whether an Origin header names the page that was asked for under this Host."""
        try:
            return origin == self.url or urlsplit(origin).netloc.lower() == host.lower()
        except ValueError:
            return False

    def is_secure(self, scheme: str) -> bool:
        """Whether browsers come by TLS: a proxy before us may not say so."""
        return scheme == "https" or self.url.startswith("https:")


def _name(host: str) -> str | None:
    try:
        return urlsplit(f"//{host}").hostname
    except ValueError:
        return None


def _is_bare(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
