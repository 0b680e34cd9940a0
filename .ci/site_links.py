"""A hook of the site: what a page links to in the repository, but outside of docs, becomes plain text."""  # noqa: INP001

import re
from pathlib import Path
from typing import Any

_LINK = re.compile(r"\[([^\]]+)\]\(((?!https?:|#)[^)#\s]+)(#[^)\s]*)?\)")


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:  # noqa: ANN401 - MkDocs' types
    folder = Path(config["docs_dir"], page.file.src_path).parent
    docs = Path(config["docs_dir"]).resolve()

    def kept(found: re.Match[str]) -> str:
        target = (folder / found[2]).resolve()
        is_page = target.is_relative_to(docs) and files.get_file_from_path(str(target.relative_to(docs))) is not None
        return found[0] if is_page else found[1]

    return _LINK.sub(kept, markdown)
