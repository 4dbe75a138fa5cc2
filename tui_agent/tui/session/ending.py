"""The end of a session, read while the screen that is to show it is made."""

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Final

from tui_agent.arguments import Arguments
from tui_agent.aside import aside, load

if TYPE_CHECKING:
    from tui_agent.agent.history.as_events import Ending

NEWEST: Final = 200
"""Entries of an earlier conversation that are shown first: more than fit on a screen."""
PAINTED_ONCE: Final = 20
"""Blocks about as many as fit on a screen."""


async def end_of(arguments: Arguments) -> "Ending | None":
    """The end of the session that is about to be opened, as far as that is known, read before all that opening takes.

    Never raises: what is wrong with a session is told when it is opened.
    """
    if not arguments.resume and not (arguments.continue_last and arguments.resume is None):
        return None
    await load("tui_agent.agent.history.as_events")
    await load("tui_agent.storage.sessions")
    from tui_agent.agent.history.as_events import ending
    from tui_agent.storage.errors import StorageError
    from tui_agent.storage.sessions import session_to_continue, session_to_resume

    try:
        if arguments.resume:
            folder = await session_to_resume(arguments.home, arguments.resume)
        else:
            folder = await session_to_continue(arguments.home, arguments.folder)
        end = await asyncio.to_thread(ending, folder, NEWEST)
    except (StorageError, OSError):
        return None
    if end is not None:
        await load("tui_agent.tui.session.turns")
        await aside(partial(_paint_once, end))
    return end


def _paint_once(end: "Ending") -> None:
    """Paint the newest blocks for nobody: what painting takes, such as parsers, takes longer to load than to do it."""
    from tui_agent.tui.painting.glyphs import ASCII
    from tui_agent.tui.painting.lines import MAX_MEASURE
    from tui_agent.tui.painting.palette import Look, Palette
    from tui_agent.tui.pane.block_painting import all_lines
    from tui_agent.tui.pane.transcript import Transcript
    from tui_agent.tui.session.turns import TurnView, Unseen

    unseen = TurnView(Transcript(), Unseen(), Unseen())
    for event in end.told:
        unseen.show(event)
    all_lines(unseen.transcript.blocks[-PAINTED_ONCE:], MAX_MEASURE, Look(Palette.from_theme({}), ASCII))
