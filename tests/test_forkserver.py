"""A forked process cannot tell that it is none that Python has just started, and neither can its parent."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.forkserver import ROOT, start_module

FACTS = """
import json, os, signal, sys, time
streams = [sys.stdin, sys.stdout, sys.stderr]
print(json.dumps({
    "name": __name__,
    "argv": [os.path.basename(sys.argv[0]), *sys.argv[1:]],
    "path": sys.path[0],
    "cwd": os.getcwd(),
    "environ": dict(os.environ),
    "timezone": time.timezone,
    "leads": [os.getsid(0) == os.getpid(), os.getpgid(0) == os.getpid()],
    "streams": [[each.encoding, each.errors, each.line_buffering, each.isatty(), each.fileno()] for each in streams],
    "kept": [each is original for each, original in zip(streams, [sys.__stdin__, sys.__stdout__, sys.__stderr__])],
    "signals": {each.name: str(signal.getsignal(each)).split(" at ")[0] for each in signal.Signals},
    "files": sorted(int(each) for each in os.listdir("/dev/fd") if os.path.exists(f"/dev/fd/{each}")),
    "mask": os.umask(0o22),
}))
print(sys.stdin.read(), file=sys.stderr)
sys.exit(7)
"""


def start_anew(module: str, *args: str, **options: Any) -> "subprocess.Popen[str]":
    return subprocess.Popen([sys.executable, "-m", module, *args], text=True, **options)


@pytest.mark.parametrize("new_session", [False, True])
def test_it_finds_everything_as_a_new_interpreter_does(tmp_path: Path, *, new_session: bool) -> None:
    (tmp_path / "facts.py").write_text(FACTS)
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    environment = {**os.environ, "TZ": "Asia/Tokyo"}
    ended: list[tuple[Any, str, int]] = []
    for start in (start_module, start_anew):
        process = start("facts", "a", "ü b", cwd=tmp_path, env=environment, start_new_session=new_session, **pipes)
        out, complaints = process.communicate("said")
        ended.append((json.loads(out), complaints, process.returncode))
    assert ended[0] == ended[1]
    found, said, code = ended[0]
    assert (found["timezone"], found["name"], said, code) == (-9 * 3600, "__main__", "said\n", 7)


@pytest.mark.parametrize(
    ("code", "ends"),
    [
        ("pass", 0),
        ("raise SystemExit('no')", 1),
        ("1 / 0", 1),
        ("raise KeyboardInterrupt", -signal.SIGINT),
        ("import os; os._exit(5)", 5),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", -signal.SIGKILL),
    ],
)
def test_its_end_is_reported(tmp_path: Path, code: str, ends: int) -> None:
    (tmp_path / "ending.py").write_text(code)
    ended = start_module("ending", cwd=tmp_path, stderr=subprocess.PIPE)
    complaints = ended.communicate()[1]
    assert ended.returncode == ended.poll() == ends
    assert ("Traceback" in complaints) == ("1 / 0" in code or "Keyboard" in code)


ENDING = """
import atexit, sys, threading
sys.stdout.reconfigure(write_through=False, line_buffering=False)
atexit.register(print, "as registered")
main = threading.current_thread()
threading.Thread(target=lambda: (main.join(), print("in a thread"))).start()
print("in the module")
sys.exit(3)
"""


def test_what_waits_for_its_end_is_done_then_and_what_nobody_reads_is_said(tmp_path: Path) -> None:
    (tmp_path / "ending.py").write_text(ENDING)
    unread, closed = os.pipe()
    os.close(unread)
    ended: list[tuple[object, ...]] = []
    for start in (start_module, start_anew):
        read = start("ending", cwd=tmp_path, stdout=subprocess.PIPE)
        unheard = start("ending", cwd=tmp_path, stdout=closed, stderr=subprocess.PIPE)
        complaint = unheard.communicate()[1].splitlines()[-1]
        ended.append((read.communicate()[0], read.returncode, complaint, unheard.returncode))
    os.close(closed)
    assert ended[0] == ended[1]
    assert ended[0][:2] == ("in the module\nin a thread\nas registered\n", 3)
    assert ended[0][2:] == ("BrokenPipeError: [Errno 32] Broken pipe", 120)


def test_it_can_be_waited_for_and_killed(tmp_path: Path) -> None:
    (tmp_path / "waiting.py").write_text("print(flush=True); import time; time.sleep(600)")
    process = start_module("waiting", cwd=tmp_path, stdout=subprocess.PIPE)
    assert process.stdout
    process.stdout.readline()
    assert process.poll() is None
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(0.01)
    os.kill(process.pid, signal.SIGTERM)
    process.communicate()
    assert process.returncode == -signal.SIGTERM


def test_variables_of_the_interpreter_are_obeyed(tmp_path: Path) -> None:
    (tmp_path / "encoding.py").write_text("import sys; print(sys.stdout.encoding)")
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    said, _ = start_module("encoding", cwd=tmp_path, env=environment, stdout=subprocess.PIPE).communicate()
    assert said == "ascii\n"


def test_the_server_ends_with_the_process_that_started_it() -> None:
    program = "from tests.forkserver import start_module; start_module('this', stdout=-3).wait()"
    ended = subprocess.run(
        [sys.executable, "-W", "always::ResourceWarning", "-c", program], cwd=ROOT, capture_output=True, check=True
    )
    assert ended.stderr == b""
