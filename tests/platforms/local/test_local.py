"""Messages to `local` become files: under safe names, once each, and gone when their owner is forgotten."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaver.model.attachment import Attachment
from palaver.model.label import Label
from palaver.model.turn import Outbound
from palaver.platforms.local.adapter import (
    LocalAdapter,
    file_name,
    output_eraser,
    output_folder,
    owner_folder,
)
from palaver.protocols.adapter import PlatformBusy


def message(text: str = "hello", **more: object) -> Outbound:
    fields: dict[str, object] = {"scope_id": "telegram:7", "chat_id": "Daily report", "thread_id": "2026-03-01T090000Z"}
    return Outbound(platform="local", text=text, **{**fields, **more})  # pyright: ignore[reportArgumentType]


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


async def test_the_same_message_is_the_same_file_and_another_is_another(tmp_path: Path) -> None:
    adapter = LocalAdapter(tmp_path)
    first = await adapter.send(message(), idempotency_key="a")
    assert await adapter.send(message(), idempotency_key="a") == first
    await adapter.send(message("again"), idempotency_key="b")
    files = _files(tmp_path)
    assert [file.read_text() for file in files] in (["hello\n", "again\n"], ["again\n", "hello\n"])
    assert {file.parent.name for file in files} == {"daily-report"}
    assert all(file.name.startswith("2026-03-01T090000Z-") for file in files)
    assert (tmp_path / first).stat().st_mode & 0o077 == 0


async def test_a_file_is_copied(tmp_path: Path) -> None:
    content = tmp_path / "content"
    content.write_bytes(b"\x89PNG")
    sent = message("", file=Attachment(Label("../../plot.png"), "image/png", 4))
    name = await LocalAdapter(tmp_path / "output").send_file(sent, content, idempotency_key="a")
    assert name.endswith(".png")
    assert (tmp_path / "output" / name).read_bytes() == b"\x89PNG"


async def test_a_disk_that_does_not_take_it_is_tried_again(tmp_path: Path) -> None:
    (tmp_path / "output").write_text("no folder")
    with pytest.raises(PlatformBusy):
        await LocalAdapter(tmp_path / "output").send(message(), idempotency_key="a")


async def test_a_folder_that_is_deleted_meanwhile_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    touch, deleted = Path.touch, list[Path]()

    def delete_then_touch(path: Path, mode: int = 0o666) -> None:
        if not deleted:
            deleted.append(path.parent)
            path.parent.rmdir()
        touch(path, mode=mode)

    monkeypatch.setattr(Path, "touch", delete_then_touch)
    name = await LocalAdapter(tmp_path).send(message(), idempotency_key="a")
    assert (tmp_path / name).read_text() == "hello\n"
    assert deleted


@given(owner=st.text(), name=st.text(), time=st.text(), key=st.text(min_size=1))
def test_nothing_from_outside_leads_out_of_the_folder(owner: str, name: str, time: str, key: str) -> None:
    made = file_name(
        message(scope_id=owner, chat_id=name, thread_id=time), key.encode(errors="replace").decode(), ".md"
    )
    parts = made.split("/")
    assert len(parts) == 3
    assert all(part.isascii() and part.strip(".") and len(part) < 120 and part.isprintable() for part in parts)


def test_everybody_has_a_folder_of_their_own_that_goes_with_them(tmp_path: Path) -> None:
    folder = output_folder(tmp_path)
    for identity in ("telegram:7", "telegram:7 ", "telegram-7"):
        (folder / owner_folder(identity)).mkdir(parents=True)
    assert len([*folder.iterdir()]) == 3
    forget = output_eraser(tmp_path)
    forget(frozenset({"telegram:7", "telegram:8"}))
    forget(frozenset({"telegram:7"}))
    assert len([*folder.iterdir()]) == 2
