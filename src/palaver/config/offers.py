"""What this machine has already: keys in the environment and model servers, to be offered and never used unasked."""

import asyncio
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from urllib.parse import urlsplit

from palaver.agents.model_list import ListedModel, ModelsNotListed, list_models
from palaver.config.agent_plan import MODEL, AgentPlan
from palaver.model.errors import InvalidInput
from palaver.model.providers import COMPATIBLE, LOCAL_SERVERS, PROVIDERS, LocalServer, pick_model
from palaver.model.value import value

_SECONDS = 0.4
"""A server on this machine answers in this time, or it is not offered."""
_LOOPBACK = re.compile(r"localhost|127(?:\.\d{1,3}){3}|::1|0\.0\.0\.0|::")
_EVERYWHERE = frozenset({"0.0.0.0", "::"})  # noqa: S104 - it is asked at loopback


@value
class Offer:
    """A model that can answer at once."""

    name: str
    """As `/connect` takes it: a variable, or a program."""
    provider: str
    base_url: str = ""
    variable: str = ""
    model: str = ""
    """Of a server: what would answer."""

    @property
    def text(self) -> str:
        return f"{self.name} on this machine, with {self.model}" if self.model else self.name


def find_keys(environ: Mapping[str, str]) -> list[Offer]:
    """Return the keys of known providers in the environment, one for each provider."""
    found = [
        (each, next((name for name in each.key_variables if environ.get(name, "").strip()), ""))
        for each in PROVIDERS.values()
    ]
    return [
        Offer(name=name, provider=each.name, variable=name, base_url=address_of(each.name, environ))
        for each, name in found
        if name
    ]


def address_of(provider: str, environ: Mapping[str, str]) -> str:
    """Return where the environment says that a provider is; "" for where it usually is."""
    variable = PROVIDERS[provider].address_variable
    address = environ.get(variable, "").strip() if variable else ""
    return address if address.startswith(("http://", "https://")) else ""


async def find_servers(environ: Mapping[str, str]) -> list[Offer]:
    """Return the servers that answer on this machine with a list of models."""
    addresses = [(server, _address(server, environ)) for server in LOCAL_SERVERS]
    found = await asyncio.gather(*(_ask(server, *address) for server, address in addresses if address))
    return [offer for offer in found if offer]


def _address(server: LocalServer, environ: Mapping[str, str]) -> tuple[str, int] | None:
    """Return host and port; None if the environment says that it is on another machine."""
    said = environ.get(server.address_variable, "").strip() if server.address_variable else ""
    if not said:
        return "127.0.0.1", server.port
    with suppress(ValueError):
        parts = urlsplit(said if "://" in said else f"//{said}")
        host = parts.hostname or "127.0.0.1"
        if _LOOPBACK.fullmatch(host):
            return "127.0.0.1" if host in _EVERYWHERE else host, parts.port or server.port
    return None


async def _ask(server: LocalServer, host: str, port: int) -> Offer | None:
    url = f"http://{f'[{host}]' if ':' in host else host}:{port}/v1"
    # Few machines have one: look for an open port before the HTTP client is imported.
    with suppress(OSError, TimeoutError, ModelsNotListed, InvalidInput):
        async with asyncio.timeout(_SECONDS):
            _, writer = await asyncio.open_connection(host, port)
        writer.close()
        models = await list_models(base_url=url, within=_SECONDS)
        if model := pick_model([each.name for each in models]):
            return Offer(name=_title(server, models), provider=COMPATIBLE, base_url=url, model=model)
    return None


def _title(server: LocalServer, models: list[ListedModel]) -> str:
    """Name the program by what its list says; at the port of another one it is still what it is."""
    owners = {each.owner for each in models}
    return next((each.title for each in LOCAL_SERVERS if each.owner in owners), server.title)


def plan_offer(offer: Offer, model: str, environ: Mapping[str, str]) -> AgentPlan:
    """Return the agent to write: the configuration names the variable, not its value."""
    plan = AgentPlan(agent=MODEL, model=f"{offer.provider}:{model}", base_url=offer.base_url)
    return replace(plan, key_variable=offer.variable, key=environ[offer.variable]) if offer.variable else plan


def plan_key(provider: str, key: str, model: str, environ: Mapping[str, str]) -> AgentPlan:
    """Return the agent to write for a key that goes into a file of its own."""
    plan = AgentPlan(agent=MODEL, model=f"{provider}:{model}", base_url=address_of(provider, environ))
    return replace(plan, key=key, key_file=f"keys/{provider}")
