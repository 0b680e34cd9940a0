"""Where commands run: on this machine, on another one, or in a container."""
