"""Reads the end of a session before it is open, while the screen is being built."""

import asyncio
from importlib import import_module
from typing import TYPE_CHECKING, Final

from tui_agent.arguments import Arguments
from tui_agent.system.durable import in_thread

if TYPE_CHECKING:
    from tui_agent.agent.history.as_events import Ending

NEWEST: Final = 120
"""Entries of an earlier conversation that are shown first: enough to fill a screen."""
WARM_UP_BLOCKS: Final = 20
"""About as many blocks as fit on a screen."""


async def end_of(arguments: Arguments) -> "Ending | None":
    """The end of the session that the arguments resume, readable before it is open; None if none is known.

    Never raises: problems of a session are reported when it is opened.
    """
    if not arguments.resume and not (arguments.continue_last and arguments.resume is None):
        return None
    await asyncio.to_thread(import_module, "tui_agent.agent.history.as_events")
    await asyncio.to_thread(import_module, "tui_agent.storage.sessions")
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
        await asyncio.to_thread(import_module, "tui_agent.tui.session.turns")
        await in_thread(_warm_up_painting, end)
    return end


def _warm_up_painting(end: "Ending") -> None:
    """Paint the newest blocks and discard them, to load the parsers and lexers that painting needs."""
    from tui_agent.tui.painting.glyphs import ASCII
    from tui_agent.tui.painting.lines import MAX_MEASURE
    from tui_agent.tui.painting.palette import Look, Palette
    from tui_agent.tui.pane.block_painting import all_lines
    from tui_agent.tui.pane.transcript import Transcript
    from tui_agent.tui.session.turns import NoDisplay, TurnView

    unseen = TurnView(Transcript(), NoDisplay(), NoDisplay())
    for event in end.shown:
        unseen.show(event)
    all_lines(unseen.transcript.blocks[-WARM_UP_BLOCKS:], MAX_MEASURE, Look(Palette.from_theme({}), ASCII))
