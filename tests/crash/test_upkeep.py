"""A store changes while people speak, and gateways and the commands that change it are killed: a short run.

`python -m tests.crash.upkeep` is the long one, for moves to the other database too.
"""

from pathlib import Path

from palaver.store.encryption.vault import new_key
from tests.crash.siege import town_of
from tests.crash.upkeep import Rotation


async def test_keys_change_while_gateways_and_rotations_are_killed(tmp_path: Path) -> None:
    data, key_file = tmp_path / "data", tmp_path / "key"
    key_file.write_text(new_key())
    async with town_of(f"sqlite:///{data}/palaver.db", workers=1, chats=10, seed=7, lease=0.6) as town:
        town.key_file = key_file
        work = Rotation(town=town, folder=data, kills_per_change=3, renew_every=1, longest_life=0.4)
        verdict = await work.run(changes=1)
        assert verdict.complaints == []
        assert work.done["encryption rotate"] >= 3
        assert work.done["encryption renew"] == 1
