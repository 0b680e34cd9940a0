"""`palaver`, and `python -m palaver`."""

import signal

__all__ = ["start"]


def start() -> None:
    """Whoever changes their mind while the modules are still read is not shown which one it was."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from palaver.cli.main import run  # noqa: PLC0415 - slow to import

    run()


if __name__ == "__main__":
    start()
