"""Opening the session once the screen is there: trust, which session, and what can go wrong with it."""

import asyncio
from collections.abc import Callable, Iterable
from itertools import chain
from time import monotonic
from typing import TYPE_CHECKING, Final, NamedTuple

from tui_agent.arguments import Arguments
from tui_agent.aside import give_back_freed
from tui_agent.settings import Settings
from tui_agent.tui.app.conductor import SessionUnavailable
from tui_agent.tui.app.host import Host
from tui_agent.tui.app.sessions import answered, picked_session
from tui_agent.tui.cards.blocks import Level
from tui_agent.tui.pane.transcript_view import TranscriptView

if TYPE_CHECKING:
    from tui_agent.agent.agent import Agent
    from tui_agent.agent.events import AgentEvent
    from tui_agent.session import Session
    from tui_agent.tools.base import Ask
    from tui_agent.tui.app.turns import StatusLine, TurnView, Waiting

NEWEST: Final = 200
"""Entries of an earlier conversation that are shown first: more than fit on a screen."""
SLICE_S: Final = 0.008
"""Seconds for which the screen may be busy with an earlier conversation before it looks for keys: half of what a key
press may take.
"""


class Opened(NamedTuple):
    """An open session, with the arguments and the settings as the user's answers left them."""

    session: "Session"
    arguments: Arguments
    settings: Settings


async def open_for_screen(arguments: Arguments, settings: Settings, host: Host, ask: "Ask") -> Opened:
    """The session the arguments ask for.

    Raises SessionUnavailable after telling the user why there is none, or why the program ends.
    """
    arguments, settings = await _with_trust(arguments, settings, host)
    return await _opened(arguments, settings, host, ask)


class Glimpse(NamedTuple):
    """The end of a session that is shown while it is opened: entries `first` to `last`, in `view`, as the blocks from
    place `above` on, up to `below`.
    """

    view: "TurnView"
    first: int
    last: int
    above: int
    below: int

    def remove(self) -> None:
        """It is not what comes to be open."""
        self.view.transcript.remove(self.above, self.below)


async def glimpse(arguments: Arguments, view: "TurnView", pane: TranscriptView) -> Glimpse | None:
    """Show the end of the session that is about to be opened, as far as that is known. It is read before all that
    opening takes. Never raises: what is wrong with a session is told when it is opened.
    """
    if not arguments.resume and not (arguments.continue_last and arguments.resume is None):
        return None
    from tui_agent.agent.history.as_events import ending
    from tui_agent.storage.errors import StorageError
    from tui_agent.storage.sessions import session_to_continue, session_to_resume

    try:
        if arguments.resume:
            folder = await session_to_resume(arguments.home, arguments.resume)
        else:
            folder = await session_to_continue(arguments.home, arguments.folder)
        found = await asyncio.to_thread(ending, folder, NEWEST)
    except (StorageError, OSError):
        return None
    if found is None:
        return None
    above = len(view.transcript)
    await show_past(found.told, view, pane)
    return Glimpse(view, found.first, found.last, above, len(view.transcript))


async def show_past(past: Iterable["AgentEvent"], view: "TurnView", pane: TranscriptView) -> None:
    """Bring an earlier conversation to the screen: in slices, between which keys are answered."""
    pane.hold()
    try:
        await in_slices(past, view, pane.take_in)
    finally:
        pane.flush()


class Past(NamedTuple):
    """What came before the part of a conversation that is shown first, below the first `above` blocks."""

    told: Iterable["AgentEvent"]
    above: int


async def show_newest(
    agent: "Agent", seen: Glimpse | None, pane: TranscriptView, status: "StatusLine", waiting: "Waiting"
) -> "tuple[TurnView, Past]":
    """Bring the end of the agent's conversation to the screen, as far as it was not seen yet."""
    from tui_agent.tui.app.turns import TurnView

    if seen is not None:
        try:
            earlier, later = agent.history_around(seen.first, seen.last)
        except ValueError:
            seen.remove()
        else:
            await show_past(later, seen.view, pane)
            return seen.view, Past(earlier, seen.above)
    view = TurnView(pane.transcript, status, waiting)
    above = len(view.transcript)
    earlier, newest = agent.history_in_parts(NEWEST)
    await show_past(newest, view, pane)
    return view, Past(earlier, above)


