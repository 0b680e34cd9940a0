"""Every third-party import of the package is declared, in the extra that installs it."""

import ast
import os
import re
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from importlib.metadata import distributions, packages_distributions
from pathlib import Path
from zipfile import ZipFile

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from palaver.platforms.plugins import ENTRY_POINT_GROUP, PLATFORMS
from tests.project import audit
from tests.source import SOURCE, modules, nodes, parsed

_ROOT = Path(__file__).parents[2]
EXTRAS = {
    "agents/http.py": ("http",),
    "agents/llama.py": ("local",),
    "agents/voice_http.py": ("http",),
    "agents/model/openai_client.py": ("openai", "models"),
    "agents/model": ("anthropic", "google", "openai", "models"),
    "config/encryption.py": ("keyring",),
    "db/postgres.py": ("postgres",),
    "db/postgres_batch.py": ("postgres",),
    "db/postgres_pool.py": ("postgres",),
    "db/postgres_servers.py": ("postgres",),
    "db/postgres_statements.py": ("postgres",),
    "gateway/prometheus.py": ("metrics",),
    "gateway/tracing.py": ("otel",),
    "store/encryption": ("encryption",),
    "platforms/matrix/verification.py": ("matrix-encryption",),
    "platforms/relayed": ("relay",),
    "platforms/webhook/send.py": ("http",),
    "store/search/postgres_index.py": ("postgres",),
    "testkit": ("testkit",),
    "tools/mcp.py": ("mcp",),
    "tools/mcp_login.py": ("mcp",),
    "tools/mcp_results.py": ("mcp",),
    "tools/mcp_transport.py": ("mcp",),
    "web/mcp": ("web", "mcp"),
    "web/relay.py": ("relay",),
    "web": ("web",),
}
"""Which extras install what a file or folder imports: each of them alone, except for web/mcp, which needs both."""
_NAMESPACES = {
    "opentelemetry.exporter": "opentelemetry-exporter-otlp-proto-http",
    "opentelemetry.sdk": "opentelemetry-sdk",
    "opentelemetry": "opentelemetry-api",
}
"""Distributions that share a package, by the longest name first."""
_NOT_IMPORTED = {"tzdata", "python-multipart", "pytest-asyncio", "sqlcipher3", "uvloop"}
"""Used by others on our behalf: zoneinfo, starlette's forms, the conformance suite; and what is imported by name."""


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _requirements() -> dict[str, list[Requirement]]:
    project = tomllib.loads((_ROOT / "pyproject.toml").read_text())["project"]
    groups = {"": project["dependencies"], **project["optional-dependencies"]}
    return {extra: [Requirement(text) for text in texts] for extra, texts in groups.items()}


@cache
def _declared() -> dict[str, set[str]]:
    needs = _requirements()
    whole = {extra: [n for need in found for n in _flat(need, needs)] for extra, found in needs.items()}
    return {extra: {_normal(need.name) for need in found} for extra, found in whole.items()}


def _flat(need: Requirement, needs: dict[str, list[Requirement]]) -> list[Requirement]:
    """What our own extras need, where one names others."""
    return [each for extra in need.extras for each in needs[extra]] if need.name == "palaver" else [need]


def _extras(path: str) -> tuple[str, ...]:
    found = [extras for prefix, extras in EXTRAS.items() if path == prefix or path.startswith(f"{prefix}/")]
    if found:
        return found[0]
    room, _, rest = path.partition("/")
    if room == "protocols":
        return tuple(sorted(_users_of(f"palaver.protocols.{rest.partition('/')[0].removesuffix('.py')}")))
    return _declared_in(rest.partition("/")[0]) if room == "platforms" else ()


@cache
def _declared_in(folder: str) -> tuple[str, ...]:
    """Return the extras of the platforms whose adapters are in a folder: each of them installs what it imports."""
    place = f"palaver.platforms.{folder}."
    return tuple(extra for each in PLATFORMS.values() if each.adapter.startswith(place) for extra in each.extras)


@cache
def _users_of(module: str) -> frozenset[str]:
    """Return the extras of everything that imports a module that adapters share, directly or through another one."""
    found: set[str] = set()
    for file in modules():
        path = str(file.relative_to(SOURCE))
        name = f"palaver.protocols.{path.removeprefix('protocols/').partition('/')[0].removesuffix('.py')}"
        if name == module or path.startswith("cli/") or not any(_imports_it(node, module) for node in nodes(file)):
            continue
        found |= _users_of(name) if path.startswith("protocols/") else set(_extras(path))
    return frozenset(found)


