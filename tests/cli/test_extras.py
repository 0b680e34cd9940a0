"""Each extra alone, from the built wheel, in an environment that has only what the extra installs: Palaver works."""

import json
import os
import shutil
import subprocess
import venv
import zipfile
from collections.abc import Iterable, Iterator
from functools import cache
from importlib.metadata import Distribution, PathDistribution, distribution
from pathlib import Path

import pytest
from hatchling.builders.wheel import WheelBuilder
from packaging.requirements import Requirement

from tests.ports import free_port
from tests.project.test_dependencies import EXTRAS

ROOT = Path(__file__).parents[2]
PATIENCE = 500.0


def built(folder: Path) -> PathDistribution:
    """The wheel of this checkout, unpacked: its package is the same as ours, which is compiled already."""
    (wheel,) = WheelBuilder(str(ROOT)).build(directory=str(folder), versions=["standard"])
    zipfile.ZipFile(wheel).extractall(folder / "wheel")
    (facts,) = (folder / "wheel").glob("*.dist-info")
    package, ours = folder / "wheel/palaver", ROOT / "src/palaver"
    assert contents(package) == contents(ours)
    shutil.rmtree(package)
    package.symlink_to(ours)
    return PathDistribution(facts)


def contents(package: Path) -> dict[Path, bytes]:
    files = (path for path in package.rglob("*") if path.is_file() and path.parent.name != "__pycache__")
    return {path.relative_to(package): path.read_bytes() for path in files}


@cache
def installed(name: str) -> Distribution:
    return distribution(name)


@cache
def lines_of(wanted: Distribution) -> tuple[str, ...]:
    return tuple(wanted.requires or ())


@cache
def needs(line: str, extra: str) -> Requirement | None:
    """What a line of the metadata requires here, with this extra."""
    need = Requirement(line)
    return need if need.marker is None or need.marker.evaluate({"extra": extra}) else None


def required(wanted: Distribution, extras: frozenset[str], seen: set[tuple[str, str]]) -> Iterator[Distribution]:
    """The distribution and all that it needs with these extras, found as pip finds it: in the metadata."""
    yield wanted
    for line in lines_of(wanted):
        for extra in {"", *extras}:
            if (line, extra) not in seen and (need := needs(line, extra)):
                seen.add((line, extra))
                yield from required(installed(need.name), frozenset(need.extras), seen)


@cache
def places(wanted: Distribution) -> frozenset[Path]:
    """The files and folders of a distribution, relative to where it is: of a name space only its own part."""
    root = Path(str(wanted.locate_file("")))
    parts = {file.parts[: min(2, len(file.parts) - 1)] or file.parts for file in wanted.files or ()}
    tops = {top for top, *_ in parts if top not in {"..", "__pycache__"}}
    shared = {top for top in tops if "." not in top and not (root / top / "__init__.py").exists()}
    return frozenset(Path(*(each if each[0] in shared else each[:1])) for each in parts if each[0] in tops)


def environment(folder: Path, has: list[Distribution]) -> Path:
    """A virtual environment with these distributions and nothing else; returns its interpreter."""
    venv.create(folder, symlinks=True)
    (site,) = folder.glob("lib/python*/site-packages")
    for each in has:
        for place in places(each):
            (site / place).parent.mkdir(exist_ok=True)
            if not (site / place).exists():
                (site / place).symlink_to(Path(str(each.locate_file(""))) / place)
    return folder / "bin/python"


def modules(extras: frozenset[str]) -> list[str]:
    """What of Palaver needs these extras, or can do with one of them."""
    both = {"web/mcp"}
    found = [
        path
        for path, names in EXTRAS.items()
        if (extras.issuperset(names) if path in both else extras.intersection(names))
    ]
    files = [file for path in found for file in (ROOT / "src/palaver" / path).rglob("*.py")]
    files += [ROOT / "src/palaver" / path for path in found if path.endswith(".py")]
    spared = [ROOT / "src/palaver" / path for path in EXTRAS.keys() - set(found)]
    return [
        str(file.relative_to(ROOT / "src").with_suffix("")).replace("/", ".").removesuffix(".__init__")
        for file in files
        if not any(file.is_relative_to(each) for each in spared)
    ]