async def show_earlier(past: Past, view: "TurnView", pane: TranscriptView) -> None:
    """Bring what came before to the screen: made beside it, however long it is, and put there at once; what is in view
    stays where it is.
    """
    told = iter(past.told)
    first = next(told, None)
    if first is None:
        return
    filling = view.aside()
    follower = pane.follower(filling.transcript)
    filling.transcript.repeat(view.transcript.blocks[: past.above])
    await in_slices(chain([first], told), filling, follower.take_in)
    follower.take_in()
    if pane.transcript is not view.transcript or view.moved:
        # Another conversation is shown by now, or will be in a moment, and is whole.
        return
    view.go_on_below(filling, past.above)
    pane.show_more(follower, past.above)
    await asyncio.to_thread(give_back_freed)


async def in_slices(past: Iterable["AgentEvent"], view: "TurnView", take_in: Callable[[], object]) -> None:
    """Show an earlier conversation to a view. `take_in` measures what has come, after each slice."""
    began = monotonic()
    for event in past:
        view.show(event)
        if monotonic() - began > SLICE_S:
            take_in()
            await asyncio.sleep(0)
            began = monotonic()
    view.end()


async def learn_model(agent: "Agent", host: Host) -> None:
    """Ask the provider about the model, where there is a key to ask with; else say what is missing. Never raises."""
    from tui_agent.models.catalogue import catalogue_of

    missing = catalogue_of(agent.settings).missing_key(agent.profile.name)
    if missing is not None:
        name = agent.profile.name
        hint = f"enter it with /key, or set {missing} and start again; /model offline needs none"
        host.say(Level.WARNING, f"There is no key for {name}", hint=hint)
        return
    await agent.connect()


async def _with_trust(arguments: Arguments, settings: Settings, host: Host) -> tuple[Arguments, Settings]:
    """Ask about a project that brings something of its own; with the answer yes, what it brings counts."""
    if not arguments.ask_trust:
        return arguments, settings
    from tui_agent.settings.brought import brought
    from tui_agent.tui.dialogs.dialogs import NO_TRUST, TRUST, TrustScreen

    found = await asyncio.to_thread(brought, arguments.folder, settings.context.instruction_files)
    answer = await host.question(TrustScreen(arguments.project, found, NO_TRUST))
    if answer is None:
        return arguments._replace(ask_trust=False), settings
    try:
        return await asyncio.to_thread(answered, arguments, trusted=answer == TRUST)
    except ValueError as error:
        host.say(Level.ERROR, "The project's settings do not take effect", str(error), "mend that, then start again")
        return arguments._replace(ask_trust=False), settings


async def _opened(arguments: Arguments, settings: Settings, host: Host, ask: "Ask") -> "Opened":
    from tui_agent.session import SessionError, SessionRefused, open_session
    from tui_agent.storage.errors import SessionBusy
    from tui_agent.storage.sessions import NoSuchSession
    from tui_agent.tui.dialogs.sessions_screen import CHOOSE, NEW, busy_question

    while True:
        if arguments.resume == "":
            session, fork = await picked_session(arguments, host)
            arguments = arguments._replace(resume=session, fork=arguments.fork or fork)
        try:
            return Opened(await open_session(settings, arguments, ask), arguments, settings)
        except SessionRefused as refused:
            host.refuse(f"{refused.message} {refused.hint}")
            raise SessionUnavailable from refused
        except SessionError as error:
            wanted = None
            if arguments.continue_last and isinstance(error.__cause__, NoSuchSession):
                told = "There was no session of this folder to go on with"
                host.say(Level.INFO, told, "This is a new one.", "/sessions lists those of all folders")
                wanted = NEW
            if isinstance(error.__cause__, SessionBusy):
                wanted = await host.question(busy_question(error.message))
            if wanted not in {NEW, CHOOSE}:
                host.say(Level.ERROR, "The session could not be opened", error.message, error.hint)
                raise SessionUnavailable from error
            arguments = arguments._replace(resume="" if wanted == CHOOSE else None, continue_last=False, fork=False)
