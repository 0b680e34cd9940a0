"""Models from the hub: chosen by name and memory, continued where they stopped, and never used damaged."""

import fcntl
from collections.abc import Iterator
from pathlib import Path

import pytest

from palaver.agents.hub import SUGGESTIONS, NotDownloaded, download, find_model, memory_of_machine, suggested
from palaver.model.errors import BadArgument
from tests.agents.fake_hub import FILE, REPOSITORY, FakeHub, served

CONTENT = b"GGUF" + bytes(range(256)) * 400


@pytest.fixture
def hub() -> Iterator[FakeHub]:
    with served(FakeHub(CONTENT)) as running:
        yield running


def get(hub: FakeHub, folder: Path) -> Path:
    return download(find_model("qwen3-4b", hub.url), folder, lambda _there, _whole: None, hub.url)


def test_a_model_is_found_downloaded_and_not_fetched_again(hub: FakeHub, tmp_path: Path) -> None:
    model = find_model("Qwen3-4B", hub.url)
    assert (model.repository, model.name, model.size, model.licence) == (REPOSITORY, FILE, len(CONTENT), "apache-2.0")
    seen: list[tuple[int, int]] = []

    def progress(there: int, whole: int) -> None:
        seen.append((there, whole))

    file = download(model, tmp_path / "models", progress, hub.url)
    assert file.read_bytes() == CONTENT
    assert seen[-1] == (len(CONTENT), len(CONTENT))
    assert [each.name for each in file.parent.iterdir()] == [FILE]
    assert get(hub, file.parent) == file
    assert hub.ranges == [None]


@pytest.mark.parametrize("knows_ranges", [True, False])
def test_a_cut_connection_continues_where_it_stopped(hub: FakeHub, tmp_path: Path, *, knows_ranges: bool) -> None:
    hub.cuts, hub.knows_ranges = [1000, 2000], knows_ranges
    assert get(hub, tmp_path).read_bytes() == CONTENT
    assert hub.ranges == [None, "bytes=1000-", "bytes=3000-" if knows_ranges else "bytes=2000-"]


def test_an_interrupted_command_continues_the_next_time(hub: FakeHub, tmp_path: Path) -> None:
    hub.cuts = [5000, 0, 0, 0]
    with pytest.raises(NotDownloaded, match="Try the same again to continue"):
        get(hub, tmp_path)
    assert get(hub, tmp_path).read_bytes() == CONTENT
    assert hub.ranges[-1] == "bytes=5000-"


def test_a_damaged_file_is_removed_and_never_used(hub: FakeHub, tmp_path: Path) -> None:
    model = find_model("qwen3-4b", hub.url)
    hub.content = CONTENT[:-1] + b"!"
    with pytest.raises(NotDownloaded, match="its hash is not the hub's"):
        download(model, tmp_path, lambda _there, _whole: None, hub.url)
    assert list(tmp_path.iterdir()) == []


def test_two_commands_do_not_mix_and_a_full_disk_is_said_first(
    hub: FakeHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = find_model("qwen3-4b", hub.url)
    part = tmp_path / f"{FILE}.{model.sha256[:16]}.part"
    with part.open("ab") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        with pytest.raises(NotDownloaded, match="is being downloaded already"):
            get(hub, tmp_path)

    class Usage:
        free = 10

    def disk_usage(_: Path) -> type[Usage]:
        return Usage

    monkeypatch.setattr("palaver.agents.hub.shutil.disk_usage", disk_usage)
    with pytest.raises(NotDownloaded, match="10 bytes free, and 102 kB are needed"):
        get(hub, tmp_path)
    assert hub.ranges == []


def test_what_is_no_model_is_refused_with_what_there_is(hub: FakeHub) -> None:
    for name in ("qwen", "", "a/b/c.safetensors", "../../etc/passwd", "a/b/../c.txt"):
        with pytest.raises(BadArgument, match="OWNER/REPOSITORY/FILE"):
            find_model(name, hub.url)
    hub.paths = ["model-q8_0.gguf", "model-f16.gguf", "big-00001-of-00002.gguf"]
    with pytest.raises(BadArgument, match="no single model file; name one"):
        find_model("owner/name", hub.url)
    with pytest.raises(BadArgument, match="owner/name has no file"):
        find_model("owner/name/other.gguf", hub.url)
    assert find_model("owner/name/model-f16.gguf", hub.url).path == "model-f16.gguf"


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (404, "has no model"),
        (401, "has no model"),
        (403, "needs an account"),
        (429, "no more requests"),
        (500, "status 500"),
    ],
)
def test_a_refusal_of_the_hub_is_explained(hub: FakeHub, status: int, words: str) -> None:
    hub.status = status
    with pytest.raises(NotDownloaded, match=words):
        find_model("qwen3-4b", hub.url)


def test_a_server_that_is_no_hub_is_named(hub: FakeHub) -> None:
    half = [{"rfilename": FILE}]
    cases: tuple[object, ...] = ([], {}, {"siblings": half, "sha": "1"}, {"siblings": 7}, {"siblings": [7]})
    for strange in cases:
        hub.description = strange
        with pytest.raises(NotDownloaded, match="in a form that Palaver does not know"):
            find_model("qwen3-4b", hub.url)
    with pytest.raises(NotDownloaded, match="cannot be reached"):
        find_model("qwen3-4b", "http://127.0.0.1:9")


def test_the_suggestion_fits_into_the_memory() -> None:
    assert memory_of_machine() > 1 << 28
    assert [suggested(size << 30).name for size in (1, 4, 8, 64)] == ["qwen3-0.6b"] * 2 + ["qwen3-4b"] * 2
    assert [each.memory for each in SUGGESTIONS] == sorted((each.memory for each in SUGGESTIONS), reverse=True)
