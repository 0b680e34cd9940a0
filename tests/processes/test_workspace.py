"""Files of the working directory: everything inside can be reached, and nothing outside."""

import os
import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from palaver.processes import workspace
from palaver.processes.backends.base import Backend, LocalBackend, Order
from palaver.processes.launcher import Launch
from palaver.processes.workspace import Workspace, WorkspaceError, perform
from palaver.protocols.tools import Toolset
from palaver.store.conversations.blob_store import BlobStore
from palaver.store.store import Store
from palaver.tools.workspace import WorkspaceTools
from tests.engine.gateway import running
from tests.processes.sshd import sshd
from tests.processes.test_ssh import backend
from tests.processes.workshop import OWNERS, use

SECRET = "the secret outside"  # noqa: S105 - no password


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "work"
    (root / "src").mkdir(parents=True)
    (root / "src/main.py").write_text("one\ntwo\nthree\n")
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/secret").write_text(SECRET)
    (tmp_path / "work-too").write_text(SECRET)
    return root


def test_files_are_read_written_and_changed(root: Path) -> None:
    work = Workspace(str(root))
    assert work.read("src/main.py") == "(src/main.py, lines 1 to 3, 14 bytes in all)\none\ntwo\nthree"
    assert work.read(f"{root}/src/main.py", 2, 1).endswith("continue at line 3)\ntwo")
    assert work.write("new/deep/file.txt", "hello") == "Created new/deep/file.txt, 5 bytes."
    assert work.write("new/deep/file.txt", "x") == "Replaced new/deep/file.txt, 1 bytes."
    assert work.patch("src/main.py", "two", "2") == "Changed src/main.py in 1 place, from line 2 on."
    assert (root / "src/main.py").read_text() == "one\n2\nthree\n"
    for old, told in (("zwei", "does not occur"), ("e", "occurs 3 times"), ("", "must not be empty")):
        with pytest.raises(WorkspaceError, match=told):
            work.patch("src/main.py", old, "x")
    work.patch("src/main.py", "e", "E", everywhere=True)
    assert (root / "src/main.py").read_text() == "onE\n2\nthrEE\n"
    assert work.list() == "new/\nsrc/"
    assert work.list(deep=True) == "new/\nnew/deep/\nnew/deep/file.txt (1 bytes)\nsrc/\nsrc/main.py (12 bytes)"
    assert work.search("thr") == "src/main.py:3: thrEE"
    assert work.search("THREE", ignores_case=True) == "src/main.py:3: thrEE"
    assert work.search("thr", names="*.txt") == "Nothing was found in 1 files."
    (root / "src/main.py").chmod(0o750)
    work.write("src/main.py", "run")
    assert (root / "src/main.py").stat().st_mode & 0o777 == 0o750
    assert not list(root.rglob("*.unfinished"))


def test_nothing_outside_is_reached(root: Path) -> None:
    work, outside = Workspace(str(root)), root.parent / "outside"
    (root / "link").symlink_to(outside / "secret")
    (root / "folder").symlink_to(outside)
    (root / "up").symlink_to("../outside/secret")
    (root / "loop").symlink_to("loop")
    (root / "src/inner").symlink_to("../src/../src/main.py")
    (root / "absolute").symlink_to(root / "src")
    paths = (
        "../outside/secret",
        "src/../../outside/secret",
        str(outside / "secret"),
        f"{root}/../outside/secret",
        f"{root}-too",
        "link",
        "folder/secret",
        "up",
        "loop",
        "/etc/passwd",
        "/proc/self/environ",
        "src/main.py/x",
        "src\0/main.py",
    )
    for path in paths:
        for action in (
            lambda path=path: work.read(path),
            lambda path=path: work.write(path, "x"),
            lambda path=path: work.patch(path, "secret", "x"),
            lambda path=path: work.list(path),
            lambda path=path: work.search("secret", path),
        ):
            with pytest.raises((WorkspaceError, OSError)):
                action()
    assert (outside / "secret").read_text() == SECRET
    assert sorted(each.name for each in outside.iterdir()) == ["secret"]
    # Links that stay inside work.
    assert "one" in work.read("src/inner")
    assert "one" in work.read("absolute/main.py")
    assert SECRET not in work.search("secret") + work.list(deep=True)
    assert work.search("one") == "src/main.py:1: one"