def _imports_it(node: ast.AST, module: str) -> bool:
    if not isinstance(node, ast.ImportFrom) or not node.module:
        return False
    names = {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return any(f"{name}.".startswith(f"{module}.") for name in names)


def _imports() -> Iterator[tuple[str, str]]:
    """Yield the path and the distribution of every third-party import."""
    distributions = packages_distributions()
    for file in modules():
        for node in nodes(file):
            if isinstance(node, ast.Import):
                imported = [alias.name for alias in node.names]
            else:
                imported = [node.module] if isinstance(node, ast.ImportFrom) and node.module else []
            for name in imported:
                module = name.partition(".")[0]
                if module != "palaver" and module not in sys.stdlib_module_names:
                    shared = (found for prefix, found in _NAMESPACES.items() if f"{name}.".startswith(f"{prefix}."))
                    yield str(file.relative_to(SOURCE)), next(shared, _normal(distributions[module][0]))


def _is_declared(path: str, distribution: str) -> bool:
    declared, extras = _declared(), _extras(path)
    if distribution in declared[""]:
        return True
    needs = any if path.startswith("web/mcp/") else all
    return bool(extras) and needs(distribution in declared[extra] for extra in extras)


def test_every_import_is_declared() -> None:
    missing = {f"{path}: {distribution}" for path, distribution in _imports() if not _is_declared(path, distribution)}
    assert not missing


def test_everything_declared_is_imported() -> None:
    imported = {distribution for _, distribution in _imports()} | _NOT_IMPORTED
    assert not {f"{extra}: {name}" for extra, names in _declared().items() for name in names - imported}


def test_every_platform_has_its_extras_and_no_entry_point() -> None:
    project = tomllib.loads((_ROOT / "pyproject.toml").read_text())["project"]
    for platform in PLATFORMS.values():
        assert set(platform.extras) <= project["optional-dependencies"].keys(), platform.name
    assert ENTRY_POINT_GROUP not in project.get("entry-points", {}), "the folder declares it"


_UNDOCUMENTED = {
    "discord-py": ("platforms/discord/client.py",),
    "matrix-nio": ("platforms/matrix/client.py",),
    "openai": ("agents/model/openai_client.py",),
    "slixmpp": ("platforms/xmpp/stream.py",),
    "typer": ("cli/main.py",),
    "uvicorn": ("web/connections.py", "web/server.py"),
}
"""Where we use parts of a library that it does not document, and that can change with any release."""


def test_what_we_use_of_a_library_that_it_does_not_document_has_an_upper_bound() -> None:
    requires = [each for texts in _requirements().values() for each in texts if _normal(each.name) in _UNDOCUMENTED]
    assert {_normal(each.name) for each in requires} == _UNDOCUMENTED.keys()
    assert not [str(each) for each in requires if not any(limit.operator == "<" for limit in each.specifier)]


def test_private_parts_of_libraries_are_used_only_where_they_are_listed() -> None:
    found = {(distribution, path) for path, distribution in _private_parts()}
    listed = {(distribution, path) for distribution, paths in _UNDOCUMENTED.items() for path in paths}
    assert found
    assert found <= listed


def _private_parts() -> Iterator[tuple[str, str]]:
    """Yield the file and the distribution where a subclass uses a private name that is not its own."""
    known = packages_distributions()
    for file in modules():
        tree = parsed(file)
        places = {
            alias.asname or alias.name: node.module.partition(".")[0]
            for node in ast.walk(tree)
            if isinstance(node, ast.ImportFrom) and node.module
            for alias in node.names
        }
        places |= {
            alias.asname or alias.name: alias.name.partition(".")[0]
            for node in ast.walk(tree)
            if isinstance(node, ast.Import)
            for alias in node.names
        }
        for kind in (node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)):
            roots = {re.split(r"[.\[]", ast.unparse(base))[0] for base in kind.bases}
            libraries = {places[root] for root in roots & places.keys()} - {"palaver", *sys.stdlib_module_names}
            if libraries and _uses_private_names(kind):
                yield from ((str(file.relative_to(SOURCE)), _normal(known[each][0])) for each in libraries)