def clean_environment(**more: str) -> dict[str, str]:
    return {name: text for name, text in os.environ.items() if not name.startswith(("PALAVER", "PYTHON"))} | more


def converse(folder: Path, extras: frozenset[str], palaver: Distribution) -> str:
    """What goes wrong when a conversation is held by a new process."""
    folder.mkdir()
    python = environment(folder / "venv", list(required(palaver, extras, set())))
    (folder / "config.yaml").write_text(f"web: {{port: {free_port()}}}\n")
    chat = subprocess.run(
        [str(python), "-m", "palaver", "chat", "--window", "-m", "hi"],
        cwd=folder,
        env=clean_environment(PALAVER_HOME=str(folder / "home"), PALAVER_CONFIG=str(folder / "config.yaml")),
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    answered = chat.stdout.startswith("Hello! I am Palaver's guide")
    link = "/login#" if "web" in extras else "no web interface: "
    is_well = not chat.returncode and answered and link in chat.stderr
    return "" if is_well else f"{sorted(extras)}: {chat.stdout}{chat.stderr}"


IMPORTING = """
import importlib, json, os, sys
import palaver.cli.up, palaver.cli.doctor
from palaver.agents.model.options import ModelOptions, make_model_agent
from palaver.model.errors import InvalidInput

def problem(model):
    try:
        make_model_agent(ModelOptions(model=model, key="k"))
    except InvalidInput as error:
        return str(error)

for site, modules, models in json.load(sys.stdin):
    if os.fork() == 0:
        sys.path.append(site)
        for module in modules:
            importlib.import_module(module)
        for model, said in models.items():
            assert said in (found := problem(model) or "made"), f"{model}: {found}"
        os._exit(0)  # to take everything down again takes as long
    os.wait()
"""
"""Without any extra everything of the core is imported once; what an extra adds is imported in a fork for each."""


_MODELS = {f"{each}:x": each for each in ("anthropic", "google", "openai")}
"""A model of each provider, with the extra that it needs."""


def made_models(extras: frozenset[str]) -> dict[str, str]:
    """What is said of each model with these extras: that it is made, or what its extra would install."""
    ours = extras.intersection(_MODELS.values())
    said = {model: "made" if extra in ours else f"pydantic-ai-slim[{extra}]" for model, extra in _MODELS.items()}
    return said if ours else {}


def import_all(folder: Path, chosen: Iterable[frozenset[str]], palaver: Distribution) -> str:
    """What goes wrong when everything that the extras are for is imported, with nothing else installed."""
    python = environment(folder / "venv", list(required(palaver, frozenset(), set())))
    jobs: list[tuple[str, list[str], dict[str, str]]] = []
    for extras in chosen:
        with_extras = environment(folder / "+".join(sorted(extras)), list(required(palaver, extras, set())))
        (site,) = with_extras.parents[1].glob("lib/python*/site-packages")
        jobs.append((str(site), modules(extras), made_models(extras)))
    done = subprocess.run(
        [str(python), "-c", IMPORTING],
        input=json.dumps(jobs),
        cwd=folder,
        env=clean_environment(),
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    return done.stderr


def extras_by_need(palaver: Distribution) -> dict[frozenset[str], frozenset[str]]:
    """All extras, and none. Those that need the same distributions are tried together: each alone would be the same."""
    found: dict[frozenset[str], frozenset[str]] = {}
    for extras in (frozenset[str](), *(frozenset({name}) for name in palaver.metadata.get_all("Provides-Extra") or [])):
        need = frozenset(each.name for each in required(palaver, extras, set()))
        found[need] = found.get(need, frozenset()) | extras
    return found


@pytest.mark.needs("libgomp.so.1")
@pytest.mark.timeout(600)
def test_each_extra_alone_is_enough(tmp_path: Path) -> None:
    palaver = built(tmp_path)
    chosen = [*filter(None, extras_by_need(palaver).values()), frozenset({"mcp", "web"})]
    assert import_all(tmp_path, chosen, palaver) == ""
    for extras in (frozenset[str](), *(each for each in chosen if "web" in each)):
        assert converse(tmp_path / ("+".join(["talk", *sorted(extras)])), extras, palaver) == ""
