"""Values and decisions. Pure: standard library (and cronsim) only, no I/O, no clock, no asyncio, no logging."""
