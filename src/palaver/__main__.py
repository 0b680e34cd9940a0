"""`palaver`, and `python -m palaver`."""

import gc
import signal


def start() -> None:
    """Run the command; Ctrl-C during the imports ends it without a traceback."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    gc.set_threshold(10_000)  # collecting cycles takes a tenth of the time of a short command
    from palaver.cli.main import run  # noqa: PLC0415 - slow to import

    run()


if __name__ == "__main__":
    start()
