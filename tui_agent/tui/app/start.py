"""Starts the app from the command line, and ends it."""

import os
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final

from tui_agent.arguments import Arguments, ExitCode
from tui_agent.settings import Settings
from tui_agent.text import clean
from tui_agent.tui.terminal.early_keys import EarlyKeys

if TYPE_CHECKING:
    from textual.driver import Driver

    from tui_agent.tui.app.app import TuiAgent

MAX_LAST_LINES: Final = 20
MAX_LAST_CHARACTERS: Final = 2_000
"""The most that is shown of the last answer once the app has ended."""
AFTER_DEMO: Final = """\
The demonstration has ended; its temporary folder goes with it.
To start for real, in a project of yours: tui-agent
There, /key takes a provider's key and /model chooses a model."""
MARKED_PASTES, UNMARKED_PASTES = "\x1b[?2004h", "\x1b[?2004l"


def run(
    arguments: Arguments,
    settings: Settings,
    *,
    before_opening: Callable[[], None] = lambda: None,
    ready: Callable[[], None] = lambda: None,
) -> int | tuple[str, ...]:
    """Run the app and return the exit code, or the arguments to start the program with next. `before_opening` is called
    before a session is opened, `ready` once it is open and its model has been looked up.
    """
    trust_the_terminal()
    _on_signals(_end_at_once)
    keys = EarlyKeys()
    try:
        _mark_pastes(True)
        return _run(arguments, settings, keys, before_opening, ready)
    finally:
        keys.give_back()
        _mark_pastes(False)


def _on_signals(act: Callable[[], None]) -> None:
    """Call `act` when the terminal is closed or the process is told to end."""
    numbers = (signal.SIGHUP, signal.SIGTERM, signal.SIGINT)
    for number in numbers:
        signal.signal(number, lambda _number, _frame: act())
    # Whoever started this process may have blocked them, and it would outlive its terminal.
    signal.pthread_sigmask(signal.SIG_UNBLOCK, numbers)


def _end_at_once() -> None:
    # The terminal is restored on the way out, which further signals must not interrupt.
    _on_signals(lambda: None)
    raise SystemExit(ExitCode.INTERRUPTED)


def trust_the_terminal() -> None:
    """Delete `COLUMNS` and `LINES` from the environment if the terminal knows its size.

    An exported value would override the actual size and not follow the window; child processes do not get it either.
    """
    with suppress(OSError, ValueError):
        size = os.get_terminal_size(sys.stdout.fileno())
        if size.columns and size.lines:
            for name in ("COLUMNS", "LINES"):
                os.environ.pop(name, None)


def _mark_pastes(marked: bool) -> None:
    """Turn bracketed pastes on or off. On from the start: the lines of a paste that arrives before the app runs would
    otherwise be sent one by one.
    """
    # The terminal may be gone.
    with suppress(OSError, ValueError):
        if sys.stdout.isatty():
            sys.stdout.write(MARKED_PASTES if marked else UNMARKED_PASTES)
            sys.stdout.flush()


def _run(
    arguments: Arguments,
    settings: Settings,
    keys: EarlyKeys,
    before_opening: Callable[[], None],
    ready: Callable[[], None],
) -> int | tuple[str, ...]:
    from tui_agent.models.offline import DELAY_VARIABLE, SHOWN_DELAY_S
    from tui_agent.tui.app.app import TuiAgent

    os.environ.setdefault(DELAY_VARIABLE, str(SHOWN_DELAY_S))
    driver = own_driver(keys)
    if driver is None:
        keys.give_back()
    app = TuiAgent(arguments, settings, driver_class=driver)
    app.leaving.last_words = partial(say_goodbye, app)
    app.before_opening, app.ready = before_opening, ready
    _on_signals(app.leaving.end_on_signal)
    app.run(mouse=settings.ui.mouse)
    app.leaving.say_last_words()
    if app.leaving.start_next and not app.crash:
        return app.leaving.start_next
    return ExitCode.FAILED if app.crash else app.return_code or ExitCode.DONE


def own_driver(keys: EarlyKeys) -> "type[Driver] | None":
    """The driver that takes over from `keys`; None: use Textual's own."""
    from textual import constants

    from tui_agent.tui.terminal.textual_internals import is_known

    if not is_known() or constants.DRIVER is not None:
        return None
    try:
        from tui_agent.tui.terminal.driver import TerminalDriver
    except (ImportError, AttributeError):
        return None

    class OwnDriver(TerminalDriver):
        early = keys

    return OwnDriver


def last_answer(app: "TuiAgent") -> str:
    """The model's last answer, of which `MAX_LAST_LINES` are shown; empty if the user has said something since."""
    from tui_agent.tui.cards.blocks import ProseBlock, UserBlock

    blocks = app.pane.transcript.blocks if "pane" in vars(app) else ()
    last = next((block for block in reversed(blocks) if isinstance(block, ProseBlock | UserBlock)), None)
    if not isinstance(last, ProseBlock):
        return ""
    text = clean(last.plain_text).strip()
    shown = "\n".join(text[:MAX_LAST_CHARACTERS].split("\n")[:MAX_LAST_LINES])
    return shown if shown == text else f"{shown.rstrip()} [...]"


def say_goodbye(app: "TuiAgent") -> None:
    """Print why the program ended, the last answer, and how to continue; after the demonstration, how to start."""
    # The terminal may be gone.
    with suppress(OSError):
        if why := app.crash or app.refusal:
            sys.stderr.write(f"tui-agent: {why}\n")
        if app.arguments.demo:
            sys.stdout.write(f"{AFTER_DEMO}\n")
            sys.stdout.flush()
        elif app.session_folder is not None and app.session_folder.exists():
            if answer := last_answer(app):
                coding = sys.stdout.encoding or "utf-8"
                sys.stdout.write(f"{answer.encode(coding, 'replace').decode(coding)}\n\n")
            sys.stdout.write(f"To go on with this conversation: tui-agent -r {app.session_folder.name}\n")
            sys.stdout.flush()
