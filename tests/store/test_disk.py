"""The disk that a database lies on: full, closed to us, or in the way."""

import asyncio
import os
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import pytest

from palaver.db.file_lock import is_disk_full
from palaver.model.errors import StoreError, StoreUnavailable
from palaver.store.opening import open_store
from palaver.store.status.health import check_data_directory

_LOOKED_AT = "palaver.db.sqlite._identity", "palaver.db.sqlite.SqliteDatabase._log_size"


def _full(_: Path) -> SimpleNamespace:
    return SimpleNamespace(f_blocks=9, f_bavail=0, f_files=0, f_favail=0)


def _without_files(_: Path) -> SimpleNamespace:
    return SimpleNamespace(f_blocks=9, f_bavail=9, f_files=9, f_favail=0)


async def test_what_a_full_disk_refuses_may_pass(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "palaver.db"
    file.write_bytes(b"no database")
    assert not is_disk_full(file)
    with pytest.raises(StoreError, match="Use a Palaver database") as wrong:
        await open_store(str(file))
    assert not isinstance(wrong.value, StoreUnavailable)
    for state in (_full, _without_files):
        monkeypatch.setattr(os, "statvfs", state)
        with pytest.raises(StoreUnavailable, match="its disk is full"):
            await open_store(str(file))


async def test_a_folder_that_cannot_be_made_is_named_with_the_reason(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    places = {"/proc/x": "No such file or directory", str(tmp_path / "file/x"): "Not a directory"}
    for place, reason in places.items():
        with pytest.raises(StoreError) as refused:
            await open_store(f"{place}/palaver.db", exclusive=True)
        assert str(refused.value).startswith(f"the folder {place} cannot be made: {reason}. Set PALAVER_HOME")
        assert not isinstance(refused.value, StoreUnavailable)


def test_a_place_that_does_not_exist_yet_is_judged_by_what_there_is_of_it(tmp_path: Path) -> None:
    assert all(check.ok for check in check_data_directory(tmp_path / "new" / "newer" / "palaver.db"))
    (tmp_path / "file").touch()
    _, place = check_data_directory(tmp_path / "file" / "new" / "palaver.db")
    assert (place.ok, place.found) == (False, f"{tmp_path / 'file'} is not a folder")


@pytest.mark.parametrize("looked_at", _LOOKED_AT)
async def test_a_disk_that_gives_no_answer_for_a_while_is_an_outage_that_passes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, looked_at: str
) -> None:
    def sick(_: object) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr("palaver.db.sqlite._FILE_CHECK_SECONDS", 0.0)
    monkeypatch.setattr("palaver.db.sqlite._BATCHES_PER_CHECKPOINT", 1)
    store = await open_store(str(tmp_path / "palaver.db"))
    try:
        with monkeypatch.context() as meanwhile, suppress(StoreUnavailable):
            meanwhile.setattr(looked_at, sick)
            for _ in range(2):
                await asyncio.wait_for(store.transact(store.outbox.count_due()), 60)
        assert await asyncio.wait_for(store.transact(store.outbox.count_due()), 60) == 0
    finally:
        await store.close()
