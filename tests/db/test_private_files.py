"""What root makes in the folder of somebody who may not be trusted."""

import os
from pathlib import Path
from typing import Any

import pytest

from palaver.db.file_lock import FileLock
from palaver.db.high_water import HighWater, mark_path
from palaver.db.private_files import open_private, touch_private
from palaver.db.sqlite import MarkFile
from palaver.model.errors import StoreError
from tests.needs import NOBODY


@pytest.mark.needs("root")
def test_a_folder_that_is_exchanged_meanwhile_gives_nobody_a_file_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, systems = tmp_path / "files", tmp_path / "cron.d"
    systems.mkdir()
    folder.symlink_to(systems)
    open_file = os.open

    def open_and_exchange(path: Any, flags: int, *rest: Any, **options: Any) -> int:
        handle = open_file(path, flags, *rest, **options)
        if flags & os.O_EXCL:
            folder.unlink()
            folder.mkdir()
            os.chown(folder, NOBODY, NOBODY)
        return handle

    monkeypatch.setattr(os, "open", open_and_exchange)
    os.close(open_private(folder / "made", os.O_WRONLY))
    assert folder.stat().st_uid == NOBODY
    assert (systems / "made").stat().st_uid == 0


def test_a_link_leads_to_no_other_file(tmp_path: Path) -> None:
    other, database = tmp_path / "shadow", tmp_path / "palaver.db"
    other.write_text("secret")
    other.chmod(0o644)
    for name in ("palaver.db.lock", "palaver.db.mark"):
        (tmp_path / name).symlink_to(other)
    with pytest.raises(StoreError, match=r"palaver\.db\.lock"):
        FileLock(database).take()
    with pytest.raises(OSError, match=r"palaver\.db\.mark"):
        MarkFile(database, HighWater(), is_shared=False)
    assert (other.read_text(), other.stat().st_mode & 0o777) == ("secret", 0o644)


def test_an_error_names_the_whole_path(tmp_path: Path) -> None:
    (tmp_path / "taken").mkdir()
    with pytest.raises(IsADirectoryError) as raised:
        open_private(tmp_path / "taken", os.O_WRONLY)
    assert raised.value.filename == str(tmp_path / "taken")


def test_a_link_can_say_where_a_new_database_is(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "palaver.db").symlink_to(tmp_path / "disk" / "palaver.db")
    touch_private(tmp_path / "palaver.db")
    assert (tmp_path / "disk" / "palaver.db").stat().st_mode & 0o777 == 0o600


@pytest.mark.needs("root")
def test_what_is_beside_a_database_belongs_to_its_owner(tmp_path: Path) -> None:
    """The folder can be root's, and open to the group of the service."""
    database = tmp_path / "palaver.db"
    database.touch()
    os.chown(database, NOBODY, NOBODY)
    MarkFile(database, HighWater(), is_shared=False)
    lock = FileLock(database)
    lock.take()
    lock.release()
    assert mark_path(database).stat().st_uid == database.with_name("palaver.db.lock").stat().st_uid == NOBODY
