"""How this copy was installed: each kind of environment is recognised, with the command that works there."""

import os
import re
from pathlib import Path

import pytest

from palaver.protocols.installation import (
    Installation,
    InstallKind,
    MissingPackages,
    install_line,
    missing_library,
    needs_of,
    package_line,
    recognize,
)
from tests.packages import bring

NEEDS = ["tiny>=1"]
ROOT = Path(__file__).parents[2]


def look(tmp_path: Path, *, library: Path | None = None, has_pip: bool = True, programs: str = "") -> Installation:
    """The environment below `tmp_path`, on a machine with these programs besides its own Python."""
    for folder in ("venv/site", "checkout"):
        (tmp_path / folder).mkdir(parents=True, exist_ok=True)
    return recognize(
        prefix=tmp_path / "venv",
        python="/venv/bin/python",
        packages=tmp_path / "venv/site",
        root=tmp_path / "checkout",
        library=library,
        has_pip=has_pip,
        find_program=lambda name: name if name in {"/venv/bin/python", *programs.split()} else None,
    )


def put(file: Path, content: str = "") -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(content)


def test_a_virtual_environment_has_pip(tmp_path: Path) -> None:
    here = look(tmp_path)
    assert (here.kind, here.obstacle) == (InstallKind.PIP, "")
    assert here.command("tiny", NEEDS) == ["/venv/bin/python", "-m", "pip", "install", *NEEDS]


def test_without_pip_there_can_be_uv(tmp_path: Path) -> None:
    here = look(tmp_path, has_pip=False, programs="uv")
    assert here.command("tiny", NEEDS) == ["uv", "pip", "install", "--python", "/venv/bin/python", *NEEDS]
    assert here.obstacle == ""
    assert look(tmp_path, has_pip=False).obstacle == "the program uv is not in the search path"


def test_a_checkout_has_constraints(tmp_path: Path) -> None:
    put(tmp_path / "checkout/constraints.txt")
    put(tmp_path / "checkout/pyproject.toml")
    here = look(tmp_path)
    assert here.kind is InstallKind.CHECKOUT
    assert here.command("tiny", NEEDS)[-3:] == ["-c", f"{tmp_path}/checkout/constraints.txt", *NEEDS]
    assert "-c" in look(tmp_path, has_pip=False).command("tiny", NEEDS)


def test_pipx_injects(tmp_path: Path) -> None:
    put(tmp_path / "venv/pipx_metadata.json", "{}")
    here = look(tmp_path, programs="pipx")
    assert (here.kind, here.obstacle) == (InstallKind.PIPX, "")
    assert here.command("tiny", NEEDS) == ["pipx", "inject", "venv", *NEEDS]
    assert look(tmp_path).obstacle == "the program pipx is not in the search path"


def test_several_extras_are_added_with_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(tmp_path / "venv/container-extras", "web")
    monkeypatch.setattr("palaver.protocols.installation.find_installation", lambda: look(tmp_path))
    assert "--build-arg EXTRAS=web,mcp -t" in install_line("mcp", "web")
    assert package_line("tiny") == "/venv/bin/python -m pip install tiny"


def test_no_message_has_a_line_of_its_own_for_what_is_missing() -> None:
    sources = (ROOT / "src").rglob("*.py")
    found = [file.name for file in sources if re.search(r"pip install|palaver\[\w*[,\]]", file.read_text())]
    assert found == []


def test_uv_tool_keeps_the_extras_that_it_was_given(tmp_path: Path) -> None:
    receipt = '[tool]\nrequirements = [{ name = "palaver", extras = ["web"], directory = "/src/palaver" }]\n'
    put(tmp_path / "venv/uv-receipt.toml", receipt)
    here = look(tmp_path, programs="uv")
    assert (here.kind, here.obstacle) == (InstallKind.UV_TOOL, "")
    assert here.command("tiny", NEEDS) == ["uv", "tool", "install", "/src/palaver[web,tiny]"]


