"""From the command line to the app and back."""

import gc
import os
import sys
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from tui_agent.arguments import Arguments
from tui_agent.aside import share_often
from tui_agent.settings import Settings

if TYPE_CHECKING:
    from tui_agent.tui.app.app import TuiAgent

DONE, FAILED = 0, 1


def run(arguments: Arguments, settings: Settings) -> int:
    """Show the app until the user leaves; the exit code."""
    # Until the session is open hardly anything becomes garbage, and looking for it costs a tenth of the first paint.
    gc.disable()
    share_often()
    from tui_agent.models.offline.adapter import DELAY_VARIABLE, SHOWN_DELAY_S
    from tui_agent.tui.app.app import TuiAgent
    from tui_agent.tui.textual_internals import terminal_driver

    os.environ.setdefault(DELAY_VARIABLE, str(SHOWN_DELAY_S))
    app = TuiAgent(arguments, settings, driver_class=terminal_driver())
    app.last_words = partial(say_goodbye, app)
    try:
        app.run(mouse=settings.ui.mouse)
    finally:
        gc.enable()
    say_goodbye(app)
    return FAILED if app.crash else app.return_code or DONE


def say_goodbye(app: "TuiAgent") -> None:
    """Say why the program ended, and how to go on; once, whoever comes to its end first."""
    if app.said_goodbye:
        return
    app.said_goodbye = True
    # Where the terminal was closed there is nobody left to tell.
    with suppress(OSError):
        if why := app.crash or app.refusal:
            sys.stderr.write(f"tui-agent: {why}\n")
        if app.session_folder is not None and app.session_folder.exists():
            sys.stdout.write(f"To go on with this conversation: tui-agent -r {app.session_folder.name}\n")
            sys.stdout.flush()