def test_a_folder_that_becomes_a_link_meanwhile_leads_nowhere(root: Path) -> None:
    """Others exchange a folder and a link all the time: what is read is never what is outside."""
    real, link, over = root / "real", root / "hidden", threading.Event()
    real.mkdir()
    (real / "secret").write_text("inside")
    link.symlink_to(root.parent / "outside")

    def exchange() -> None:
        while not over.is_set():
            for one, other in ((real, root / "away"), (link, real), (real, link), (root / "away", real)):
                one.rename(other)

    thread = threading.Thread(target=exchange)
    thread.start()
    try:
        work, found = Workspace(str(root)), set[str]()
        for _ in range(2_000):
            try:
                found.add(work.read("real/secret"))
                work.patch("real/secret", "inside", "inside")
            except (WorkspaceError, OSError):
                continue
    finally:
        over.set()
        thread.join()
    assert (root.parent / "outside/secret").read_text() == SECRET
    assert not any(SECRET in each for each in found)


def test_odd_files_do_no_harm(root: Path) -> None:
    work = Workspace(str(root))
    (root / "binary").write_bytes(b"\x7fELF\0\0")
    os.mkfifo(root / "fifo")
    (root / "latin").write_bytes("grün".encode("latin-1"))
    (root / "long").write_text("x" * 5_000 + "\nend")
    with (root / "huge").open("wb") as huge:
        huge.truncate(workspace.MAX_SCAN_BYTES * 2)
    assert work.read("binary") == "(binary is binary: 6 bytes)"
    for path in ("fifo", "src", "missing"):
        with pytest.raises(WorkspaceError):
            work.read(path)
    assert "gr\ufffdn" in work.read("latin")
    with pytest.raises(WorkspaceError, match="not text"):
        work.patch("latin", "gr", "x")
    assert "(5000 characters)\nend" in work.read("long")
    assert "is binary" in work.read("huge")
    with pytest.raises(WorkspaceError, match="more than"):
        work.patch("huge", "a", "b")
    with pytest.raises(WorkspaceError, match="at most"):
        work.write("big", "x" * (workspace.MAX_WRITE_BYTES + 1))
    for path in ("src", ".", "fifo"):
        with pytest.raises(WorkspaceError, match="no ordinary file"):
            work.write(path, "x")
    for number in range(workspace.MAX_ENTRIES + 5):
        (root / "src" / f"{number:04}").write_text("needle\n")
    assert work.list("src").endswith(f"(only the first {workspace.MAX_ENTRIES})")
    assert work.search("needle").endswith("(there may be more: search in a smaller folder)")


CALLS: Sequence[tuple[str, dict[str, object], str]] = (
    ("file_list", {"deep": True}, "file_list: "),
    ("file_search", {"text": "two"}, "Nothing was found"),
    ("file_write", {"path": "a/b", "text": 'it\'s "one"\n'}, "a/b, 11 bytes."),
    ("file_patch", {"path": "a/b", "old": "one", "new": "two"}, "Changed a/b"),
    ("file_read", {"path": "../sshd/config"}, "is outside the working directory."),
)


