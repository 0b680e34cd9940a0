"""What is built and shipped: the wheel, the source archive, the container, and what they install."""

import json
import os
import re
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import yaml

from palaver.config.loader import load
from tests.project import supply_chain

ROOT = Path(__file__).parents[2]
_SHIPPED = (".py", ".sql", ".html", ".css", ".js", ".svg", ".png", ".typed")


def built(folder: Path) -> tuple[bytes, bytes]:
    environment = os.environ | {"SOURCE_DATE_EPOCH": "1700000000"}
    command = [sys.executable, "-m", "hatchling", "build", "-d", str(folder)]
    subprocess.run(command, cwd=ROOT, env=environment, check=True, capture_output=True, timeout=120)
    (wheel,), (source,) = folder.glob("*.whl"), folder.glob("*.tar.gz")
    return wheel.read_bytes(), source.read_bytes()


def test_wheel_and_sdist_are_reproducible_and_hold_what_they_need(tmp_path: Path) -> None:
    assert built(tmp_path / "one") == built(tmp_path / "two"), "the same source gives the same bytes"
    (wheel,), (source,) = (tmp_path / "one").glob("*.whl"), (tmp_path / "one").glob("*.tar.gz")
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if not name.startswith("palaver-")}
    files = {path.relative_to(ROOT / "src") for path in (ROOT / "src").rglob("*") if path.is_file()}
    assert names == {str(path) for path in files if path.parent.name != "__pycache__"}
    assert {Path(name).suffix for name in names} <= {*_SHIPPED}
    with tarfile.open(source) as archive:
        inside = {name.partition("/")[2] for name in archive.getnames()}
    assert {"Makefile", "constraints.txt", "deploy/Containerfile", ".ci/run", "tests/conftest.py"} <= inside


def test_the_container_runs_with_the_settings_it_sets(tmp_path: Path) -> None:
    compose = yaml.safe_load((ROOT / "deploy/compose.yaml").read_text())["services"]
    text = (ROOT / "deploy/Containerfile").read_text()
    stage = text.split("\nFROM ")[-1].replace("\\\n", " ")
    words = [word for line in stage.splitlines() if line.startswith("ENV ") for word in line.split()[1:]]
    environment = dict(word.split("=", 1) for word in words)
    config = load(tmp_path, environ=environment)
    assert (config.web.host, config.web.port, str(config.data_dir)) == ("0.0.0.0", 8787, "/data")  # noqa: S104
    assert f"EXPOSE {config.web.port}" in stage
    assert f"127.0.0.1:{config.web.port}/ready" in stage
    given = compose["gateway"]["environment"] | {"PALAVER_STORE": "postgresql://palaver:x@database/palaver"}
    given["PALAVER_WEB__PUBLIC_URL"] = "https://palaver.example.org"
    assert load(tmp_path, environ=environment | given).store.startswith("postgresql:")
    assert (ROOT / "deploy" / compose["gateway"]["build"]["context"] / "pyproject.toml").resolve().exists()


def test_container_and_compose_file_and_workflow_are_linted() -> None:
    """Hadolint reads the container file; the others are held against the published schemas, which the tool carries."""
    tools = Path(sys.executable).parent
    for tool, *arguments in (
        ("hadolint", "deploy/Containerfile"),
        ("check-jsonschema", "--builtin-schema", "vendor.compose-spec", "deploy/compose.yaml"),
        ("check-jsonschema", "--builtin-schema", "vendor.github-workflows", ".github/workflows/ci.yml"),
    ):
        found = subprocess.run([tools / tool, *arguments], cwd=ROOT, check=False, capture_output=True, text=True)
        assert found.returncode == 0, found.stdout + found.stderr


def test_the_compose_file_hands_the_extras_to_the_image() -> None:
    build = yaml.safe_load((ROOT / "deploy/compose.yaml").read_text())["services"]["gateway"]["build"]
    default = re.search(r"^ARG EXTRAS=(.*)$", (ROOT / "deploy/Containerfile").read_text(), re.MULTILINE)
    assert default is not None
    assert build["args"] == {"EXTRAS": f"${{EXTRAS:-{default[1]}}}"}


def test_every_dependency_is_on_the_page_and_its_licence_allows_what_ours_does() -> None:
    lines = set(supply_chain.PAGE.read_text().splitlines())
    for each in supply_chain.packages():
        assert supply_chain.ALLOWED.search(each.licence), each
        start = f"| {each.name} | {each.version} | {each.licence} |"
        assert any(line.startswith(start) for line in lines), f"run python -m tests.project.supply_chain: {start}"
    bill = json.loads(supply_chain.bill_of_materials())
    assert {part["name"] for part in bill["components"]} >= {"pydantic", "starlette", "asyncpg"}
