"""Palaver: an agent gateway. People talk to an AI agent from the chat app they already use."""

__all__ = ["__version__"]

__version__ = "0.9.0"
