"""The relay: where a connector listens, and which of its chats belong to which gateway."""

from collections.abc import Mapping

from pydantic import Field

from palaver.model.key import ProfileRule
from palaver.settings.quotas import RouteConfig
from palaver.settings.types import Port, Section
from palaver.settings.web import LOOPBACK, Host


class TenantConfig(Section):
    serves: tuple[RouteConfig, ...] = Field(
        default=(), description="Which messages this tenant's gateway gets: those that match any item."
    )


class RelayConfig(Section):
    port: Port = Field(default=None, description="Serve gateways on this port.")
    host: Host = Field(default=LOOPBACK, description="Listen on this address. Put a TLS proxy in front of it.")
    tenants: Mapping[str, TenantConfig] = Field(
        default={}, description="Gateways behind this connector, by a name that you choose."
    )

    def rules(self) -> tuple[ProfileRule, ...]:
        return tuple(
            ProfileRule(profile=name, origin=("relay", "tenants", name, "serves", number), **dict(route))
            for name, tenant in self.tenants.items()
            for number, route in enumerate(tenant.serves)
        )
