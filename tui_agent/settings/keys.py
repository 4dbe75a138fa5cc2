"""The settings as a flat table: every key with its default, its accepted values and its meaning; and parsing values."""

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Final, Literal, TypeAlias, Union, get_args, get_origin, get_type_hints

import msgspec
from msgspec import structs

from tui_agent.settings import schema
from tui_agent.settings.schema import Endpoint, Settings, ToolServer

Table: TypeAlias = Mapping[str, Endpoint] | Mapping[str, ToolServer]
Value: TypeAlias = bool | int | float | str | tuple[str, ...] | Table | None

SERVERS: Final = "mcp.servers"
"""The key of the MCP servers."""
HIDDEN: Final = "…"
"""Shown instead of a value that may be an API key."""
SERVER_NAME: Final = r"[A-Za-z0-9][A-Za-z0-9_-]{0,39}"
"""A pattern of valid server names."""

ADDED_UP = frozenset(
    {
        "clearing.never_clear",
        "permissions.allow",
        "permissions.ask",
        "permissions.deny",
        "permissions.folders",
        "permissions.network",
        "permissions.read",
        "permissions.variables",
        "models.endpoints",
        SERVERS,
    }
)
"""Lists to which each source adds, so that a project or a flag cannot remove a rule of the user's file."""

ONCE_A_SWITCH: Final = "permissions.network"
"""A list that was once true (everything) or false (nothing), and may still be written so."""
PAIRS = frozenset({"ui.keymap", "diagnostics.checks"})
"""Lists of `NAME=VALUE` strings that may also be given as an object."""

_TRUE = frozenset({"true", "yes", "on", "1"})
_FALSE = frozenset({"false", "no", "off", "0"})
_NULL = frozenset({"", "null", "none", "off"})


_NAME: Final = r"[a-z][a-z0-9_.-]{0,40}"
"""A pattern of valid endpoint names."""


class Allowed(msgspec.Struct, frozen=True):
    """The values that a setting accepts, derived from its type annotation."""

    kind: type
    """bool, int, float, str, tuple (of strings) or dict (of endpoints or servers)."""
    choices: tuple[str, ...] = ()
    """The accepted strings; empty: any."""
    nullable: bool = False
    bounds: msgspec.Meta = msgspec.Meta()
    record: "type[Endpoint | ToolServer] | None" = None
    """The type of a dict's values."""

    def described(self) -> str:
        """The accepted values, in words."""
        kind = _SERVERS if self.record is ToolServer else _KIND_NAMES[self.kind]
        text = "|".join(self.choices) or kind + _bounds_text(self.bounds)
        return f"{text} or null" if self.nullable else text


class Setting(msgspec.Struct, frozen=True):
    key: str
    default: Value
    allowed: Allowed
    annotation: object
    """Its type, with its bounds."""


class BadValueError(ValueError):
    """A setting does not accept a value; the text says what it accepts."""


_KIND_NAMES: Mapping[type, str] = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "a text",
    tuple: "a list of texts",
    dict: "an object of endpoints by name",
}

_SERVERS: Final = "an object of servers by name, each with `command` and `args`, or `url`"

_JSON_NAMES: Mapping[str, str] = {"True": "true", "False": "false", "None": "null"}


@cache
def settings_by_key() -> Mapping[str, Setting]:
    """All settings by key, in the order of the sections."""
    return {setting.key: setting for setting in _walk("", Settings())}


def values_by_key(settings: Settings) -> Mapping[str, Value]:
    """All values of `settings` by key."""
    return {setting.key: setting.default for setting in _walk("", settings)}


def section_keys() -> frozenset[str]:
    """The keys of sections, such as `compaction` and `compaction.threshold_by_tier`."""
    return frozenset(key.rsplit(".", count)[0] for key in settings_by_key() for count in range(1, key.count(".") + 1))


