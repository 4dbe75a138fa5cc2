"""A state of the screen, and how its pictures are taken; `scenes.py` has all of them."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from time import monotonic
from typing import Final, NamedTuple
from unittest.mock import patch

from rich.style import Style

from tests.gallery.pictures import stable, still
from tests.gallery.stage import OFFLINE, Stage, staged
from tui_agent.arguments import Arguments
from tui_agent.settings import Settings
from tui_agent.tui.app.app import TuiAgent
from tui_agent.tui.painting.themes import DEFAULT_DARK, DEFAULT_LIGHT
from tui_agent.tui.pane import status_bar
from tui_agent.tui.pane.conversation import ConversationPane

SIZE: Final = (80, 24)
WIDE: Final = (120, 40)
SHADES: Final = {"dark": DEFAULT_DARK, "light": DEFAULT_LIGHT}

Shown = list[list[tuple[str, Style | None]]]
Drive = Callable[[Stage], Awaitable[None]]
Arrange = Callable[[Arguments], Awaitable[Arguments]]


class View(NamedTuple):
    """How one picture is taken: a name of `SHADES`, and columns and rows."""

    shade: str
    size: tuple[int, int]


class Picture(NamedTuple):
    """One exported screen; `name` is its file's name without the ending."""

    name: str
    svg: str


@dataclass(frozen=True, slots=True)
class State:
    """One state of the screen. `arrange` changes what the app is started with, and makes what must be there then.

    views: the shade and the size of each picture. The first is in the dark; the others say what it does not.
    """

    name: str
    drive: Drive
    settings: Settings
    arrange: Arrange
    views: tuple[View, ...]

    def names(self) -> list[str]:
        """The names of its pictures."""
        return [picture_name(self.name, *view) for view in self.views]

    async def pictures(self) -> list[Picture]:
        """Drive the app to this state, and take its pictures."""
        taken: list[Picture] = []
        async with staged(self.settings, self.arrange, self.views[0].size) as stage:
            await self.drive(stage)
            for view in self.views:
                await stage.pilot.resize_terminal(*view.size)
                stage.app.use_theme(SHADES[view.shade])
                taken.append(Picture(picture_name(self.name, *view), await _still(stage)))
        return taken


STATES: Final[dict[str, State]] = {}

BOTH: Final = (SIZE, WIDE)


def picture_name(state: str, shade: str, size: tuple[int, int]) -> str:
    """The name of a picture."""
    return f"{state}-{shade}-{size[0]}x{size[1]}"


async def _as_it_is(arguments: Arguments) -> Arguments:
    return arguments


def state(
    *,
    settings: Settings = OFFLINE,
    arrange: Arrange = _as_it_is,
    sizes: tuple[tuple[int, int], ...] = (SIZE,),
    light: bool = False,
    name: str = "",
) -> Callable[[Drive], Drive]:
    """A function as the way to the state of its name.

    sizes: more than one where the layout differs. light: in the light theme too, where colours carry a meaning that no
    other picture shows.
    """

    def kept(drive: Drive) -> Drive:
        called = name or drive.__name__.replace("_", "-")
        views = (*(View("dark", size) for size in sizes), *([View("light", sizes[-1])] if light else ()))
        STATES[called] = State(called, drive, settings, arrange, views)
        return drive

    return kept


async def _still(stage: Stage) -> str:
    """The screen once it no longer changes. Its clock is set, and stands still however long the picture takes."""
    before: Shown = []
    moment = monotonic()
    with patch.object(status_bar, "monotonic", lambda: moment):
        async with asyncio.timeout(60):
            while True:
                if stage.working is not None:
                    since = moment - stage.working - 0.1
                    stage.app.status.show(activity=stage.app.status.status.activity, since=since)
                _measure(stage.app.pane)
                await stage.pilot.pause()
                now = _shown(stage.app)
                if now == before:
                    colors = stage.app.theme_variables
                    return stable(stage.app.export_screenshot(), colors["panel"], colors["foreground"])
                before = now


def _shown(app: TuiAgent) -> Shown:
    """What is on the screen, line by line, whichever picture of its round the spinner is at."""
    strips = app.screen._compositor.render_strips(app.size)
    return [[(still(segment.text), segment.style) for segment in strip] for strip in strips]


def _measure(pane: ConversationPane) -> None:
    """Paint every line once: until then heights are guesses, and the scrollbar shows how good they are."""
    pane.flush()
    if pane.following:
        pane.action_top()
        _page_to_the_end(pane)


def _page_to_the_end(pane: ConversationPane) -> None:
    while not pane.following:
        pane.action_page(1)
