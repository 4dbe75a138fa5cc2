"""Converting a server's results to tool output: text, pictures, structured content, resources. All is untrusted."""

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from tui_agent.conversation.blocks import Image, valid_text
from tui_agent.text import clean, one_line
from tui_agent.tools.base import ToolOutput

if TYPE_CHECKING:
    from mcp_types import CallToolResult, ContentBlock, GetPromptResult, ReadResourceResult

PICTURES: Final = ("image/png", "image/jpeg", "image/gif", "image/webp")
MAX_PICTURES: Final = 20
"""The most pictures of one result that are used."""


def output_of(result: "CallToolResult") -> ToolOutput:
    """The output of a call. Slow for a long result: call it off the event loop."""
    parts, images = _taken_apart(result.content)
    structured = result.structured_content
    if structured is not None and not _is_said(structured, parts):
        parts.append(json.dumps(structured, ensure_ascii=False, indent=1, default=str))
    text = clean(valid_text("\n\n".join(part for part in parts if part)))
    return ToolOutput(text, is_error=result.is_error, images=tuple(images))


def text_of_resource(result: "ReadResourceResult") -> str:
    """The texts of a resource; other content is only named."""
    return clean(valid_text("\n\n".join(_resource_text(each) for each in result.contents)))


def text_of_prompt(result: "GetPromptResult") -> str:
    """The messages of a prompt as one text; those of other roles than the user are marked."""
    parts = []
    for message in result.messages:
        said, images = _taken_apart([message.content])
        text = "\n".join([*said, *["[a picture]"] * len(images)])
        parts.append(text if message.role == "user" else f"[{message.role}] {text}")
    return clean(valid_text("\n\n".join(parts)))


def _taken_apart(content: Sequence["ContentBlock"]) -> tuple[list[str], list[Image]]:
    from mcp_types import AudioContent, BlobResourceContents, EmbeddedResource, ImageContent, ResourceLink, TextContent

    parts: list[str] = []
    images: list[Image] = []
    for block in content:
        match block:
            case TextContent():
                parts.append(block.text)
            case ImageContent():
                _take_picture(block.mime_type, block.data, parts, images)
            case EmbeddedResource(resource=BlobResourceContents() as blob) if blob.mime_type in PICTURES:
                _take_picture(blob.mime_type or "", blob.blob, parts, images)
            case EmbeddedResource():
                parts.append(f"[{one_line(str(block.resource.uri), 300)}]\n{_resource_text(block.resource)}")
            case ResourceLink():
                label = one_line(block.description or block.name, 300)
                parts.append(f"[a resource: {one_line(str(block.uri), 300)} ({label})]")
            case AudioContent():
                parts.append(f"[sound, {one_line(block.mime_type, 60)}: it cannot be listened to]")
    return parts, images


def _take_picture(kind: str, data: str, parts: list[str], images: list[Image]) -> None:
    if kind not in PICTURES:
        parts.append(f"[a picture of the kind {one_line(kind, 60)}: it cannot be looked at]")
    elif len(images) >= MAX_PICTURES:
        parts.append(f"[one picture more than the {MAX_PICTURES} that are looked at]")
    else:
        images.append(Image(kind, data))


def _resource_text(resource: object) -> str:
    text = getattr(resource, "text", None)
    if isinstance(text, str):
        return text
    kind = one_line(str(getattr(resource, "mime_type", None) or "unknown"), 60)
    size = len(str(getattr(resource, "blob", ""))) * 3 // 4
    return f"[{size:,} bytes of the kind {kind}: no text]"


def _is_said(structured: object, parts: Sequence[str]) -> bool:
    """Whether a text repeats the structured content, as servers should (MCP, tools: structured content)."""
    said = [structured]
    if isinstance(structured, dict) and len(structured) == 1:  # a single value is often said without its name
        said += structured.values()
    for part in parts:
        try:
            if part in said or json.loads(part) in said:
                return True
        except (ValueError, RecursionError):
            continue
    return False
