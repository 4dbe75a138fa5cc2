"""A key press is over when the app has nothing left to do, not when the processor happens to be idle.

And what nobody sees is not drawn: an app without a terminal draws what changed once a key press is over.
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
from textual.screen import Screen

HORIZON_S: Final = 0.09
"""A timer due within this time is waited for: the conversation shows a change a twelfth of a second late at most."""


async def settled(min_sleep: float = 0.0, max_sleep: float = 1.0) -> None:
    """Wait until the event loop has no step to take and no timer is due soon.

    Stands in for Textual's own `wait_for_idle`, which takes little use of the processor for the end of all work, and
    so returns too early on a busy machine and sleeps for nothing on a quiet one. The work of this thread counts as
    time, and what it means to sleep: how long others keep it from either does not.
    """
    loop: Any = asyncio.get_running_loop()
    began, slept = time.thread_time(), 0.0
    while (passed := time.thread_time() - began + slept) < max_sleep:
        await asyncio.sleep(0)
        if loop._ready:
            continue
        due = (timer.when() for timer in loop._scheduled if not timer.cancelled())
        left = max(0.0, min(due, default=math.inf) - loop.time())
        if passed + left > max(min_sleep, HORIZON_S):
            if not _undrawn:
                return
            compositor, screens = _undrawn.pop()
            _draw(compositor, screen_stack=screens)
            continue
        slept += left
        await asyncio.sleep(left)


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
    for module in (textual.app, textual.pilot):
        module.wait_for_idle = settled  # type: ignore[attr-defined]
    Compositor.render_update = _draw_later  # type: ignore[method-assign]
    # A screen looks for what to draw at each frame: a test need not wait for the next of sixty a second.
    textual.screen.UPDATE_PERIOD = 0.001  # type: ignore[misc]
