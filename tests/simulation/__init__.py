"""The engine under a virtual clock: whole gateways, a store and a platform in one loop, everything from one seed."""