@pytest.mark.parametrize(
    "damaged",
    [b"", b"\xff\xfe", b"[tool", b"tool = 1", b"[tool]\nrequirements = 7", b"[tool]\nrequirements = [1]", None],
    ids=repr,
)
def test_a_damaged_note_of_what_was_installed_does_not_hide_what_is_missing(
    tmp_path: Path, damaged: bytes | None
) -> None:
    for name in ("container-extras", "uv-receipt.toml"):
        note = tmp_path / name / "venv" / name
        note.parent.mkdir(parents=True)
        if damaged is None:
            note.symlink_to("/proc/self/mem")  # it is there, and refuses to be read
        else:
            note.write_bytes(damaged)
    assert "tiny -t palaver" in " ".join(look(tmp_path / "container-extras").command("tiny", NEEDS))
    uv = look(tmp_path / "uv-receipt.toml", has_pip=False, programs="uv")
    assert uv.command("tiny", NEEDS) == ["uv", "pip", "install", "--python", "/venv/bin/python", *NEEDS]


@pytest.mark.parametrize(
    ("library", "package"),
    [
        ("libgomp.so.1", "libgomp1"),
        ("libstdc++.so.6", "libstdc++6"),
        ("libgcc_s.so.1", "libgcc-s1"),
        ("libGL.so.1", "libgl1"),
        ("libavcodec59.so.2", "libavcodec59-2"),
    ],
)
def test_a_library_of_the_system_is_missing_by_the_name_of_its_package(library: str, package: str) -> None:
    error = ImportError(f"{library}: cannot open shared object file: No such file or directory")
    assert str(missing_library("A model needs", error)) == (
        f"A model needs {library}, a library of the system that is missing. "
        f"Install its package. On Debian and Ubuntu: sudo apt-get install {package}"
    )
    assert missing_library("A model needs", ImportError("cannot import name 'x'")) is None


def test_a_container_image_is_built_again(tmp_path: Path) -> None:
    put(tmp_path / "venv/container-extras", "web,openai\n")
    here = look(tmp_path)
    assert (here.kind, here.obstacle) == (InstallKind.CONTAINER, "a container image is built again to change it")
    assert " ".join(here.command("tiny", NEEDS)).startswith(
        "docker build --build-arg EXTRAS=web,openai,tiny -t palaver"
    )


def test_the_python_of_the_system_is_left_alone(tmp_path: Path) -> None:
    put(tmp_path / "library/EXTERNALLY-MANAGED")
    here = look(tmp_path, library=tmp_path / "library")
    assert (here.kind, here.obstacle) == (InstallKind.MANAGED, "this Python belongs to the system")
    assert "--break-system-packages" in here.command("tiny", NEEDS)


def test_without_the_right_to_write_nothing_is_tried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses(*_: object) -> bool:
        return False

    monkeypatch.setattr(os, "access", refuses)
    assert look(tmp_path).obstacle == f"{tmp_path}/venv/site cannot be written"


def test_the_error_names_what_is_missing_and_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bring(tmp_path, monkeypatch, {}, extras=["loft"], requires=["no-such-client>=2; extra == 'loft'", "pydantic"])
    missing = MissingPackages("Lofts need", "loft", distribution_name="brought", missing="no_such")
    assert (missing.needs, missing.packages) == (["no-such-client>=2"], ["no-such-client"])
    assert str(missing).startswith("Lofts need no-such-client, which is not installed. Install what it needs: ")
    assert str(missing).endswith(missing.line)
    assert "'no-such-client>=2'" in missing.line


@pytest.mark.parametrize(
    ("line", "need"),
    [
        ("brought[inner]; extra == 'loft'", "b>=2"),
        ('a>=1 ; extra == "loft"', "a>=1"),
        ("a[x,y]>=1; extra == 'loft'", "a[x,y]>=1"),
        ("a; sys_platform != 'win32' and extra == 'loft'", "a; sys_platform != 'win32'"),
        ("a; extra == 'loft2'", "brought[loft]"),
    ],
)
def test_the_requirements_of_an_extra_are_read_from_the_metadata(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str, need: str
) -> None:
    bring(tmp_path, monkeypatch, {}, extras=["loft"], requires=[line, "b>=2; extra == 'inner'"])
    assert needs_of("brought", "loft") == [need]
