"""The scenes of the demonstration that cost little. `python -m tests.demonstration` plays all of them."""

from pathlib import Path

import pytest

from palaver.model.transcript import Role
from tests.demonstration import play
from tests.demonstration.model import serving_models
from tests.demonstration.stage import entries, home, staged


@pytest.mark.needs("espeak-ng", "ffmpeg")
async def test_the_small_model_is_spoken_to_speaks_and_learns_of_a_picture(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(home(tmp_path / "home")))
    async with serving_models() as models, staged(tmp_path, models) as stage:
        await play.listen_and_speak(stage)
        await play.see(stage)
    (heard,) = [entry for entry in await entries(tmp_path) if entry.files and "Transcribed" in entry.text]
    assert heard.role is Role.USER
    assert heard.text.startswith("[Transcribed from a voice message] ")
    assert [file.media_type for file in heard.files] == ["audio/ogg"]
