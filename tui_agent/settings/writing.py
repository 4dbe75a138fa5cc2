"""Saving a choice of the user's in their settings file."""

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from tui_agent.regex import regex
from tui_agent.settings.keys import SERVERS, BadValueError, Value, checked_value, settings_by_key
from tui_agent.settings.schema import Settings
from tui_agent.settings.sources import USER_FILE, SettingsError, read_document

_LOCK_FILE: Final = ".config.lock"
_NOTHING: Final = object()
"""In place of a value: there is none any more."""
_INDENT: Final = regex(r"\n([ \t]+)\S")


def keep_setting(home: Path, key: str, value: Value) -> Path:
    """Set `key` in the user's settings file, which is created if missing; returns its path.

    Everything else in it keeps its order and indentation. The file is replaced atomically, with
    access for the user only. Raises SettingsError if it cannot be written or parsed, and leaves it unchanged then.
    """
    try:
        checked = checked_value(settings_by_key()[key], value)
    except BadValueError as error:
        raise SettingsError([f"{key}: {error}"]) from None
    return _keep(home, key, lambda _: checked)


def forget_setting(home: Path, key: str) -> Path:
    """Take `key` out of the user's settings file, as `keep_setting` puts it in; returns the file's path."""
    return _keep(home, key, lambda _: _NOTHING)


def keep_servers(home: Path, servers: Mapping[str, object], *, without: str = "") -> Path:
    """Add MCP servers to the user's settings file, where those of the same names stay, and remove the one called
    `without`; otherwise as `keep_setting`.
    """

    def changed(before: object) -> object:
        listed = before if isinstance(before, dict) else {}
        return {name: server for name, server in {**listed, **servers, **listed}.items() if name != without}

    return _keep(home, SERVERS, changed)


def _keep(home: Path, key: str, change: Callable[[object], object]) -> Path:
    from tui_agent.system.durable import make_private_folder, one_at_a_time, write_file

    path = home / USER_FILE
    try:
        make_private_folder(home)
        with one_at_a_time(home / _LOCK_FILE):
            # Write through a link, such as into a repository of settings, instead of replacing it.
            write_file(path.resolve(), _with(path, key, change).encode())
    except OSError as error:
        raise SettingsError([f"{path}: cannot be written: {error.strerror}"]) from None
    return path


def _with(path: Path, key: str, change: Callable[[object], object]) -> str:
    """The file's text with the value of `key` changed. Raises SettingsError."""
    document = dict(read_document(path) or {})
    *sections, name = key.split(".")
    place = document
    for section in sections:
        inner = place.setdefault(section, {})
        if not isinstance(inner, dict):
            raise SettingsError([f"{path}: {key}: expected a section {{…}}"])
        place = inner
    if (changed := change(place.get(name))) is _NOTHING:
        place.pop(name, None)
    else:
        place[name] = changed
    text = path.read_text(encoding="utf-8-sig") if path.exists() else ""
    if re.search(r"//|/\*", re.sub(r'"(?:\\.|[^"\\])*"', "", text)):
        raise SettingsError([f"{path}: it has comments, which would be lost: set {key} there yourself"])
    indent = _INDENT.search(text)
    return json.dumps(document, indent=indent[1] if indent else 2, ensure_ascii=False) + "\n"


def with_setting(settings: Settings, key: str, value: Value, origin: str) -> Settings:
    """`settings` with a new value of `key`, as the next start will load them; an empty `origin`: it is built in."""
    *sections, name = key.split(".")
    changed: object = value
    for depth in range(len(sections), -1, -1):
        place: Struct = settings
        for section in sections[:depth]:
            place = getattr(place, section)
        changed = replace(place, **{[*sections, name][depth]: changed})
    if not isinstance(changed, Settings):
        raise TypeError(f"{key} is not a setting")
    sources = {**settings.sources, key: origin}
    return replace(changed, sources={each: source for each, source in sources.items() if source})