def _uses_private_names(kind: ast.ClassDef) -> bool:
    attributes = [node for node in ast.walk(kind) if isinstance(node, ast.Attribute)]
    own = {node.name for node in ast.walk(kind) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
    own |= {node.attr for node in attributes if isinstance(node.ctx, ast.Store)}
    own |= {node.id for node in ast.walk(kind) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    of_base = (node.attr for node in attributes if ast.unparse(node.value) == "super()" or _is_foreign(node, own))
    return any(name.startswith("_") and not name.startswith("__") for name in of_base)


def _is_foreign(node: ast.Attribute, own: set[str]) -> bool:
    return ast.unparse(node.value) == "self" and node.attr not in own


def test_every_pin_is_exact_and_covers_the_declarations() -> None:
    lines = [line for line in (_ROOT / "constraints.txt").read_text().splitlines() if not line.startswith("#")]
    assert all("==" in line for line in lines)
    assert set().union(*_declared().values()) <= {_normal(line.partition("==")[0]) for line in lines}


def test_every_pin_runs_on_the_first_python_that_is_supported() -> None:
    """Debian's 3.11 is 3.11.2, and some packages ask for a later one."""
    # Not every package says it, and where importlib_metadata is loaded, a missing field is a KeyError.
    limits = {
        each.name: SpecifierSet("".join(each.metadata.get_all("Requires-Python") or ())) for each in distributions()
    }
    assert not [f"{name} needs Python {limit}" for name, limit in limits.items() if "3.11.0" not in limit]


def _index(folder: Path, releases: dict[str, dict[str, str]]) -> str:
    """Write a package index; each version has an attribute of its link. Returns its address."""
    for name, versions in releases.items():
        (folder / name).mkdir(parents=True)
        links: list[str] = []
        for version, attribute in versions.items():
            wheel = folder / name / f"{name}-{version}-py3-none-any.whl"
            facts = f"{name}-{version}.dist-info"
            with ZipFile(wheel, "w") as file:
                file.writestr(f"{facts}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
                file.writestr(f"{facts}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
                file.writestr(f"{facts}/RECORD", "")
            links.append(f'<a href="{wheel.name}"{attribute}>{wheel.name}</a>')
        (folder / name / "index.html").write_text(f"<!DOCTYPE html><html><body>{''.join(links)}</body></html>")
    return folder.as_uri()


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    yanked = ' data-yanked="loses mail"'
    releases = {
        "dove": {"1.0": "", "1.1": "", "2.0": ""},
        "pigeon": {"1.0": yanked, "1.1": "", "1.2": ""},
        "swift": {"3.0": ""},
    }
    for name in [name for name in os.environ if name.startswith(("UV_", "PIP_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("UV_DEFAULT_INDEX", _index(tmp_path / "index", releases))
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("UV_NO_CONFIG", "1")


@pytest.mark.usefixtures("index")
@pytest.mark.parametrize(
    ("pins", "code", "out", "err"),
    [
        ("# ours\nswift==3.0", 0, "1 pins, 0 behind the newest version.\n", ""),
        (
            "dove==1.0\npigeon==1.1\nswift==3.0",
            0,
            "dove 1.0 -> 2.0\npigeon 1.1 -> 1.2\n3 pins, 2 behind the newest version.\n",
            "",
        ),
        ("pigeon==1.0", 1, "pigeon 1.0 -> 1.2\n1 pins, 1 behind", "error: pigeon==1.0 is yanked: loses mail\n"),
        (
            "crow==1\ndove==2.0\nswift==9.9",
            1,
            "3 pins, 0 behind the newest version.\n",
            "error: crow==1 is not on the index\nerror: swift==9.9 is not on the index\n",
        ),
    ],
)
def test_the_audit_names_pins_that_are_missing_yanked_or_behind(  # noqa: PLR0917
    pins: str, code: int, out: str, err: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "pins.txt").write_text(pins)
    assert audit.main([str(tmp_path / "pins.txt")]) == code
    said = capsys.readouterr()
    assert (said.out.startswith(out), said.err) == (True, err), said


@pytest.mark.usefixtures("index")
def test_an_index_that_does_not_answer_fails_the_audit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("UV_DEFAULT_INDEX", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("UV_HTTP_RETRIES", "0")
    (tmp_path / "pins.txt").write_text("dove==1.0")
    assert audit.main([str(tmp_path / "pins.txt")]) == 1
    said = capsys.readouterr()
    assert (said.out, "nothing was checked" in said.err) == ("", True)
