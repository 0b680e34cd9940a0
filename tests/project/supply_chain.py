"""What the package installs: names, versions and licences, for docs/dependencies.md and as a bill of materials.

python -m tests.project.supply_chain            write docs/dependencies.md
python -m tests.project.supply_chain sbom.json  write a CycloneDX bill of materials
"""

import json
import re
import sys
from collections.abc import Iterator, Sequence
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

from packaging.requirements import Requirement

from palaver import __version__

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/dependencies.md"
ALLOWED = re.compile(r"MIT|BSD|Apache|ISC|PSF|Python|MPL|LGPL|Lesser|Unlicense|HPND|0BSD|CC0|Zope|Zlib", re.IGNORECASE)
"""Licences that ask nothing of those who run Palaver, change it or pass it on, beyond naming them."""
_TEXTS = {
    "Permission is hereby granted, free of charge": "MIT",
    "Redistribution and use in source and binary forms": "BSD",
    "Apache License": "Apache-2.0",
    "Permission is granted to anyone to use this software for any purpose": "Zlib",
    "Permission to use, copy, modify, and/or distribute this software": "ISC",
}
_HEAD = """\
# Dependencies

What `palaver` and its extras install, with versions from `constraints.txt` and licences from the packages themselves.
This page is made by `python -m tests.project.supply_chain`, and a check keeps it true. `make sbom` writes the same as a
CycloneDX bill of materials.

| package | version | licence | needed by |
|---|---|---|---|
"""


class Package(NamedTuple):
    name: str
    version: str
    licence: str
    extras: tuple[str, ...]
    """The extras that install it; empty if Palaver always does."""


def packages() -> list[Package]:
    """Return all that the package needs, with and without extras, as far as it is installed here."""
    own = metadata.metadata("palaver")
    found: dict[str, set[str]] = {}
    for extra in ("", *sorted(own.get_all("Provides-Extra") or [])):
        for name in _closure("palaver", extra):
            found.setdefault(name, set()).add(extra)
    return [
        Package(name, metadata.version(name), _licence(name), () if "" in extras else tuple(sorted(extras)))
        for name, extras in sorted(found.items())
    ]


def _closure(name: str, extra: str) -> set[str]:
    seen, waiting = set[tuple[str, str]](), [(name, extra)]
    while waiting:
        current = waiting.pop()
        if current in seen:
            continue
        seen.add(current)
        waiting += _needs(*current)
    return {found for found, _ in seen} - {_canonical("palaver")}


def _needs(name: str, extra: str) -> Iterator[tuple[str, str]]:
    for text in metadata.requires(name) or ():
        need = Requirement(text)
        if need.marker is None or need.marker.evaluate({"extra": extra}):
            found = _canonical(need.name)
            try:
                metadata.distribution(found)
            except metadata.PackageNotFoundError:
                continue  # Not on this system or Python.
            yield from ((found, each) for each in ("", *need.extras))


def _canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _licence(name: str) -> str:
    about = metadata.metadata(name)
    said = next((about[field] for field in ("License-Expression", "License") if field in about), "").strip()
    if said and "\n" not in said and said.upper() != "UNKNOWN":
        return said
    classified = [
        each.rpartition(" :: ")[2] for each in about.get_all("Classifier") or () if each.startswith("License ::")
    ]
    by_text = next((short for start, short in _TEXTS.items() if start in said or start in _file(name)), "")
    return ", ".join(classified) or by_text or "unknown"


def _file(name: str) -> str:
    """Return the text of a package's licence file."""
    for path in metadata.files(name) or ():
        if path.name.upper().startswith(("LICENSE", "LICENCE", "COPYING")):
            return " ".join(path.read_text(encoding="utf-8").split())
    return ""


def page() -> str:
    rows = [
        f"| {each.name} | {each.version} | {each.licence} | {', '.join(each.extras) or 'always'} |\n"
        for each in packages()
    ]
    return _HEAD + "".join(rows)


def bill_of_materials() -> str:
    components = [
        {
            "type": "library",
            "bom-ref": f"pkg:pypi/{each.name}@{each.version}",
            "purl": f"pkg:pypi/{each.name}@{each.version}",
            "name": each.name,
            "version": each.version,
            "licenses": [{"license": {"name": each.licence}}],
            "scope": "optional" if each.extras else "required",
        }
        for each in packages()
    ]
    own = {"type": "application", "name": "palaver", "version": __version__, "bom-ref": "palaver"}
    bill = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": own},
        "components": components,
    }
    return json.dumps(bill, indent=2) + "\n"


def main(arguments: Sequence[str]) -> None:
    if arguments:
        Path(arguments[0]).write_text(bill_of_materials())
    else:
        PAGE.write_text(page())


if __name__ == "__main__":
    main(sys.argv[1:])
