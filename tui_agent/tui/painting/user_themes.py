"""The user's own themes: one JSON file each in `<home>/themes`.

A file must have `primary`, `background` and `foreground`, and may have `dark` (a boolean, default true), `secondary`,
`accent`, `warning`, `error`, `success`, `surface`, `panel` and `variables`. A colour is anything Textual's CSS accepts.
The file's name without its suffix is the theme's name.
"""

from collections.abc import Collection
from pathlib import Path
from typing import Annotated, Final, NamedTuple

import msgspec
from textual.color import Color, ColorParseError
from textual.theme import Theme

from tui_agent.regex import regex
from tui_agent.text import one_line

MAX_BYTES: Final = 65_536
_NAME: Final = regex(r"[a-z0-9][a-z0-9_-]{0,30}")
_COLOR_VARIABLE: Final = regex(r"[a-z][a-z0-9-]{0,60}")

ColorText = Annotated[str, msgspec.Meta(max_length=40)]


class _File(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    primary: ColorText
    background: ColorText
    foreground: ColorText
    secondary: ColorText | None = None
    accent: ColorText | None = None
    warning: ColorText | None = None
    error: ColorText | None = None
    success: ColorText | None = None
    surface: ColorText | None = None
    panel: ColorText | None = None
    dark: bool = True
    variables: dict[str, ColorText] = {}

    def colors(self) -> dict[str, str]:
        """Every colour that is set, by its field or variable."""
        named = {field: getattr(self, field) for field in self.__struct_fields__ if field not in ("dark", "variables")}
        own = {f"variables.{name}": value for name, value in self.variables.items()}
        return {name: value for name, value in (named | own).items() if value is not None}


class UserThemes(NamedTuple):
    """The usable themes, and one line for each unusable file."""

    themes: tuple[Theme, ...]
    problems: tuple[str, ...]


def load_user_themes(home: Path, taken: Collection[str]) -> UserThemes:
    """Load the themes in `<home>/themes`. A file whose name is in `taken` is a problem. Never raises."""
    themes: list[Theme] = []
    problems: list[str] = []
    folder = home / "themes"
    try:
        paths = sorted(folder.glob("*.json")) if folder.is_dir() else []
    except OSError as error:
        return UserThemes((), (f"{folder}: {error.strerror}",))
    for path in paths:
        try:
            themes.append(_theme(path, taken))
        except _Unusable as problem:
            problems.append(f"{one_line(path.name, 60)}: {one_line(str(problem), 200)}")
    return UserThemes(tuple(themes), tuple(problems))


class _Unusable(Exception):
    """A file is not a valid theme; the message says why."""


def _theme(path: Path, taken: Collection[str]) -> Theme:
    name = path.stem
    if not _NAME.fullmatch(name):
        raise _Unusable("its name may hold small letters, digits, - and _ only")
    if name in taken:
        raise _Unusable("there is a shipped theme of this name; rename the file")
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise _Unusable(f"it cannot be read ({error.strerror})") from error
    if len(data) > MAX_BYTES:
        raise _Unusable(f"it is larger than {MAX_BYTES:,} bytes")
    try:
        read = msgspec.json.decode(data, type=_File)
    except msgspec.DecodeError as error:
        raise _Unusable(str(error)) from error
    _check_colors(read)
    return Theme(
        name=name,
        primary=read.primary,
        secondary=read.secondary or read.primary,
        accent=read.accent or read.primary,
        warning=read.warning or read.primary,
        error=read.error or read.primary,
        success=read.success or read.primary,
        foreground=read.foreground,
        background=read.background,
        surface=read.surface or read.background,
        panel=read.panel or read.surface or read.background,
        dark=read.dark,
        variables=_with_scrollbar(read),
    )


def _check_colors(read: _File) -> None:
    for place, value in read.colors().items():
        try:
            color = Color.parse(value)
        except ColorParseError as error:
            raise _Unusable(f"{place}: {value!r} is no colour") from error
        if color.a < 1:
            raise _Unusable(f"{place}: {value!r} is not opaque")
        if not _COLOR_VARIABLE.fullmatch(place.removeprefix("variables.")):
            raise _Unusable(f"{place} is no name of a variable")


def _with_scrollbar(read: _File) -> dict[str, str]:
    quiet = Color.parse(read.background).blend(Color.parse(read.foreground), 0.15).hex
    defaults = {"border-blurred": quiet, "scrollbar": quiet, "scrollbar-background": read.background}
    return defaults | read.variables
