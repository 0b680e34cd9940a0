"""Where programs wait for their answers."""

from palaver.engine.waitingroom import Waiter, WaitingRoom

__all__ = ["Waiter", "WaitingRoom"]
