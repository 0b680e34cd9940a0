"""What an erasure reaches outside the store: files of the terminal and of `local`, processes and their output."""

from dataclasses import replace
from functools import partial
from pathlib import Path

from palaver.platforms.local.adapter import output_eraser
from palaver.platforms.terminal.files import history_eraser
from palaver.processes.home import remove_forgotten_outputs
from palaver.store.privacy.erasure import Erasures
from palaver.store.store import Store


def with_outside(store: Store, data_dir: Path) -> Erasures:
    """Return the erasures of a store that also reach what this machine keeps outside it."""
    return replace(
        store.erasures,
        erase_outside=(history_eraser(data_dir), output_eraser(data_dir)),
        remove_outputs=partial(remove_forgotten_outputs, store, data_dir),
    )
