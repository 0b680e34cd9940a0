"""`palaver`, and `python -m palaver`."""

import signal


def start() -> None:
    """Run the command; Ctrl-C during the imports ends it without a traceback."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from palaver.cli.main import run  # noqa: PLC0415 - slow to import

    run()


if __name__ == "__main__":
    start()
