"""Nested values in the front matter of a Markdown file: what Claude Code's skills, agents and commands say of hooks.

It reads the part of YAML that such headers have: maps and lists by indentation, in braces and in brackets; plain,
quoted, folded (``>``) and literal (``|``) texts; truth values and numbers. Anchors, aliases and tags are refused.
`tools.notes.front_matter` reads the plain keys.
"""

import json
import re
from typing import Final

from tui_agent.regex import regex

_QUOTED: Final = r"""\"(?:[^"\\]|\\.)*\"|'(?:[^']|'')*'"""
_KEY: Final = regex(rf"""({_QUOTED}|[^\s\[\]{{}},"'#&*!|>%@`-][^#]*?|-[^\s#][^#]*?)[ ]*:(?:[ ]+(.*)|$)""")
_BLOCK: Final = regex(r"([|>])([+-]?)(\d?)([+-]?)[ ]*(?:#.*)?$")
_COMMENT: Final = regex(rf"((?:{_QUOTED}|(?<!\s)#|[^#])*?)(?:(?:^|\s)#.*)?$", re.DOTALL)
_NUMBER: Final = regex(r"[-+]?(?:\d+|\d*\.\d+|\d+\.\d*)(?:[eE][-+]?\d+)?")
_TOKEN: Final = regex(rf"""\s*({_QUOTED}|[\[\]{{}},]|:(?=\s|$|[\[{{"'])|(?:[^\[\]{{}},:\s]|:(?!\s|$))+)""")
_WORDS: Final = {"true": True, "false": False, "null": None, "~": None, "": None}
_DEEPEST: Final = 30


def front_value(text: str, key: str) -> object:
    """The value of a key at the top of a file's front matter; None if there is none.

    Raises ValueError, saying what of it cannot be read.
    """
    lines = re.split(r"\r\n|\r|\n", text.removeprefix("\ufeff"))
    if lines[0].rstrip() != "---":
        return None
    end = next((number for number, line in enumerate(lines[1:], 1) if line.rstrip() in {"---", "..."}), 0)
    top = re.compile(rf"{re.escape(key)}[ \t]*:(?:[ \t]+(.*))?$", re.IGNORECASE)
    for number, line in enumerate(lines[1:end], 1):
        if (found := top.match(line)) is not None:
            return _Reader(lines[number + 1 : end]).whole((found[1] or "").strip())
    return None


class _Reader:
    """Reads the lines behind a key, as far as they belong to it. Raises ValueError."""

    def __init__(self, lines: list[str]) -> None:
        self._lines = lines
        self._at = 0

    def whole(self, first: str) -> object:
        """The value of a key at the top, whose line ends with `first`."""
        found = self._value(first, 0, 0)
        if (following := self._next()) is not None and following[0] > 0:
            raise ValueError(f"this line is not understood: {following[1][:60]}")
        return found

    def _value(self, first: str, parent: int, depth: int, *, item: bool = False) -> object:
        """What stands behind a key, or the dash of an `item`: `first` ends its line, `parent` is its indentation."""
        if depth > _DEEPEST:
            raise ValueError("it is nested too deeply")
        if (block := _BLOCK.fullmatch(first)) is not None:
            return self._text(parent, folded=block[1] == ">", keeps="+" in block[2] + block[4], strips="-" in block[0])
        first = _bare(first)
        if not first:
            following = self._next()
            # A list may stand as far to the left as the key that it is the value of.
            listed = following is not None and not item and following[1][:1] == "-" and following[0] == parent
            if following is None or not (listed or following[0] > parent):
                return None
            return self._nested(following[0], depth)
        if first[0] in "&*!%@`":
            raise ValueError(f"this part of YAML is not read here: {first[:40]}")
        if first[0] in "[{":
            while _is_open(first):
                first += " " + self._more(parent, first)
            return _flow(first)
        if first[0] in "\"'":
            while _unquoted(first) is None:
                first += " " + self._more(parent, first)
            return _unquoted(first)
        while (following := self._next()) is not None and following[0] > parent and not _KEY.fullmatch(following[1]):
            first += " " + _bare(following[1])
            self._at += 1
        return _scalar(first)

    def _next(self) -> tuple[int, str] | None:
        """The indentation of the next line that says something, and what it says."""
        while self._at < len(self._lines):
            line = self._lines[self._at]
            said = line.strip()
            if said and not said.startswith("#"):
                indent = len(line) - len(line.lstrip(" "))
                if line[indent] == "\t":
                    raise ValueError("it is indented with tabs")
                return indent, said
            self._at += 1
        return None

    def _more(self, parent: int, begun: str) -> str:
        following = self._next()
        if following is None or following[0] <= parent:
            raise ValueError(f"this does not end: {begun[:40]}")
        self._at += 1
        return following[1]

    def _nested(self, indent: int, depth: int) -> object:
        following = self._next()
        if following is not None and re.match(r"-(?:\s|$)", following[1]):
            return self._list(indent, depth)
        return self._map(indent, depth)

    def _list(self, indent: int, depth: int) -> list[object]:
        found: list[object] = []
        while (following := self._next()) is not None and following[0] == indent and following[1][:1] == "-":
            said = following[1][1:].lstrip()
            inner = indent + len(following[1]) - len(said)
            if _KEY.fullmatch(said) or re.match(r"-\s", said):
                self._lines[self._at] = " " * inner + said
                found.append(self._nested(inner, depth + 1))
            else:
                self._at += 1
                found.append(self._value(said, indent, depth + 1, item=True))
        return found

    def _map(self, indent: int, depth: int) -> dict[str, object]:
        found: dict[str, object] = {}
        while (following := self._next()) is not None and following[0] >= indent:
            key = _KEY.fullmatch(following[1]) if following[0] == indent else None
            if key is None:
                if following[0] == indent and following[1][:1] == "-" and found:
                    break  # the next item of a list around it
                raise ValueError(f"this line is not understood: {following[1][:60]}")
            self._at += 1
            name = _unquoted(key[1]) if key[1][0] in "\"'" else key[1]
            found[str(name)] = self._value((key[2] or "").strip(), indent, depth + 1)
        return found

    def _text(self, parent: int, *, folded: bool, keeps: bool, strips: bool) -> str:
        first, lines = self._at, self._lines
        while self._at < len(lines) and (
            not lines[self._at].strip() or len(lines[self._at]) - len(lines[self._at].lstrip(" ")) > parent
        ):
            self._at += 1
        taken = lines[first : self._at]
        indent = min((len(line) - len(line.lstrip(" ")) for line in taken if line.strip()), default=0)
        texts = [line[indent:] if line.strip() else "" for line in taken]
        text = _folded(texts) if folded else "\n".join(texts)
        text = text if keeps else text.rstrip("\n")
        return text if strips or not text else f"{text}\n"


