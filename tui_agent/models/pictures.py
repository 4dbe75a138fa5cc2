"""Making pictures smaller where they are too large to be sent."""

from base64 import b64decode, b64encode
from io import BytesIO

from tui_agent.conversation.blocks import Image

MOST_PIXELS = 100_000_000
"""A picture of more pixels is not opened: it would take more memory than it is worth."""
QUALITY = 80
"""JPEG quality of a picture made smaller."""


def halved(image: Image) -> Image:
    """The picture with each side halved, counted as a quarter of one; as it is where it cannot be read.

    Slow (decodes and encodes): call it off the event loop.
    """
    from PIL import Image as Pillow

    try:
        with Pillow.open(BytesIO(b64decode(image.data))) as opened:
            if opened.width * opened.height > MOST_PIXELS:
                return image
            size = (max(1, opened.width // 2), max(1, opened.height // 2))
            flat = opened.convert("RGBA" if opened.has_transparency_data else "RGB").resize(size)
    except Exception:
        # What Pillow raises for a damaged picture depends on its format: struct.error, EOFError, KeyError and others.
        return image
    target = BytesIO()
    if flat.mode == "RGBA":
        flat.save(target, "PNG")
        return Image("image/png", b64encode(target.getvalue()).decode(), weight=image.weight / 4)
    flat.save(target, "JPEG", quality=QUALITY)
    return Image("image/jpeg", b64encode(target.getvalue()).decode(), weight=image.weight / 4)
