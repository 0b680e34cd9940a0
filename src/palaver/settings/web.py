"""The window: where it is served, as it is written in a file."""

import ipaddress
from datetime import timedelta
from typing import Annotated, Self
from urllib.parse import urlsplit

from pydantic import Field, PlainSerializer, model_validator

from palaver.model.errors import BadArgument
from palaver.settings.types import (
    OFF,
    Duration,
    Section,
    Syntax,
    as_pydantic_error,
    from_names,
    from_text,
    to_text,
    words_text,
)

LOOPBACK = "127.0.0.1"
_PUBLIC = "https://palaver.example.org"


def _host(text: str) -> str:
    return LOOPBACK if text == "localhost" else str(ipaddress.ip_address(text.strip("[]")))


def _public_url(text: str) -> str:
    parts = urlsplit(text)
    if parts.scheme not in {"http", "https"} or not parts.hostname or parts.username or parts.path.strip("/"):
        raise ValueError(text)
    return f"{parts.scheme}://{parts.netloc.lower()}"


def _proxy(text: str) -> str:
    return str(ipaddress.ip_network(text, strict=False))


Host = Annotated[str, from_text(_host), Syntax("an address of this machine: 127.0.0.1, ::1, 0.0.0.0, …", LOOPBACK)]
PublicUrl = Annotated[
    str | None,
    from_text(_public_url, OFF),
    to_text(str),
    Syntax(f"http:// or https:// and a name, without a path, or {OFF}", _PUBLIC),
]
Proxies = Annotated[
    frozenset[str],
    from_names(_proxy),
    PlainSerializer(words_text),
    Syntax("addresses or networks, separated by commas, or off", "127.0.0.1, 10.0.0.0/8"),
]


Origins = Annotated[
    frozenset[str],
    from_names(_public_url),
    PlainSerializer(words_text),
    Syntax("origins of web pages, separated by commas, or off", "https://app.example.org, http://localhost:5173"),
]


class WebConfig(Section):
    enabled: bool = Field(default=True, description="Whether `palaver up` starts the web server.")
    host: Host = Field(default=LOOPBACK, description="Listen on this address.")
    port: int = Field(default=8787, ge=1, le=65535, description="Listen on this port.")
    public_url: PublicUrl = Field(default=None, description="The address that browsers use if there is a proxy.")
    trusted_proxies: Proxies = Field(
        default=frozenset(), description="Trust these proxies to report the caller's address."
    )
    origins: Origins = Field(
        default=frozenset(), description="Web pages from these origins can call `/api` and `/v1` with a token."
    )
    connections: int = Field(
        default=5000, ge=16, le=60_000, description="Accept at most this many connections at once."
    )
    idle_limit: Duration = Field(
        default=timedelta(seconds=30),
        ge=timedelta(seconds=1),
        le=timedelta(hours=1),
        description="Close a connection after this long without a request, or without its client reading.",
    )
    body_limit: Duration = Field(
        default=timedelta(minutes=10),
        ge=timedelta(seconds=1),
        le=timedelta(days=1),
        description="Stop receiving what a login or token sends after this long.",
    )
    messages_per_minute: int = Field(
        default=1200,
        ge=1,
        le=1_000_000,
        description="Accept at most this many messages of a login or token per minute.",
    )

    @model_validator(mode="after")
    def _is_safe_to_reach(self) -> Self:
        """Require a public URL for an address that others can reach: links and request checks need it."""
        if self.enabled and not ipaddress.ip_address(self.host).is_loopback and self.public_url is None:
            raise as_pydantic_error(
                BadArgument(
                    "an address that others can reach needs a public_url:",
                    found=self.host,
                    allowed="127.0.0.1 or ::1, or a public_url beside it",
                    example=f"{{host: {self.host}, public_url: {_PUBLIC}}}",
                )
            )
        return self

    @property
    def only_here(self) -> str:
        """Why a phone cannot open the window; "" if it can."""
        host = urlsplit(self.url).hostname or ""
        try:
            is_local = ipaddress.ip_address(host).is_loopback
        except ValueError:
            is_local = host == "localhost"
        if not is_local:
            return ""
        return (
            f"Only this machine can open {self.url}. For your phone, set web.public_url to an address that it can"
            " reach, through a proxy or a private network."
        )

    @property
    def url(self) -> str:
        """Where a browser goes."""
        if self.public_url:
            return self.public_url
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}"