@pytest.mark.needs("ssh", "sshd")
async def test_the_agent_works_with_files_here_and_on_another_machine(tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    async with sshd(tmp_path / "sshd") as server:
        places: tuple[tuple[Backend, int], ...] = ((LocalBackend(folder=work), 0), (backend(server, work), 2))
        for place, first in places:

            def toolsets(_: Store, place: Backend = place) -> Sequence[Toolset]:
                return (WorkspaceTools(place),)

            async with running(tmp_path / f"{first}.db", toolsets=toolsets, grants=OWNERS) as here:
                alice = here.world.person("alice")
                chat = here.world.dm(alice)
                for tool, arguments, told in CALLS[first:]:
                    await chat.say(alice, use(tool, **arguments))
                    await chat.hears(told)


def test_deep_and_wide_folders_have_limits(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = os.open(root, os.O_RDONLY)
    for _ in range(300):
        os.mkdir("d", dir_fd=folder)
        inner = os.open("d", os.O_RDONLY, dir_fd=folder)
        os.close(folder)
        folder = inner
    os.close(folder)
    monkeypatch.setattr(workspace, "MAX_SCANNED", 50)
    for number in range(60):
        (root / "src" / f"{number:04}").touch()
    assert perform(str(root), "list", {"deep": True}).endswith("(there are more: list a smaller folder)")
    assert "(there may be more" in perform(str(root), "search", {"text": "x"})
    assert "(there are more" in perform(str(root), "list", {"path": "src"})
    # No file has such a name, and still it takes no longer than allowed.
    monkeypatch.setattr(workspace, "SEARCH_SECONDS", -1)
    assert perform(str(root), "search", {"text": "x", "names": "*.no"}).startswith("Nothing was found in 0 files.\n(")
    for action, arguments in (
        ("write", {"path": "/".join(["e"] * 300), "text": "x"}),
        ("write", {"path": "a", "text": "\ud800"}),
        ("patch", {"path": "src/main.py", "old": "one", "new": "\ud800"}),
        ("read", {"path": "\ud800"}),
        ("list", {"path": "../\ud800"}),
    ):
        with pytest.raises(WorkspaceError) as refused:
            perform(str(root), action, arguments)
        str(refused.value).encode()
    assert sorted(each.name for each in root.iterdir() if each.name != "e") == ["d", "src"]


async def test_what_another_machine_answers_is_bounded_and_checked(tmp_path: Path) -> None:
    for answer in ("yes", "echo []", "echo '{}'", "echo '{\"text\": 5}'", "echo '\"text\"'", "true"):

        class Elsewhere(LocalBackend):
            @property
            def files(self) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
                return None

            def launch(self, order: Order, answer: str = answer) -> Launch:
                return super().launch(replace(order, command=f"cat >/dev/null; {answer}"))

        def toolsets(_: Store, place: Backend = Elsewhere(folder=tmp_path)) -> Sequence[Toolset]:  # noqa: B008
            return (WorkspaceTools(place),)

        async with running(tmp_path / f"{len(answer)}{answer[:4]}.db", toolsets=toolsets, grants=OWNERS) as here:
            alice = here.world.person("alice")
            chat = here.world.dm(alice)
            await chat.say(alice, use("file_list"))
            await chat.hears("The machine with the files")


@pytest.mark.needs("ssh", "sshd")
async def test_a_file_of_the_working_directory_is_sent_and_none_from_outside(tmp_path: Path, root: Path) -> None:
    picture = b"\x89PNG\r\n\x1a\n\0\1"
    (root / "plot.png").write_bytes(picture)
    (root / "out").symlink_to("../outside/secret")
    (root / "abs").symlink_to("/proc/self/environ")
    (root / "inside").symlink_to("plot.png")
    os.mkfifo(root / "pipe")
    with (root / "large").open("wb") as large:
        large.truncate(workspace.MAX_LOADED_BYTES + 1)
    async with sshd(tmp_path / "sshd") as server:
        places: tuple[Backend, ...] = (LocalBackend(folder=root), backend(server, root))
        for number, place in enumerate(places):

            def toolsets(_: Store, place: Backend = place) -> Sequence[Toolset]:
                return (WorkspaceTools(place),)

            shelf = BlobStore(tmp_path / "files")
            async with running(tmp_path / f"{number}.db", toolsets=toolsets, grants=OWNERS, shelf=shelf) as here:
                alice = here.world.person("alice")
                chat = here.world.dm(alice)
                refused = (
                    "../outside/secret",
                    "out",
                    "abs",
                    "/etc/passwd",
                    "/proc/self/environ",
                    "pipe",
                    "src",
                    "large",
                )
                for path in refused:
                    await chat.say(alice, use("file_send", path=path))
                await chat.hears("file_send: ", times=len(refused))
                for path in ("plot.png", "inside"):
                    await chat.say(alice, use("file_send", path=path))
                await chat.hears("The file is queued.", times=2)
                await here.settled()
                sent = [file for message in chat.shown for file in message.files]
                assert [(file.name, file.media_type, file.content) for file in sent] == [
                    ("plot.png", "image/png", picture),
                    ("inside", "image/png", picture),
                ]
