"""Hooks of the documentation site: links out of docs, and diagrams without a foreign server."""  # noqa: INP001

import re
import shutil
from pathlib import Path
from typing import Any

_ROOT = Path(__file__).parents[1]
_MERMAID = Path("assets", "mermaid.min.js")
_FETCHED = _ROOT / "build" / "mermaid.min.js"
"""`make site` fetches it with `.ci/fetch_mermaid.py`."""

_LINK = re.compile(r"\[([^\]]+)\]\(((?!https?:|#)[^)#\s]+)(#[^)\s]*)?\)")


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:  # noqa: ANN401 - MkDocs' types
    """Make a link to a file outside of docs plain text."""
    folder = Path(config["docs_dir"], page.file.src_path).parent
    docs = Path(config["docs_dir"]).resolve()

    def kept(found: re.Match[str]) -> str:
        target = (folder / found[2]).resolve()
        is_page = target.is_relative_to(docs) and files.get_file_from_path(str(target.relative_to(docs))) is not None
        return found[0] if is_page else found[1]

    return _LINK.sub(kept, markdown)


def on_post_page(output: str, page: Any, config: Any) -> str:  # noqa: ANN401, ARG001 - MkDocs' types
    """Load the diagram library on pages with a diagram, before the theme would load one from a public address."""
    if 'class="mermaid"' not in output:
        return output
    up = "../" * page.url.count("/")
    return output.replace("</head>", f'<script src="{up}{_MERMAID.as_posix()}"></script></head>', 1)


def on_post_build(config: Any) -> None:  # noqa: ANN401 - MkDocs' type
    shutil.copyfile(_FETCHED, Path(config["site_dir"]) / _MERMAID)
