"""Parsing the front matter of a Markdown file: the scalar keys between two lines of ``---``.

It supports the part of YAML used in such headers: plain, quoted, folded (``>``) and literal (``|``) strings, plain
strings continued on indented lines, and lists of strings, whose items are joined by commas. Maps are skipped: their
keys get an empty text.
"""

import json
import re

from tui_agent.regex import regex

_KEY = regex(r"([A-Za-z_][\w-]*)[ \t]*:(?:[ \t]+(.*))?$")
_ITEM = regex(r"""\s*("(?:[^"\\]|\\.)*"|'(?:[^']|'')*'|[^,]+)\s*(?:,|$)""")
_BLOCK = regex(r"([|>])[+-]?\d?[+-]?[ \t]*(?:#.*)?$")
_ESCAPE = regex(r"\\(x[0-9A-Fa-f]{2}|u[0-9A-Fa-f]{4}|U[0-9A-Fa-f]{8}|.)", re.DOTALL)
_SIMPLE = {"n": "\n", "t": "\t", "r": "\r", "0": "\0", "e": "\x1b", "a": "\a", "b": "\b", "f": "\f", "v": "\v"}


def split_front_matter(text: str) -> tuple[dict[str, str], str]:
    """The keys of a file's front matter, in lower case, and the text after it. Raises nothing."""
    lines = re.split(r"\r\n|\r|\n", text.removeprefix("\ufeff"))
    if not lines or lines[0].rstrip() != "---":
        return {}, text
    end = next((number for number, line in enumerate(lines[1:], 1) if line.rstrip() in {"---", "..."}), None)
    if end is None:
        return {}, text
    return _keys(lines[1:end]), "\n".join(lines[end + 1 :]).lstrip("\n")


def header(keys: dict[str, str]) -> str:
    """The front matter for `keys`, with each text on one line, including the closing ``---``."""
    lines = [f"{key}: {json.dumps(value, ensure_ascii=False)}" for key, value in keys.items()]
    return "\n".join(["---", *lines, "---", ""])


def _keys(lines: list[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    number = 0
    while number < len(lines):
        match = _KEY.match(lines[number])
        number += 1
        if not match:
            continue
        first = number
        while number < len(lines) and (not lines[number].strip() or lines[number][0] in " \t"):
            number += 1
        found.setdefault(match[1].lower(), _value((match[2] or "").strip(), lines[first:number]))
    return found


def _value(first: str, more: list[str]) -> str:
    block = _BLOCK.match(first)
    if block:
        return _block(more, folded=block[1] == ">")
    whole = _folded([first, *(line.strip() for line in more)])
    items = _items(first, more, whole)
    if items:
        return ", ".join(items)
    if first.startswith(("[", "{", "&", "*", "!")) or (not first and any(_is_nested(line) for line in more)):
        return ""
    if whole[:1] in {'"', "'"}:
        return _quoted(whole)
    return re.sub(r"(?:^|[ \t])#.*$", "", whole, flags=re.MULTILINE).strip()


def _items(first: str, more: list[str], whole: str) -> list[str]:
    """The items of a list of strings, in brackets or one on each line; empty if it is none."""
    if first.startswith("[") and whole.endswith("]"):
        found = _ITEM.findall(whole[1:-1])
    elif not first and (lines := [line.strip() for line in more if line.strip()]):
        found = [line[1:].strip() for line in lines if line.startswith("- ")]
        if len(found) != len(lines) or any(_KEY.match(item) for item in found):
            return []
    else:
        return []
    return [text for item in found if (text := _quoted(item) if item[:1] in {'"', "'"} else item.strip())]


def _is_nested(line: str) -> bool:
    return bool(re.match(r"\s*(?:- |-$|[\w-]+:(?:\s|$))", line))


def _block(lines: list[str], *, folded: bool) -> str:
    filled = [line for line in lines if line.strip()]
    indent = min((len(line) - len(line.lstrip()) for line in filled), default=0)
    texts = [line[indent:].rstrip() for line in lines]
    return _folded(texts) if folded else "\n".join(texts).strip("\n")


def _folded(lines: list[str]) -> str:
    """The lines joined by spaces; an empty line becomes a line break."""
    text = ""
    for line in lines:
        if not line:
            text += "\n"
        else:
            text += line if not text or text.endswith("\n") else f" {line}"
    return text.strip("\n")


def _quoted(text: str) -> str:
    """The text within quotes; to the end if the closing quote is missing."""
    if text[0] == "'":
        match = re.match(r"'((?:[^']|'')*)", text)
        return match[1].replace("''", "'") if match else ""
    match = re.match(r'"((?:[^"\\]|\\.)*)', text, re.DOTALL)
    return _ESCAPE.sub(_unescaped, match[1]) if match else ""


def _unescaped(match: re.Match[str]) -> str:
    code = match[1]
    if len(code) > 1:
        number = int(code[1:], 16)
        return chr(number) if number < 0x110000 else "\ufffd"
    return _SIMPLE.get(code, code)
