"""The local model: found, run in a process of its own, and stopped in the middle."""

import asyncio
import os
import struct
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from palaver.agents import local
from palaver.agents.local import LocalModel, context_length, installed_model, local_agent
from palaver.model.errors import BadArgument
from palaver.model.label import gap_marker, time_marker
from palaver.model.transcript import Role
from palaver.model.view import Message
from palaver.protocols.agent import Excerpt, Failure, FailureKind, Final, Request, TextDelta, UsageReport


def request(words: str) -> Request:
    return Request(session="s", turn=1, attempt=1, section="", messages=(Message(Role.USER, words),))


def small(**changed: object) -> LocalModel:
    usual = {"file": str(installed_model()), "context_window": 256, "max_tokens": 3, "temperature": 0.0}
    return LocalModel(**{**usual, **changed})  # pyright: ignore[reportArgumentType]


@pytest.mark.needs("libgomp.so.1")
async def test_it_really_answers_and_can_be_stopped_and_finds_too_much_too_much() -> None:
    """One process for all of it: to load the model is what takes the time."""
    agent = local_agent(small(), os.environ)
    happened = [event async for event in agent.answer(request("Say yes."))]
    *deltas, used, last = happened
    assert isinstance(last, Final)
    assert last.text
    assert last.cut
    assert "".join(event.text for event in deltas if isinstance(event, TextDelta)).strip() == last.text
    assert isinstance(used, UsageReport)
    assert used.usage.model == "SmolLM2-135M-Instruct.Q4_1"
    assert 0 < used.usage.output_tokens <= 3 < used.usage.input_tokens
    assert agent.context_window(None) == 256
    at = datetime(2026, 11, 1, 12, tzinfo=UTC)
    times = " ".join((gap_marker(90), gap_marker(200_000), time_marker(at, ZoneInfo("Europe/Berlin"))))
    again = [event async for event in agent.answer(request(f"{times} Say yes."))]
    assert again == happened, "the model does not see when something was said, which it would repeat"
    stream = agent.answer(request("Tell me a story."))
    assert isinstance(await anext(stream), TextDelta)
    async with asyncio.timeout(20):
        await stream.aclose()
    too_much = [event async for event in agent.answer(request("word " * 1000))]
    assert too_much == [Failure(kind=FailureKind.OVERFLOW, detail="llama.cpp refused with code 400")]
    gist = await agent.summarise(Excerpt(session="s", messages=(Message(Role.USER, "Ann likes tea."),)))
    assert gist.text
    assert gist.usage.output_tokens
    await agent.close()


@pytest.mark.needs("libgomp.so.1")
async def test_a_file_that_is_no_model_ends_in_a_failure(tmp_path: Path) -> None:
    (tmp_path / "not.gguf").write_bytes(b"GGUF")
    agent = local_agent(small(file=str(tmp_path / "not.gguf")), os.environ)
    (only,) = [event async for event in agent.answer(request("hi"))]
    await agent.close()
    assert only == Failure(kind=FailureKind.FATAL, detail="the model could not be loaded: RuntimeError")


@pytest.mark.needs("libgomp.so.1")
async def test_nothing_of_the_folder_in_which_the_gateway_was_started_is_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From where the gateway itself imports, the process does too, though it runs elsewhere."""
    (tmp_path / "lib").mkdir()
    for name in ("xllamacpp", "json", "lib/sitecustomize"):
        (tmp_path / f"{name}.py").write_text(f"print({name!r}, file=open({str(tmp_path / 'ran')!r}, 'a'))")
    (tmp_path / "not.gguf").write_bytes(b"GGUF")
    monkeypatch.chdir(tmp_path)
    agent = local_agent(small(file=str(tmp_path / "not.gguf")), {**os.environ, "PYTHONPATH": "lib:"})
    (only,) = [event async for event in agent.answer(request("hi"))]
    await agent.close()
    assert only == Failure(kind=FailureKind.FATAL, detail="the model could not be loaded: RuntimeError")
    assert (tmp_path / "ran").read_text() == "lib/sitecustomize\n"


def test_how_much_a_model_takes_is_in_its_file(tmp_path: Path) -> None:
    assert context_length(installed_model()) == 8192
    for content in (b"", b"GGUF", b"GGUF" + b"\xff" * 100, b"GGUF" + struct.pack("<IQQ", 3, 0, 0)):
        (tmp_path / "x.gguf").write_bytes(content)
        assert context_length(tmp_path / "x.gguf") is None
    assert context_length(tmp_path / "nowhere") is None


def test_without_the_packages_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("palaver.agents.local._SHARED_LIBRARIES", ())
    with pytest.raises(BadArgument, match="Use a GGUF model file"):
        local_agent(small(file="/nowhere.gguf"), {})
    model = small()

    def nowhere(name: str) -> None:
        raise PackageNotFoundError(name)

    monkeypatch.setattr(local, "files", nowhere)
    with pytest.raises(BadArgument, match="palaver setup --agent local --model qwen3-4b"):
        installed_model()
    monkeypatch.setattr("palaver.agents.local._SHARED_LIBRARIES", ("libnowhere.so.7",))
    with pytest.raises(BadArgument, match=r"needs libnowhere\.so\.7.* apt-get install libnowhere7$"):
        local_agent(model, {})
    monkeypatch.setattr("palaver.agents.local.find_spec", dict[str, None]().get)
    with pytest.raises(BadArgument, match="xllamacpp"):
        local_agent(model, {})
