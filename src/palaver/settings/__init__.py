"""The sections of the configuration: the type, default, bounds and sentence of each setting, said once."""
