"""The C modules below `signal` and `socket`. Importing the modules themselves takes a megabyte more."""

TYPE_CHECKING = False

if TYPE_CHECKING:
    import signal
    import socket
else:
    import _signal as signal
    import _socket as socket

__all__ = ["TYPE_CHECKING", "signal", "socket"]
