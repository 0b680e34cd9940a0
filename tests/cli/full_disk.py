"""`python -m tests.cli.full_disk 8 chat -m hi` is `palaver chat -m hi` where no file can grow beyond 8 kB."""

import resource
import signal
import sys

from palaver.__main__ import start

if __name__ == "__main__":
    size = 1024 * int(sys.argv.pop(1))
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    sys.dont_write_bytecode = True  # no compiled module is left cut short
    start()
