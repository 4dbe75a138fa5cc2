"""Nested values in the front matter of a Markdown file: what Claude Code's skills, agents and commands say of hooks.

`tools.notes.front_matter` reads the plain keys, which people write in ways that are no YAML.
"""

import re
from typing import Final

from tui_agent.regex import regex

_MORE: Final = regex(r"\s*(?:#.*)?|[ \t].*|-(?:\s.*)?")
"""A line that belongs to the key above it: empty, a comment, indented, or an item of a list."""


def front_value(text: str, key: str) -> object:
    """The value of a key at the top of a file's front matter; None if there is none.

    Raises ValueError, saying what of it cannot be read. What is repeated by name (``&a``, ``*a``) is refused: a few
    lines could stand for more than fits into memory.
    """
    lines = re.split(r"\r\n|\r|\n", text.removeprefix("\ufeff"))
    if lines[0].rstrip() != "---":
        return None
    end = next((number for number, line in enumerate(lines[1:], 1) if line.rstrip() in {"---", "..."}), 0)
    top = re.compile(rf"{re.escape(key)}[ \t]*:(?:[ \t].*)?", re.IGNORECASE)
    start = next((number for number, line in enumerate(lines[1:end], 1) if top.fullmatch(line)), 0)
    if not start:
        return None
    rest = lines[start + 1 : end]
    many = next((number for number, line in enumerate(rest) if not _MORE.fullmatch(line)), len(rest))
    return _value("\n".join([lines[start], *rest[:many]]))


def _value(text: str) -> object:
    """The value of the one key of a YAML document. Raises ValueError."""
    import yaml

    repeated = yaml.AnchorToken, yaml.AliasToken, yaml.TagToken
    try:
        if any(isinstance(token, repeated) for token in yaml.scan(text, yaml.SafeLoader)):
            raise ValueError("anchors, aliases and tags of YAML are not read here")
        document = yaml.load(text, yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        place = f" (line {error.problem_mark.line + 1} of it)" if error.problem_mark is not None else ""
        raise ValueError(f"{error.problem or error.context or 'it is no YAML'}{place}") from error
    except yaml.YAMLError as error:
        raise ValueError(str(error).split("\n")[0]) from error
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    return next(iter(document.values())) if isinstance(document, dict) else None
