"""The styles of the pane, derived once per theme from the theme's variables."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import replace
from rich.style import Style
from textual.color import Color, ColorParseError

from tui_agent.tui.painting.glyphs import UNICODE, Glyphs, glyphs_of

if TYPE_CHECKING:
    from textual.app import App

_NO_COLOR = Color(0, 0, 0, 0)


class Palette(Struct, frozen=True):
    """A Rich style for each role. All are complete: each includes the background of `base` or its own."""

    base: Style
    strong: Style
    muted: Style
    faint: Style
    accent: Style
    heading: Style
    link: Style
    quote: Style
    inline_code: Style
    user: Style
    success: Style
    warning: Style
    error: Style
    code: Style
    keyword: Style
    string: Style
    number: Style
    comment: Style
    name: Style
    added: Style
    removed: Style
    added_word: Style
    removed_word: Style
    selected: Style

    @classmethod
    def from_theme(cls, variables: Mapping[str, str], *, in_dialog: bool = False) -> "Palette":
        """The styles of a theme, from `App.theme_variables`; in a dialog, its surface is the background."""
        background = _color(variables, "background")
        foreground = _color(variables, "foreground")
        surface, panel = _color(variables, "surface"), _color(variables, "panel")
        if background.ansi is not None:
            surface = panel = background
        elif in_dialog:
            background, surface = surface, panel
        error, success = _color(variables, "error"), _color(variables, "success")

        def on(color: Color, *, strength: float = 1.0, behind: Color = background) -> Style:
            return Style(color=_blend(behind, color, strength).rich_color, bgcolor=behind.rich_color)

        plain = on(foreground)
        # On a light background, grey text must be stronger to be as readable as on a dark one.
        is_light = background.ansi is None and background.brightness > 0.5
        muted = on(foreground, strength=0.8 if is_light else 0.72)
        palette = cls(
            base=plain,
            strong=plain + Style(bold=True),
            muted=muted,
            faint=on(foreground, strength=0.68 if is_light else 0.58),
            accent=on(_color(variables, "accent")),
            heading=on(_color(variables, "accent")) + Style(bold=True),
            link=on(_color(variables, "primary")) + Style(underline=True),
            quote=muted + Style(italic=True),
            inline_code=on(foreground, behind=panel),
            user=plain,
            success=on(success),
            warning=on(_color(variables, "warning")),
            error=on(error),
            code=on(foreground, behind=surface),
            keyword=on(_color(variables, "primary"), behind=surface),
            string=on(success, behind=surface),
            number=on(_color(variables, "warning"), behind=surface),
            comment=on(foreground, strength=0.7 if is_light else 0.6, behind=surface) + Style(italic=True),
            name=on(_color(variables, "secondary"), behind=surface),
            added=on(foreground, behind=_blend(background, success, 0.14)),
            removed=on(foreground, behind=_blend(background, error, 0.14)),
            added_word=on(foreground, behind=_blend(background, success, 0.34)),
            removed_word=on(foreground, behind=_blend(background, error, 0.34)),
            selected=on(foreground, behind=_blend(background, _color(variables, "primary"), 0.4)),
        )
        return palette if background.ansi is None else palette._without_tints(on(success), on(error))

    def _without_tints(self, success: Style, error: Style) -> "Palette":
        """A palette for the terminal's own colours: they cannot be blended, so use dim and coloured text for tints."""
        dim, strong = Style(dim=True), Style(bold=True, underline=True)
        return replace(
            self,
            faint=self.faint + dim,
            comment=self.comment + dim,
            inline_code=self.inline_code + Style(bold=True),
            added=success,
            removed=error,
            added_word=success + strong,
            removed_word=error + strong,
            selected=Style(reverse=True),
        )


class Look(Struct, frozen=True):
    """What painting needs besides the block and the width."""

    palette: Palette
    glyphs: Glyphs

    @classmethod
    def of(cls, app: "App[object]", *, in_dialog: bool = False) -> "Look":
        """That of an app's theme and symbols."""
        return cls(Palette.from_theme(app.theme_variables, in_dialog=in_dialog), glyphs_of(app))

    def quiet(self) -> "Look":
        """The same look with subdued text, for reasoning."""
        palette = self.palette
        strong = palette.muted + Style(bold=True)
        return replace(
            self, palette=replace(palette, base=palette.muted, strong=strong, heading=strong, accent=palette.faint)
        )


def _color(variables: Mapping[str, str], name: str) -> Color:
    value = variables.get(name)
    if value is None:
        # There is no theme yet. Parsing "" would make Textual search for similar colour names, a dozen times a start.
        return _NO_COLOR
    try:
        return Color.parse(value)
    except ColorParseError:
        return _NO_COLOR


def _blend(background: Color, color: Color, strength: float) -> Color:
    """`color` blended over `background` with `strength`; the terminal's own colours are returned unblended."""
    if color.ansi is not None or background.ansi is not None:
        return color if strength > 0.4 else background
    return background.blend(color, strength, alpha=1.0)


NO_LOOK: Final = Look(Palette.from_theme({}), UNICODE)
"""Stands in until there is an app to ask; the number of lines is the same in any look."""
