"""The fenced code in an answer, for copying."""

import re
from typing import Final

_FENCE: Final = re.compile(
    r"^ *(?:[-*+>]\s+|\d{1,9}[.)]\s+)?(?P<mark>`{3,}|~{3,})[^\n`]*\n"
    r"(?P<code>.*?)(?:^[ >]*(?P=mark)[`~]*[ ]*$|\Z)",
    re.MULTILINE | re.DOTALL,
)


def fenced_code(text: str) -> list[str]:
    """The code of each fence in a Markdown text, without the fences; an open one counts to the end."""
    return [_outdented(found["code"].removesuffix("\n")) for found in _FENCE.finditer(text)]


def _outdented(code: str) -> str:
    lines = code.split("\n")
    indent = min((len(line) - len(line.lstrip(" ")) for line in lines if line.strip()), default=0)
    return "\n".join(line[indent:] for line in lines)
