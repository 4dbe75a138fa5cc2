"""Writing a choice of the user's into their settings file, beside all that stands there."""

import json
import re
from pathlib import Path
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from tui_agent.settings.keys import BadValueError, Value, checked_value, settings_by_key
from tui_agent.settings.schema import Settings
from tui_agent.settings.sources import USER_FILE, SettingsError, read_document

_LOCK_FILE: Final = ".config.lock"
_INDENT: Final = re.compile(r"\n([ \t]+)\S")


def keep_setting(home: Path, key: str, value: Value) -> Path:
    """Set `key` in the user's settings file, which is made where it is missing; the file.

    All else stays as it is, in its order and with its indentation (JSON has no comments). The file is replaced in one
    step, for the user alone. Raises SettingsError where it cannot be written, or is none that can be read: then it is
    left alone.
    """
    from tui_agent.durable import make_private_folder, one_at_a_time, write_file

    try:
        checked = checked_value(settings_by_key()[key], value)
    except BadValueError as error:
        raise SettingsError([f"{key}: {error}"]) from None
    path = home / USER_FILE
    try:
        make_private_folder(home)
        with one_at_a_time(home / _LOCK_FILE):
            # A link, as of a folder of settings kept elsewhere, goes on being one.
            write_file(path.resolve(), _with(path, key, checked).encode())
    except OSError as error:
        raise SettingsError([f"{path}: cannot be written: {error.strerror}"]) from None
    return path


def _with(path: Path, key: str, value: Value) -> str:
    """The text of the file with `key` set. Raises SettingsError."""
    document = dict(read_document(path) or {})
    *sections, name = key.split(".")
    place = document
    for section in sections:
        inner = place.setdefault(section, {})
        if not isinstance(inner, dict):
            raise SettingsError([f"{path}: {key}: expected a section {{…}}"])
        place = inner
    place[name] = value
    text = path.read_text(encoding="utf-8-sig") if path.exists() else ""
    indent = _INDENT.search(text)
    return json.dumps(document, indent=indent[1] if indent else 2, ensure_ascii=False) + "\n"


def with_setting(settings: Settings, key: str, value: Value, origin: str) -> Settings:
    """`settings` with another value of `key`, as they will be loaded at the next start."""
    *sections, name = key.split(".")
    changed: object = value
    for depth in range(len(sections), -1, -1):
        place: Struct = settings
        for section in sections[:depth]:
            place = getattr(place, section)
        changed = replace(place, **{[*sections, name][depth]: changed})
    if not isinstance(changed, Settings):
        raise TypeError(f"{key} is no setting")
    return replace(changed, sources={**settings.sources, key: origin})
