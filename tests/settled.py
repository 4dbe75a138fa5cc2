"""A key press is over when the app has nothing left to do, not when the processor happens to be idle.

And what nobody sees is not drawn: an app without a terminal draws what changed when a test pauses to look.
"""

import asyncio
import math
import time
from typing import Any, Final

import textual.app
import textual.pilot
import textual.screen
from rich.console import RenderableType
from textual._compositor import Compositor
from textual.css.model import RuleSet
from textual.css.stylesheet import Stylesheet
from textual.css.types import CSSLocation
from textual.screen import Screen

HORIZON_S: Final = 0.09
"""A timer due within this time is waited for: the conversation shows a change a twelfth of a second late at most."""

MOST_DRAWINGS: Final = 20
"""A screen that was drawn so often while nobody pressed a key, and twice for each frame of what moves, never rests."""
FRAME_S: Final = 0.08


async def settled(min_sleep: float = 0.0, max_sleep: float = 1.0) -> None:
    """Wait until the event loop has no step to take and no timer is due soon, and draw what has changed.

    Stands in for Textual's own `wait_for_idle`, which takes little use of the processor for the end of all work, and
    so returns too early on a busy machine and sleeps for nothing on a quiet one. The work of this thread counts as
    time, and what it means to sleep: how long others keep it from either does not.
    """
    await _settle(min_sleep, max_sleep, draws=True)


async def settled_unseen(min_sleep: float = 0.0, max_sleep: float = 1.0) -> None:
    """As `settled`, after a key: nobody sees what is there then."""
    await _settle(min_sleep, max_sleep, draws=False)


async def _settle(min_sleep: float, max_sleep: float, *, draws: bool) -> None:
    loop: Any = asyncio.get_running_loop()
    began, slept, drawn = time.thread_time(), 0.0, 0
    while (passed := time.thread_time() - began + slept) < max_sleep:
        await asyncio.sleep(0)
        if loop._ready:
            continue
        due = (timer.when() for timer in loop._scheduled if not timer.cancelled())
        left = max(0.0, min(due, default=math.inf) - loop.time())
        if passed + left > max(min_sleep, HORIZON_S):
            if not (draws and _draw_now()):
                return
            drawn += 1
            assert drawn < MOST_DRAWINGS + 2 * slept / FRAME_S, "the screen changes without end"
            continue
        slept += left
        await asyncio.sleep(left)


async def _all_through(_: textual.pilot.Pilot[object], timeout: float = 30.0) -> bool:  # noqa: ASYNC109 - as its own
    """Wait until the event loop has no step to take: no widget has a message left, so none need be asked."""
    loop: Any = asyncio.get_running_loop()
    while True:
        await asyncio.sleep(0)
        if not loop._ready:
            return True


def _draw_now() -> bool:
    """Draw what is to be drawn; False: nothing is."""
    if not _undrawn:
        return False
    compositor, screens = _undrawn.pop()
    _draw(compositor, screen_stack=screens)
    return True


_draw: Final = Compositor.render_update
_undrawn: Final[list[tuple[Compositor, list[Screen[object]] | None]]] = []
"""What to draw once a key press is over: the newest alone."""


def _draw_later(
    self: Compositor, full: bool = False, screen_stack: list[Screen[object]] | None = None, simplify: bool = False
) -> RenderableType | None:
    """Stands in for the drawing of each change, which an app without a terminal throws away."""
    if full:
        return _draw(self, full, screen_stack, simplify)
    _undrawn[:] = [(self, screen_stack)]
    return None


def wait_for_what_is_due() -> None:
    """Have every pilot of this process wait so, and every app be drawn then."""
    textual.app.wait_for_idle = settled_unseen  # type: ignore[attr-defined]
    textual.pilot.wait_for_idle = settled  # type: ignore[attr-defined]
    textual.pilot.Pilot._wait_for_screen = _all_through  # type: ignore[method-assign, assignment]
    Compositor.render_update = _draw_later  # type: ignore[method-assign]
    # A screen looks for what to draw at each frame: a test need not wait for the next of sixty a second.
    textual.screen.UPDATE_PERIOD = 0.001  # type: ignore[misc]


def share_style_sheets() -> None:
    """Have every app of this process use the rules that the first one read from a style sheet, in the same colours."""
    read: dict[tuple[object, ...], list[RuleSet]] = {}
    parse = Stylesheet._parse_rules

    def parse_once(
        self: Stylesheet,
        css: str,
        read_from: CSSLocation,
        is_default_rules: bool = False,
        tie_breaker: int = 0,
        scope: str = "",
    ) -> list[RuleSet]:
        key = (css, read_from, is_default_rules, tie_breaker, scope, *self._variables.items())
        if key not in read:
            read[key] = parse(self, css, read_from, is_default_rules, tie_breaker, scope)
        return read[key]

    Stylesheet._parse_rules = parse_once  # type: ignore[method-assign]