def nearest(name: str, names: Iterable[str]) -> str | None:
    """The most similar of `names`, or the one that ends like `name`; None if nothing is close."""
    from difflib import get_close_matches

    candidates = list(names)
    close = get_close_matches(name, candidates, n=1, cutoff=0.6)
    if close:
        return close[0]
    last = name.rsplit(".", 1)[-1]
    by_last = {candidate.rsplit(".", 1)[-1]: candidate for candidate in candidates}
    close = get_close_matches(last, list(by_last), n=1, cutoff=0.75)
    return by_last[close[0]] if close else None


def checked_value(setting: Setting, value: object) -> Value:
    """Convert `value`, decoded from JSON or given by a program, to the setting's type. Raises BadValueError.

    An int is accepted for a float, any sequence of strings for a list.
    """
    allowed = setting.allowed
    if setting.key in PAIRS and isinstance(value, dict) and all(map(_is_text, value.values())):
        value = [f"{name}={text}" for name, text in value.items()]
    if setting.key == ONCE_A_SWITCH and isinstance(value, bool):
        value = ["*"] if value else []
    if allowed.kind is dict and isinstance(value, Mapping):
        _check_names(allowed, value)
    try:
        checked: Value = msgspec.convert(value, setting.annotation)
    except (msgspec.ValidationError, UnicodeEncodeError) as error:  # the latter for text that is no valid UTF-8
        if allowed.kind is dict and isinstance(value, Mapping):
            raise BadValueError(f"expected {allowed.described()}: {error}") from None
        raise _refusal(allowed, value) from None
    texts = checked if isinstance(checked, tuple) else [checked] if isinstance(checked, str) else []
    if not all(map(_is_text, texts)) or (isinstance(checked, float) and not math.isfinite(checked)):
        raise _refusal(allowed, value)
    return checked


def value_from_text(setting: Setting, text: str) -> Value:
    """Convert `text`, from an environment variable or a flag, to the setting's type.

    Lists are JSON arrays, or strings separated by commas. Raises BadValueError.
    """
    allowed = setting.allowed
    stripped = text.strip()
    if allowed.nullable and stripped.lower() in _NULL:
        return None
    if allowed.kind is str:
        return checked_value(setting, text if not allowed.choices else stripped)
    if allowed.kind is bool:
        if stripped.lower() not in _TRUE | _FALSE:
            raise _refusal(allowed, text)
        return stripped.lower() in _TRUE
    if setting.key == ONCE_A_SWITCH and stripped.lower() in {"true", "false"}:
        return checked_value(setting, stripped.lower() == "true")
    if allowed.kind is tuple:
        return _read_list(setting, stripped)
    if allowed.kind is dict:
        try:
            return checked_value(setting, msgspec.json.decode(stripped))
        except (msgspec.DecodeError, UnicodeEncodeError):
            raise _refusal(allowed, text) from None
    try:
        number = int(stripped) if allowed.kind is int else float(stripped)
    except ValueError:
        raise _refusal(allowed, text) from None
    return checked_value(setting, number)


def json_text(value: Value) -> str:
    """`value` as JSON, as in a settings file; values that may be API keys are hidden."""
    if not isinstance(value, Mapping):
        return msgspec.json.encode(value).decode()
    shown = {name: _without_keys(each) if isinstance(each, ToolServer) else each for name, each in value.items()}
    return msgspec.json.encode(shown).decode()


def _without_keys(server: ToolServer) -> ToolServer:
    """The server with the values of its variables and headers, and what it signs in with, hidden."""
    env, headers, oauth = dict.fromkeys(server.env, HIDDEN), dict.fromkeys(server.headers, HIDDEN), server.oauth
    if oauth is not None:
        secret = {name: HIDDEN for name in ("client_secret", "private_key") if getattr(oauth, name)}
        oauth = msgspec.structs.replace(oauth, **secret)
    return msgspec.structs.replace(server, env=env, headers=headers, oauth=oauth)


def _read_list(setting: Setting, text: str) -> Value:
    if not text.startswith("["):
        return checked_value(setting, [item for item in (part.strip() for part in text.split(",")) if item])
    try:
        return checked_value(setting, msgspec.json.decode(text))
    except (msgspec.DecodeError, UnicodeEncodeError):
        raise _refusal(setting.allowed, text) from None


