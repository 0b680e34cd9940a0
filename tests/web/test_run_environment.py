"""The environment of `make run`: every provider and every platform opens there, and what is missing is offered."""

import asyncio
import fcntl
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest

from palaver.agents.model.options import model_extra
from palaver.model.providers import PROVIDERS
from palaver.platforms.plugins import offered_platforms
from tests.cli.test_extras import built, clean_environment, environment, installed, required
from tests.gateway.test_installer import make_wheel
from tests.ports import free_port

ROOT = Path(__file__).parents[2]
_CSRF = re.compile(r'name="csrf" content="([0-9a-f]+)"')
PATIENCE = 120.0


def run_extras() -> frozenset[str]:
    found = re.search(r"^RUN_EXTRAS := \[(.*)\]$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert found
    return frozenset(found[1].split(","))


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An interpreter that has what `make run` installs, and pip."""
    folder = tmp_path_factory.mktemp("run")
    palaver = built(folder)
    return environment(folder / "venv", [*required(palaver, run_extras(), set()), installed("pip")])


@asynccontextmanager
async def serving(python: Path, folder: Path, **more: str) -> AsyncGenerator[httpx.AsyncClient]:
    """`palaver up` in that environment, and its owner's browser as far as requests go."""
    url = f"http://127.0.0.1:{(port := free_port())}"
    file = folder / "config.yaml"
    file.write_text(f"web: {{port: {port}}}\n")
    variables = clean_environment(PALAVER_HOME=str(folder / "home"), PALAVER_CONFIG=str(file), **more)
    with (folder / "log").open("w") as log:
        gateway = await asyncio.create_subprocess_exec(
            str(python), "-m", "palaver", "up", cwd=folder, env=variables, stdout=log, stderr=log
        )
        try:
            async with asyncio.timeout(PATIENCE):
                while not (links := re.findall(r"/login#(\S+)", (folder / "log").read_text())):
                    assert gateway.returncode is None, (folder / "log").read_text()
                    await asyncio.sleep(0.05)
            async with httpx.AsyncClient(timeout=PATIENCE, base_url=url, headers={"accept": "text/html"}) as client:
                assert (await client.post("/login", data={"code": links[0]})).status_code == 303
                found = _CSRF.search((await client.get("/", follow_redirects=True)).text)
                assert found
                client.headers["x-csrf-token"] = found[1]
                yield client
        finally:
            if gateway.returncode is None:
                gateway.terminate()
                await gateway.wait()


def test_two_at_once_wait_and_what_stops_them_is_one_sentence(python: Path, tmp_path: Path) -> None:
    folder = python.parents[1]
    for name in ("pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, tmp_path)
    nobody = f"http://127.0.0.1:{free_port()}/simple"
    variables = clean_environment(PATH="/", PIP_INDEX_URL=nobody, PIP_RETRIES="1", PIP_CONFIG_FILE=os.devnull)
    command = [sys.executable, "-IS", ROOT / "deploy/environment.py", folder, "[web]"]
    making: list[subprocess.Popen[str]] = []
    with (folder / ".make-lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for _ in range(2):
            making.append(subprocess.Popen(command, cwd=tmp_path, env=variables, stderr=subprocess.PIPE, text=True))
            assert "Another make is setting up this environment" in (making[-1].stderr or sys.stdin).readline()
        making[0].send_signal(signal.SIGINT)
        assert making[0].communicate(timeout=PATIENCE)[1].strip() == "Stopped. make run continues where it was."
    why = making[1].communicate(timeout=PATIENCE)[1].splitlines()[-1]
    assert why.startswith("No package index can be reached. ")
    assert "; pip said: " in why
    assert [each.returncode for each in making] == [130, 1]


BACKEND = """
import zipfile

INFO = "Metadata-Version: 2.1\\nName: small\\nVersion: 1\\n"


def build_editable(folder, config_settings=None, metadata_directory=None):
    name = "small-1-py3-none-any.whl"
    files = {"METADATA": INFO, "WHEEL": "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n"}
    with zipfile.ZipFile(f"{folder}/{name}", "w") as wheel:
        for file, content in {**files, "RECORD": ""}.items():
            wheel.writestr(f"small-1.dist-info/{file}", content)
    return name
"""


def test_an_environment_is_made_once_with_uv(tmp_path: Path) -> None:
    (tmp_path / "constraints.txt").touch()
    (tmp_path / "backend.py").write_text(BACKEND)
    building = '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
    (tmp_path / "pyproject.toml").write_text(f'{building}[project]\nname = "small"\nversion = "1"\n')
    uv = shutil.which("uv", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    assert uv
    variables = clean_environment(PATH=str(Path(uv).parent), UV_OFFLINE="1", UV_CACHE_DIR=str(tmp_path / "cache"))
    command = [sys.executable, "-IS", str(ROOT / "deploy/environment.py"), str(tmp_path / "venv"), ""]
    for installs in (1, 0):
        made = subprocess.run(
            command, cwd=tmp_path, env=variables, capture_output=True, text=True, check=True, timeout=PATIENCE
        )
        assert made.stderr.count("Step 2 of 2") == made.stderr.count("Installed (") == installs, made.stderr
        assert "pip does" not in made.stderr
    assert list((tmp_path / "venv").glob("lib/python*/site-packages/small-1.dist-info"))


async def test_every_provider_and_every_platform_opens(python: Path, tmp_path: Path) -> None:
    async with serving(python, tmp_path) as client:
        tiles = re.findall(r'href="(/settings/accounts/[a-z]+)"', (await client.get("/settings/accounts")).text)
        assert tiles == [f"/settings/accounts/{name}" for name, _ in offered_platforms()]
        offered: list[str] = []
        for tile in tiles:
            page = await client.get(tile)
            assert page.status_code == 200, (tile, page.text)
            assert "ModuleNotFoundError" not in page.text
            assert ("Install and continue" in page.text) != ("Test and save" in page.text), tile
            if "Install and continue" in page.text:
                offered.append(tile.rpartition("/")[2])
                assert f"{python} -m pip install " in page.text
        assert {"telegram", "discord", "slack"} <= set(offered)
        assert "irc" not in offered
        page = (await client.get("/settings/model")).text
        assert all(f'<option value="{name}"' in page for name in PROVIDERS)


BUILDING = """
import sys
from palaver.config.agent_plan import AgentPlan
from palaver.config.agent_trial import trial_agent
from palaver.gateway.agents import build_agent

for name in sys.argv[1:]:
    build_agent(trial_agent(AgentPlan(agent="model", model=name, key="k")))
build_agent(trial_agent(AgentPlan(agent="model", model="openai:some", base_url="http://127.0.0.1:9/v1")))
"""


def test_the_client_of_every_provider_is_there(python: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [str(python), "-c", BUILDING, *(f"{name}:{each.default_model}" for name, each in PROVIDERS.items())],
        cwd=tmp_path,
        env=clean_environment(PALAVER_HOME=str(tmp_path)),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stderr == ""


async def test_what_a_platform_needs_is_installed_from_its_page(python: Path, tmp_path: Path) -> None:
    make_wheel(tmp_path / "wheels")
    (site,) = python.parents[1].glob("lib/python*/site-packages")
    plugin = site / "loft-1.0.dist-info"
    plugin.mkdir()
    needs = "Provides-Extra: loft\nRequires-Dist: tinyclient; extra == 'loft'\n"
    (plugin / "METADATA").write_text(f"Metadata-Version: 2.1\nName: loft\nVersion: 1.0\n{needs}")
    (plugin / "entry_points.txt").write_text("[palaver.platforms]\nloft = loft:LOFT\n")
    (site / "loft.py").write_text(
        "from palaver.protocols import Platform\n\n"
        "LOFT = Platform(name='loft', title='Loft', adapter='loft_adapter:Loft', extras=('loft',))\n"
    )
    (site / "loft_adapter.py").write_text(
        "import tinyclient\nfrom loft import LOFT\nfrom pydantic import BaseModel\n\n"
        "class Options(BaseModel):\n    ring: str\n\n"
        "class Loft:\n    platform = LOFT\n    options = Options\n"
    )
    index = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(tmp_path / "wheels"), "PIP_CONFIG_FILE": os.devnull}
    async with serving(python, tmp_path, **index) as client:
        page = await client.get("/settings/accounts/loft")
        assert "needs tinyclient, which is not installed." in page.text
        assert "Install and continue" in page.text
        (tmp_path / "wheels").rename(tmp_path / "away")
        failed = await client.post("/settings/accounts/loft/install")
        assert failed.headers["x-goto"] == "/settings/accounts/loft"
        assert "tinyclient could not be installed: " in (await client.get("/settings/accounts/loft")).text
        (tmp_path / "away").rename(tmp_path / "wheels")
        assert (await client.post("/settings/accounts/loft/install")).status_code == 200
        page = (await client.get("/settings/accounts/loft")).text
        assert "Install and continue" not in page
        assert 'name="ring"' in page
        assert "Installed." not in page
        live = await client.get("/settings/accounts/loft", headers={"x-fragment": "installing"})
        assert 'Installed. <a href="/settings/accounts/loft">Continue</a>' in live.text
        without = {"x-csrf-token": ""}
        assert (await client.post("/settings/accounts/loft/install", headers=without)).status_code == 403


def test_without_ensurepip_make_names_the_package(tmp_path: Path) -> None:
    (tmp_path / "ensurepip.py").write_text("raise ImportError")
    made = subprocess.run(
        ["make", f"PYTHON={sys.executable}", f"VENV={tmp_path}/venv", f"{tmp_path}/venv/.run"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert made.returncode == 2
    assert "sudo apt install python3-venv" in made.stderr
    assert not (tmp_path / "venv" / "bin").exists()


def test_the_models_of_every_provider_need_what_make_run_installs() -> None:
    assert {model_extra(f"{name}:x") for name in PROVIDERS} <= run_extras()
