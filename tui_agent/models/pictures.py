"""Converts pictures to what providers accept: within their limits of pixels and bytes, in a supported format.

Functions that open a picture are slow, since they decode and encode it: call them off the event loop.
"""

import warnings
import zlib
from base64 import b64decode, b64encode
from io import BytesIO
from typing import TYPE_CHECKING

import msgspec
from msgspec import structs

from tui_agent.conversation.blocks import Image

if TYPE_CHECKING:
    from PIL.Image import Image as Opened

MOST_PIXELS = 89_000_000
"""Pictures with more pixels are not opened, since they would take too much memory. Pillow's own warning limit."""
LARGEST_SIDE = 2_000
"""Pixels of the longer side (Anthropic, vision: 8,000, but 2,000 in a request with more than 20 pictures).

We always use the smaller limit: with the larger one, the 21st picture would change the earlier ones and so miss the
cache.
"""
MOST_BYTES = 5 * 1024 * 1024 * 3 // 4
"""Bytes of one picture: in base64 5 MiB (Anthropic, vision; the smallest of its platforms' limits)."""
QUALITY = 80
"""JPEG quality of pictures that are scaled down."""

_SENT = {"PNG": "image/png", "JPEG": "image/jpeg", "MPO": "image/jpeg", "GIF": "image/gif", "WEBP": "image/webp"}
_TOO_MANY_PIXELS = f"it has more than {MOST_PIXELS // 1_000_000} megapixels, which cannot be read"
_PNG = b"\x89PNG\r\n\x1a\n"
_SCALES = (1.0, 0.75, 0.5, 0.25)


class UnreadablePicture(Exception):
    """The bytes are not a picture that can be sent. The message is the second half of a sentence that says why."""


class Fitted(msgspec.Struct, frozen=True):
    """A picture that can be sent, and its size in pixels before and after. `changed`: it was encoded again."""

    media_type: str
    data: bytes
    before: tuple[int, int]
    after: tuple[int, int]
    changed: bool


def fitted(data: bytes) -> Fitted:
    """Scale or convert a picture if it has to be, so that it can be sent. Raises `UnreadablePicture`."""
    from PIL import Image as Pillow

    try:
        return _fitted(data)
    except UnreadablePicture:
        raise
    except (Pillow.DecompressionBombError, Pillow.DecompressionBombWarning) as error:
        raise UnreadablePicture(_TOO_MANY_PIXELS) from error
    except Exception:
        # For damaged pictures, Pillow raises struct.error, EOFError, KeyError and others, depending on the format.
        try:
            return structs.replace(_fitted(_with_right_sums(data) if data.startswith(_PNG) else data), changed=True)
        except Exception as error:
            raise UnreadablePicture("it is damaged, or not a picture") from error


def _with_right_sums(data: bytes) -> bytes:
    """A PNG whose chunks have the check sums of what is in them: many programs do not look at these."""
    parts, at = [data[:8]], 8
    while at + 12 <= len(data):
        end = at + 8 + int.from_bytes(data[at : at + 4], "big")
        parts += [data[at:end], zlib.crc32(data[at + 4 : end]).to_bytes(4, "big")]
        at = end + 4
    return b"".join(parts)


def _fitted(data: bytes) -> Fitted:
    from PIL import Image as Pillow

    with warnings.catch_warnings():
        warnings.simplefilter("error", Pillow.DecompressionBombWarning)
        opened = Pillow.open(BytesIO(data))
    with opened:
        size = width, height = opened.size
        if width * height > MOST_PIXELS:
            raise UnreadablePicture(_TOO_MANY_PIXELS)
        media = _SENT.get(opened.format or "")
        if media is not None and max(size) <= LARGEST_SIDE and len(data) <= MOST_BYTES:
            opened.load()
            return Fitted(media, data, size, size, changed=False)
        # Has the decoder scale a large JPEG down already, which takes a fraction of the time.
        opened.draft("RGB", (LARGEST_SIDE, LARGEST_SIDE))
        return _encoded(opened, size)


def halved(image: Image) -> Image:
    """The picture with each side halved and its weight quartered; unchanged if it cannot be read."""
    from PIL import Image as Pillow

    try:
        with Pillow.open(BytesIO(b64decode(image.data))) as opened:
            if opened.width * opened.height > MOST_PIXELS:
                return image
            most = LARGEST_SIDE // 2
            size = _within(opened.size, max(1, min(most, max(opened.size) // 2)))
            made = _smaller(_flat(opened), size)
    except Exception:
        return image
    return Image(made[0], b64encode(made[1]).decode(), weight=image.weight / 4, original=image.original)


def _encoded(opened: "Opened", before: tuple[int, int]) -> Fitted:
    flat = _flat(opened)
    for scale in _SCALES:
        size = _within(flat.size, max(1, round(min(LARGEST_SIDE, max(flat.size)) * scale)))
        media, data = _smaller(flat, size)
        if len(data) <= MOST_BYTES:
            return Fitted(media, data, before, size, changed=True)
    raise UnreadablePicture("it cannot be made small enough")


def _flat(opened: "Opened") -> "Opened":
    """The first frame, rotated as EXIF says, as RGB or RGBA."""
    from PIL import ImageOps

    upright = ImageOps.exif_transpose(opened)
    return upright.convert("RGBA" if upright.has_transparency_data else "RGB")


def _within(size: tuple[int, int], side: int) -> tuple[int, int]:
    """`size` with its longer side at most `side`, in the same proportions."""
    share = min(1.0, side / max(size))
    return max(1, round(size[0] * share)), max(1, round(size[1] * share))


def _smaller(flat: "Opened", size: tuple[int, int]) -> tuple[str, bytes]:
    """Media type and bytes of the picture at this size."""
    scaled = flat if size == flat.size else flat.resize(size, reducing_gap=2.0)
    target = BytesIO()
    if scaled.mode == "RGBA":
        scaled.save(target, "PNG")
        return "image/png", target.getvalue()
    scaled.save(target, "JPEG", quality=QUALITY)
    return "image/jpeg", target.getvalue()
