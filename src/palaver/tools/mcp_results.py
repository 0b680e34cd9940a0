"""What an MCP tool returns: its text, and its images, audio and resources as files."""

import json
from collections.abc import Sequence
from dataclasses import field

from mcp import Client, MCPError, types

from palaver.model.attachment import UNKNOWN_TYPE, NewFile, format_size
from palaver.model.text import one_line
from palaver.model.value import value
from palaver.protocols.files import decoded_file, name_in_uri

_MAX_LINKS = 4
"""How many linked resources are read for one result."""
_MAX_NAME_LENGTH = 100


@value
class CallResult:
    text: str
    files: Sequence[NewFile] = field(default_factory=list[NewFile])


async def read_result(client: Client, result: types.CallToolResult) -> CallResult:
    """Return the content of a result, and read the resources that it links to."""
    texts, files, links = list[str](), list[NewFile](), 0
    for part in result.content:
        match part:
            case types.TextContent(text=text):
                texts.append(text)
            case types.ImageContent() | types.AudioContent():
                _add_data(part.data, part.mime_type, f"{part.type}-{len(files) + 1}", texts, files)
            case types.EmbeddedResource(resource=resource):
                _add_resource(resource, texts, files)
            case types.ResourceLink() if links < _MAX_LINKS:
                links += 1
                await _add_link(client, part, texts, files)
            case _:
                texts.append(f"({part.type}, not shown)")
    if not texts and result.structured_content is not None:
        texts.append(json.dumps(result.structured_content, ensure_ascii=False))
    return CallResult(text="\n".join(texts), files=files)


async def _add_link(client: Client, link: types.ResourceLink, texts: list[str], files: list[NewFile]) -> None:
    try:
        read = await client.read_resource(link.uri)
    except MCPError:
        texts.append(f"(a link to {one_line(link.uri, _MAX_NAME_LENGTH)}, which the server does not let us read)")
        return
    for resource in read.contents:
        _add_resource(resource, texts, files)


def _add_resource(
    resource: types.TextResourceContents | types.BlobResourceContents, texts: list[str], files: list[NewFile]
) -> None:
    if isinstance(resource, types.TextResourceContents):
        texts.append(resource.text)
    else:
        name = name_in_uri(resource.uri) or f"resource-{len(files) + 1}"
        _add_data(resource.blob, resource.mime_type, name, texts, files)


def _add_data(data: str, media_type: str | None, name: str, texts: list[str], files: list[NewFile]) -> None:
    if file := decoded_file(data, media_type, name):
        files.append(file)
    else:
        kind = one_line(media_type or UNKNOWN_TYPE, _MAX_NAME_LENGTH)
        texts.append(f"({kind}, {format_size(len(data))}, not readable)")