def _folded(lines: list[str]) -> str:
    """Lines joined by spaces, but for those that are empty or further to the right."""
    text = ""
    for number, line in enumerate(lines):
        before = lines[number - 1] if number else ""
        joined = bool(line and before and line[0] != " " and before[0] != " ")
        text += (" " if joined else "\n" if number and not (line and not before and text.endswith("\n")) else "") + line
    return text


def _bare(text: str) -> str:
    """A line's rest without its comment."""
    found = _COMMENT.fullmatch(text)
    return (found[1] if found is not None else text).strip()


def _scalar(text: str) -> object:
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    if _NUMBER.fullmatch(text):
        return float(text) if re.search(r"[.eE]", text) else int(text)
    return text


def _unquoted(text: str) -> str | None:
    """What is in the quotes; None if they do not end yet. Raises ValueError."""
    if text[0] == "'":
        whole = re.fullmatch(r"'((?:[^']|'')*)'", text)
        return whole[1].replace("''", "'") if whole is not None else None
    if re.fullmatch(r'"(?:[^"\\]|\\.)*"', text, re.DOTALL) is None:
        return None
    # What JSON does not know of its escapes stands for itself.
    mended = re.sub(r"\\([^\"\\/bfnrtu])", lambda found: {"e": "\\u001b", "0": "\\u0000"}.get(found[1], found[1]), text)
    return str(json.loads(mended, strict=False))


def _is_open(text: str) -> bool:
    """Whether brackets or braces are still open."""
    level = 0
    for sign in _TOKEN.findall(text):
        level += (sign in ("[", "{")) - (sign in ("]", "}"))
    return level > 0


def _flow(text: str) -> object:
    """A list in brackets, or a map in braces."""
    tokens = _TOKEN.findall(text)
    value, at = _of_flow(tokens, 0, 0)
    if at != len(tokens):
        raise ValueError(f"this is not understood: {text[:60]}")
    return value


def _of_flow(tokens: list[str], at: int, depth: int) -> tuple[object, int]:
    if depth > _DEEPEST or at >= len(tokens):
        raise ValueError("a list or map in brackets is not understood")
    opening = tokens[at]
    if opening not in ("[", "{"):
        words = []
        while at < len(tokens) and tokens[at] not in ("[", "]", "{", "}", ",", ":"):
            words.append(tokens[at])
            at += 1
        if len(words) == 1 and words[0][0] in "\"'":
            return _unquoted(words[0]), at
        return _scalar(" ".join(words)), at
    closing = "]" if opening == "[" else "}"
    listed: list[object] = []
    named: dict[str, object] = {}
    at += 1
    while at < len(tokens) and tokens[at] != closing:
        value, at = _of_flow(tokens, at, depth + 1)
        listed.append(value)
        if opening == "{":
            named[str(value)] = None
            if at < len(tokens) and tokens[at] == ":":
                named[str(value)], at = _of_flow(tokens, at + 1, depth + 1)
        if at < len(tokens) and tokens[at] == ",":
            at += 1
        elif at >= len(tokens) or tokens[at] != closing:
            raise ValueError("a list or map in brackets is not understood")
    if at >= len(tokens):
        raise ValueError("a list or map in brackets does not end")
    return (named if opening == "{" else listed), at + 1
