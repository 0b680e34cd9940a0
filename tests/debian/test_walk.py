"""The walk in a folder: no message of a program is lost or answered twice, and a conversation outlives its disk.

`make debian` is the same walk on a fresh Debian, from the version before.
"""

from pathlib import Path

from tests.debian.folder import Folder
from tests.debian.walk import Walk
from tests.ports import free_port


async def test_a_conversation_outlives_an_upgrade_and_the_loss_of_its_disk(tmp_path: Path) -> None:
    place = Folder(folder=tmp_path, port=free_port())
    walk = Walk(place=place, traffic=10)
    try:
        await walk.run()
    finally:
        await place.end()
    assert [step.name for step in walk.steps][-1] == "go on"
