"""Where the web interface listens, and which Host and Origin headers it accepts."""

import ipaddress
from urllib.parse import urlsplit

from palaver.model.value import value

API_ROOT = "/api/v1"


@value
class Address:
    host: str
    port: int
    url: str
    """The URL that browsers use."""
    trusted_proxies: frozenset[str] = frozenset()
    origins: frozenset[str] = frozenset()
    """Foreign pages that can use the API with a token."""

    def accepts_host(self, host: str) -> bool:
        """Return whether a Host header names this server. This stops DNS rebinding.

        A foreign page whose name resolves to this machine still sends that name. A bare IP address cannot be
        rebound, so it is accepted.
        """
        name = _host_name(host)
        return name is not None and (name in {"localhost", urlsplit(self.url).hostname} or _is_ip_address(name))

    def is_own_origin(self, origin: str, host: str) -> bool:
        """Return whether an Origin header names one of our own pages."""
        try:
            return origin == self.url or urlsplit(origin).netloc.lower() == host.lower()
        except ValueError:
            return False

    def is_secure(self, scheme: str) -> bool:
        """Return whether browsers use TLS. A proxy in front of us does not always say so."""
        return scheme == "https" or self.url.startswith("https:")


def _host_name(host: str) -> str | None:
    try:
        return urlsplit(f"//{host}").hostname
    except ValueError:
        return None


def _is_ip_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
