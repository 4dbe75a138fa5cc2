"""Pictures as the providers look at them: what size one has, and which of a request breaks a limit."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Iterator
from functools import lru_cache
from io import BytesIO
from typing import Any

from PIL import Image

from tests.servers.faults import RuleBroken

PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
"""A picture of one pixel, in base64."""
MANY = 20
SIDE, SIDE_OF_MANY = 8_000, 2_000
PICTURE_BYTES = 5 * 1024 * 1024
MOST, MOST_IN_A_LARGE_WINDOW, LARGE_WINDOW = 100, 600, 200_000


@lru_cache(maxsize=256)
def picture_size(data: str) -> tuple[int, int] | None:
    """Width and height of a picture in base64; None where it cannot be read to its end."""
    try:
        with Image.open(BytesIO(b64decode(data))) as image:
            size = image.size
            # JPEG is read to its end also where it is decoded at an eighth of its size.
            image.draft(None, (size[0] // 8, size[1] // 8))
            image.load()
            return size
    except Exception:
        return None


def check_pictures(body: dict[str, Any], window: int) -> None:
    """Anthropic's limits (vision: request limits). Raises RuleBroken with the API's own error."""
    found = list(_pictures(body))
    most = MOST if window <= LARGE_WINDOW else MOST_IN_A_LARGE_WINDOW
    if len(found) > most:
        raise RuleBroken(f"Too many images in the request: {len(found)} > {most}")
    for where, data in found:
        if len(data) > PICTURE_BYTES:
            raise RuleBroken(
                f"{where}.image.source.base64: image exceeds 5 MB maximum: {len(data)} bytes > {PICTURE_BYTES} bytes"
            )
        size = picture_size(data)
        if size is None:
            raise RuleBroken(f"{where}.image.source.base64.data: Could not process image")
        if max(size) > SIDE:
            raise RuleBroken(
                f"{where}.image.source.base64.data: At least one of the image dimensions exceed max allowed size: "
                f"{SIDE} pixels"
            )
        if len(found) > MANY and max(size) > SIDE_OF_MANY:
            raise RuleBroken(
                f"{where}.image.source.base64.data: At least one of the image dimensions exceed max allowed size for "
                f"many-image requests: {SIDE_OF_MANY} pixels"
            )


def _pictures(body: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for i, message in enumerate(body["messages"]):
        blocks = message["content"] if isinstance(message["content"], list) else []
        for j, block in enumerate(blocks):
            if block["type"] == "image":
                yield f"messages.{i}.content.{j}", block["source"]["data"]
            if block["type"] == "tool_result" and isinstance(block.get("content"), list):
                for k, part in enumerate(block["content"]):
                    if part["type"] == "image":
                        yield f"messages.{i}.content.{j}.tool_result.content.{k}", part["source"]["data"]
