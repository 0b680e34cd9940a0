"""The relay: a connector, gateways behind it, and those who try to be one."""