def _check_names(allowed: Allowed, value: Mapping[str, object]) -> None:
    for name in map(str, value):
        if allowed.record is ToolServer and not re.fullmatch(SERVER_NAME, name):
            raise BadValueError(
                f"{name[:80]!r} is not a valid name for a server: letters, digits, - and _ (at most 40)"
            )
        if allowed.record is Endpoint and not re.fullmatch(_NAME, name):
            raise _refusal(allowed, value)


def _is_text(value: object) -> bool:
    return isinstance(value, str) and not any("\ud800" <= character <= "\udfff" for character in value)


def _bounds_text(bounds: msgspec.Meta) -> str:
    if bounds.ge is not None and bounds.le is not None:
        return f" from {bounds.ge:g} to {bounds.le:g}"
    if bounds.gt is not None and bounds.le is not None:
        return f" above {bounds.gt:g}, up to {bounds.le:g}"
    if bounds.gt is not None:
        return f" above {bounds.gt:g}"
    return f" of at least {bounds.ge:g}" if bounds.ge is not None else ""


def _refusal(allowed: Allowed, value: object) -> BadValueError:
    text = "a section" if isinstance(value, dict) else _JSON_NAMES.get(repr(value), repr(value))
    hint = ""
    if allowed.choices and isinstance(value, str):
        from difflib import get_close_matches

        close = get_close_matches(value.strip().lower(), allowed.choices, n=1)
        hint = f"; did you mean {close[0]}?" if close else ""
    return BadValueError(f"expected {allowed.described()}, got {text if len(text) <= 80 else text[:77] + '…'}{hint}")


def _walk(prefix: str, section: msgspec.Struct) -> Iterator[Setting]:
    hints = get_type_hints(type(section), include_extras=True)
    for name in section.__struct_fields__:
        value = getattr(section, name)
        key = f"{prefix}{name}"
        if isinstance(value, msgspec.Struct):
            yield from _walk(f"{key}.", value)
        elif prefix:  # a top-level field, such as `sources`, is not a setting
            yield Setting(key, value, _allowed(hints[name]), hints[name])


def _allowed(annotation: object) -> Allowed:
    origin = get_origin(annotation)
    if origin in {Union, UnionType}:
        (inner,) = (part for part in get_args(annotation) if part is not NoneType)
        return structs.replace(_allowed(inner), nullable=True)
    if origin is Annotated:
        inner, bounds = get_args(annotation)
        return structs.replace(_allowed(inner), bounds=bounds)
    if origin is Literal:
        return Allowed(str, choices=get_args(annotation))
    if origin is dict:
        return Allowed(dict, record=get_args(annotation)[1])
    if origin is tuple:
        return Allowed(tuple)
    if isinstance(annotation, type) and annotation in _KIND_NAMES:
        return Allowed(annotation)
    raise TypeError(f"a setting cannot be of type {annotation!r}")


def meanings() -> dict[tuple[str, str], str]:
    """The docstring under each field of each settings section; that of a section itself has an empty name.

    Reads and parses the schema: some ten milliseconds.
    """
    import ast

    module = ast.parse(Path(schema.__file__).read_text(encoding="utf-8"))
    found: dict[tuple[str, str], str] = {}
    for section in (node for node in module.body if isinstance(node, ast.ClassDef)):
        found[section.name, ""] = ast.get_docstring(section) or ""
        for setting, below in zip(section.body, section.body[1:], strict=False):
            if isinstance(setting, ast.AnnAssign) and isinstance(setting.target, ast.Name):
                match below:
                    case ast.Expr(value=ast.Constant(value=str() as text)):
                        found[section.name, setting.target.id] = text
    return found


def section_name(key: str) -> str:
    """The class that declares the last part of `key`."""
    section: object = Settings()
    for part in key.split(".")[:-1]:
        section = getattr(section, part)
    return type(section).__name__


def meaning_of(key: str) -> str:
    """What one setting means, on one line."""
    return " ".join(meanings()[section_name(key), key.rsplit(".", 1)[-1]].split())
