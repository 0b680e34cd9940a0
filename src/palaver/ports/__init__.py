"""The seams between rooms: what the engine asks of a store, and later of adapters, agents and the clock."""
