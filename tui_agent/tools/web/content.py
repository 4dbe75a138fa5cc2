"""Decoding what a server sent into text or a picture for the model."""

import base64
import codecs
import re

import msgspec

from tui_agent.conversation.blocks import Image
from tui_agent.regex import regex
from tui_agent.tools.base import ToolFailure
from tui_agent.tools.files.encodings import sniff
from tui_agent.tools.gate.workspace import shown

_PAGES = frozenset(("text/html", "application/xhtml+xml"))
_PAGE = regex(rb"<(?:!doctype\s+html|html|head|body)\b", re.IGNORECASE)
_DECLARED = regex(rb"<meta\b[^>]{0,300}?\bcharset\s*=\s*[\"']?\s*([A-Za-z0-9_:.-]{1,40})", re.IGNORECASE)
_PRESCAN = 2_048
_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
# Charsets that browsers know. Python's other codecs (punycode, unicode_escape, utf-7) could make the text differ from
# what other readers of the page see.
_CHARSET = regex(
    r"utf-?(?:8|16|32)(?:-[bl]e)?|ascii|iso8859-\d+|cp\d+|koi8-[rtu]|gbk|gb2312|gb18030|hz|big5(?:hkscs)?|euc_\w+|"
    r"shift_jis\w*|iso2022_\w+|johab|mac-\w+|tis-620|ptcp154|kz1048"
)


class Content(msgspec.Struct, frozen=True):
    """The `text` or the `image` of a body. `kind` is the media type; `is_page`: the text is HTML."""

    text: str = ""
    kind: str = ""
    image: Image | None = None
    is_page: bool = False


def read_content(body: bytes, content_type: str) -> Content:
    """Tell what a body contains, and decode it. A large one takes tens of milliseconds: call it in a thread.

    `content_type` is the header's value, or empty. Raises ToolFailure for what cannot be read: PDF, archives, programs.
    """
    media, charset = _parsed(content_type)
    found = sniff(body[:65_536], whole=len(body) <= 65_536)
    if found.is_image:
        return Content(image=Image(found.media, base64.b64encode(body).decode()), kind=found.media)
    wide = charset.startswith(("utf-16", "utf-32"))
    if found.encoding is None and not (wide or body.startswith((codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE))):
        raise _unreadable(media if found.media == "binary" and media else found.media)
    if media in _PAGES or ((not media or media == "application/octet-stream") and _looks_like_page(body)):
        return Content(decoded(body, charset, is_page=True), media or "text/html", is_page=True)
    return Content(decoded(body, charset), kind=media or "text/plain")


def decoded(body: bytes, charset: str, *, is_page: bool = False) -> str:
    """Decode a body, by the first of these that applies: its byte order mark, UTF-8 if it is valid, `charset`, the
    page's own declaration, windows-1252. Invalid bytes become U+FFFD.
    """
    for mark, encoding in _MARKS:
        if body.startswith(mark):
            return body.decode(encoding, errors="replace").removeprefix("\ufeff")
    wide = charset.startswith(("utf-16", "utf-32"))
    if not wide:
        try:
            # Text in another encoding is hardly ever valid UTF-8, so a different declaration is wrong.
            return body.decode()
        except UnicodeDecodeError:
            pass
    declared = _DECLARED.search(body[:_PRESCAN]) if is_page and not charset else None
    encoding = _known(declared[1].decode()) if declared else charset
    if encoding in {"", "utf-8"} and _mostly_valid(body):
        return body.decode(errors="replace")
    if encoding in {"", "utf-8", "ascii", "iso8859-1"}:
        encoding = "cp1252"
    return body.decode(encoding, errors="replace")


def _looks_like_page(body: bytes) -> bool:
    beginning = body[:_PRESCAN].lstrip()
    return beginning.startswith(b"<") and bool(_PAGE.search(beginning))


def _mostly_valid(body: bytes) -> bool:
    """Whether the body is UTF-8 except for a few broken bytes."""
    broken = body[:200_000].decode(errors="replace").count("\ufffd")
    high = sum(1 for byte in body[:200_000] if byte >= 0x80)
    return broken * 10 < high


def _parsed(content_type: str) -> tuple[str, str]:
    """The media type in lower case and the name of the codec; each is empty if it is missing or unknown."""
    media, _, parameters = content_type.partition(";")
    match = re.search(r"charset\s*=\s*[\"']?([^\s\"';]{1,40})", parameters, re.IGNORECASE)
    return media.strip().lower(), _known(match[1]) if match else ""


def _known(name: str) -> str:
    try:
        codec = codecs.lookup(name).name
    except (LookupError, UnicodeError, ValueError):
        return ""
    return codec if _CHARSET.fullmatch(codec) else ""


def _unreadable(media: str) -> ToolFailure:
    if media == "application/pdf":
        return ToolFailure(
            "It is a PDF, which cannot be read from here.",
            "Save it with a command (curl -L -o FILE URL) and turn it into text with another (pdftotext), or look for "
            "the same text as a web page.",
        )
    return ToolFailure(
        f"It is not text but {shown(media, 100)}, which cannot be read from here.",
        "Save it with a command such as curl if it is needed.",
    )
