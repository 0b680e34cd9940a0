"""Every third-party import of the package is declared, in the extra that installs it."""

import ast
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from importlib.metadata import distributions, packages_distributions
from pathlib import Path

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from tests.source import SOURCE, modules, nodes

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
    "db/postgres_servers.py": ("postgres",),
    "db/postgres_statements.py": ("postgres",),
    "gateway/prometheus.py": ("metrics",),
    "gateway/tracing.py": ("otel",),
    "store/encryption": ("encryption",),
    "protocols/bearer.py": ("googlechat", "teams"),
    "protocols/rest.py": (
        *(
            "dingtalk",
            "feishu",
            "http",
            "imessage",
            "line",
            "mattermost",
            "qq",
            "signal",
            "wechat",
            "wecom",
            "whatsapp",
            "xmpp",
            "yuanbao",
        ),
    ),
    "protocols/sealed.py": ("feishu", "wechat", "wecom"),
    "protocols/tokens.py": (
        "dingtalk",
        "googlechat",
        "teams",
        "sms",
        "feishu",
        "line",
        "qq",
        "wechat",
        "wecom",
        "yuanbao",
    ),
    "protocols/markdown": (
        *("dingtalk", "discord", "email", "feishu", "imessage", "line", "matrix", "matrix-encryption", "qq", "signal"),
        *("homeassistant", "sms", "slack", "telegram", "wechat", "wecom", "whatsapp", "xmpp"),
    ),
    "platforms/dingtalk": ("dingtalk",),
    "platforms/discord": ("discord",),
    "platforms/email": ("email",),
    "platforms/feishu": ("feishu",),
    "platforms/homeassistant": ("homeassistant",),
    "platforms/imessage": ("imessage",),
    "platforms/line": ("line",),
    "platforms/mattermost": ("mattermost",),
    "platforms/sms": ("sms",),
    "platforms/ntfy": ("ntfy",),
    "platforms/teams": ("teams",),
    "platforms/googlechat": ("googlechat",),
    "platforms/irc": ("irc",),
    "platforms/xmpp": ("xmpp",),
    "platforms/matrix/verification.py": ("matrix-encryption",),
    "platforms/matrix": ("matrix", "matrix-encryption"),
    "platforms/relayed": ("relay",),
    "platforms/qq": ("qq",),
    "platforms/signal": ("signal",),
    "platforms/slack": ("slack",),
    "platforms/telegram": ("telegram",),
    "platforms/webhook/send.py": ("http",),
    "platforms/wechat": ("wechat", "wecom"),
    "platforms/whatsapp": ("whatsapp",),
    "platforms/yuanbao": ("yuanbao",),
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
_NOT_IMPORTED = {"tzdata", "python-multipart", "pytest-asyncio", "sqlcipher3"}
"""Used by others on our behalf: zoneinfo, starlette's forms, the conformance suite; and what is imported by name."""


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


@cache
def _declared() -> dict[str, set[str]]:
    project = tomllib.loads((_ROOT / "pyproject.toml").read_text())["project"]
    groups = {"": project["dependencies"], **project["optional-dependencies"]}
    needs = {extra: [Requirement(text) for text in texts] for extra, texts in groups.items()}
    whole = {extra: [n for need in found for n in _flat(need, needs)] for extra, found in needs.items()}
    return {extra: {_normal(need.name) for need in found} for extra, found in whole.items()}


def _flat(need: Requirement, needs: dict[str, list[Requirement]]) -> list[Requirement]:
    """What our own extras need, where one names others."""
    return [each for extra in need.extras for each in needs[extra]] if need.name == "palaver" else [need]


def _extras(path: str) -> tuple[str, ...]:
    found = [extras for prefix, extras in EXTRAS.items() if path == prefix or path.startswith(f"{prefix}/")]
    return found[0] if found else ()


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


def test_every_pin_is_exact_and_covers_the_declarations() -> None:
    lines = [line for line in (_ROOT / "constraints.txt").read_text().splitlines() if not line.startswith("#")]
    assert all("==" in line for line in lines)
    assert set().union(*_declared().values()) <= {_normal(line.partition("==")[0]) for line in lines}


def test_every_pin_runs_on_the_first_python_that_is_supported() -> None:
    """Debian's 3.11 is 3.11.2, and some packages ask for a later one."""
    limits = {each.name: SpecifierSet(each.metadata["Requires-Python"] or "") for each in distributions()}
    assert not [f"{name} needs Python {limit}" for name, limit in limits.items() if "3.11.0" not in limit]


def test_the_audit_fails_unless_all_is_well_or_it_cannot_look(tmp_path: Path) -> None:
    """Offline, or where pip-audit is missing, it says that nothing was checked. Another failure is one."""
    stub = tmp_path / "pip-audit"
    offline = "Nothing was checked: no database of vulnerabilities can be reached."
    for script, code, said in (
        (None, 0, "Nothing was checked: pip-audit is not installed."),
        ("exit 0", 0, "No known vulnerability"),
        ('echo "ERROR:pip_audit._cli:Could not connect to PyPI\'s vulnerability feed" >&2; exit 1', 0, offline),
        ("echo 'requests.exceptions.ConnectionError: HTTPSConnectionPool' >&2; exit 1", 0, offline),
        ("echo 'requests.exceptions.ReadTimeout: HTTPSConnectionPool' >&2; exit 1", 0, offline),
        ("echo 'requests.exceptions.HTTPError: 503 Server Error' >&2; exit 1", 0, offline),
        ("echo 'Name Version ID'; echo 'dove 1.0 PYSEC-1'; exit 1", 1, "dove 1.0 PYSEC-1"),
        ("echo 'ERROR: invalid requirement: dove==?' >&2; exit 1", 1, "pip-audit failed with exit code 1."),
        ("echo 'unrecognized arguments: --no-deps' >&2; exit 2", 1, "pip-audit failed with exit code 2."),
    ):
        if script:
            stub.write_text(f"#!/bin/sh\n{script}\n")
            stub.chmod(0o755)
        done = subprocess.run(
            [_ROOT / ".ci/audit"],
            env={**os.environ, "PIP_AUDIT": str(stub)},
            capture_output=True,
            text=True,
            check=False,
        )
        assert (done.returncode, said in done.stdout) == (code, True), (script, done)
