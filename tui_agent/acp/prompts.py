"""Converting a client's prompt to the text and pictures of a message."""

from collections.abc import Sequence
from typing import Final, TypeAlias
from urllib.parse import unquote, urlsplit

import msgspec
from acp.schema import (
    AudioContentBlock,
    BlobResourceContents,
    EmbeddedResourceContentBlock,
    ImageContentBlock,
    ResourceContentBlock,
    TextContentBlock,
)

from tui_agent.conversation.blocks import Image, valid_text
from tui_agent.text import one_line

PromptBlock: TypeAlias = (
    TextContentBlock | ImageContentBlock | AudioContentBlock | ResourceContentBlock | EmbeddedResourceContentBlock
)

PICTURES: Final = ("image/png", "image/jpeg", "image/gif", "image/webp")


class EditorPrompt(msgspec.Struct, frozen=True):
    """A prompt. `problems` are sentences about parts of it that are not sent."""

    text: str
    images: tuple[Image, ...] = ()
    problems: tuple[str, ...] = ()


def read_prompt(blocks: Sequence[PromptBlock], *, pictures: bool, model: str) -> EditorPrompt:
    """Convert the blocks of a prompt. `pictures`: the model accepts pictures.

    A link becomes a mention in the text; the content of an embedded resource follows the text.
    """
    words: list[str] = []
    held: list[str] = []
    images: list[Image] = []
    problems: list[str] = []
    for block in blocks:
        match block:
            case TextContentBlock():
                words.append(block.text)
            case ResourceContentBlock():
                words.append(mention(block.uri))
            case ImageContentBlock():
                _take_picture(block.data, block.mime_type, images, problems)
            case EmbeddedResourceContentBlock(resource=BlobResourceContents() as blob):
                _take_picture(blob.blob, blob.mime_type or "", images, problems, name=blob.uri)
            case EmbeddedResourceContentBlock(resource=resource):
                words.append(mention(resource.uri))
                text = getattr(resource, "text", "")
                held.append(f'<resource uri="{one_line(resource.uri, 2_000)}">\n{text}\n</resource>')
            case _:
                problems.append("Sound cannot be sent.")
    if images and not pictures:
        images, problems = [], [*problems, f"{model} cannot see pictures: only the words are sent."]
    text = "\n\n".join(part for part in ("".join(words), *held) if part.strip())
    return EditorPrompt(valid_text(text), tuple(images), tuple(problems))


def mention(uri: str) -> str:
    """A link as it appears in a prompt: for a file ``@`` and its path, else the address."""
    parts = urlsplit(uri)
    if parts.scheme != "file":
        return uri
    path = unquote(parts.path)
    lines = f" ({parts.fragment})" if parts.fragment else ""
    return (f'@"{path}"' if any(map(str.isspace, path)) else f"@{path}") + lines


def _take_picture(data: str, media: str, images: list[Image], problems: list[str], name: str = "A picture") -> None:
    if media in PICTURES:
        images.append(Image(media, data))
    else:
        problems.append(f"{one_line(name)}: {one_line(media, 80) or 'data of an unknown kind'} cannot be sent.")
