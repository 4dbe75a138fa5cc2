"""Shows an earlier conversation: its end first, then everything before it, and the steps of its subtasks on demand."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from itertools import chain
from time import monotonic
from typing import TYPE_CHECKING, Final

import msgspec

from tui_agent.tui.cards.blocks import SubtaskBlock
from tui_agent.tui.pane.status_bar import StatusBar
from tui_agent.tui.pane.transcript import Transcript
from tui_agent.tui.pane.transcript_view import TranscriptView
from tui_agent.tui.session.ending import NEWEST

if TYPE_CHECKING:
    from tui_agent.agent.agent import Agent
    from tui_agent.agent.events import AgentEvent
    from tui_agent.agent.history.as_events import Ending
    from tui_agent.tools.base import SubtaskProgress
    from tui_agent.tui.session.turns import TurnView, Waiting

SLICE_S: Final = 0.008
"""Seconds of work on an earlier conversation before keys are handled: half of the time a key press may take."""


class SessionEnd(msgspec.Struct, frozen=True):
    """The end of a session, shown while the session is being opened.

    first, last: the numbers of its entries. above, below: its blocks in `view`, from index `above` up to, not
    including, `below`.
    """

    view: "TurnView"
    first: int
    last: int
    above: int
    below: int

    def remove(self) -> None:
        """Remove its blocks: another session came to be open."""
        self.view.transcript.remove(self.above, self.below)


async def glimpse(end: "Ending", pane: TranscriptView, status: StatusBar, waiting: "Waiting") -> SessionEnd:
    """Show the end of a session while it is being opened."""
    from tui_agent.tui.session.turns import TurnView

    view = TurnView(pane.transcript, status, waiting)
    above = len(view.transcript)
    await show_past(end.shown, view, pane)
    return SessionEnd(view, end.first, end.last, above, len(view.transcript))


async def show_past(past: Iterable["AgentEvent"], view: "TurnView", pane: TranscriptView) -> None:
    """Show an earlier conversation, in slices between which keys are handled."""
    pane.hold()
    try:
        await in_slices(past, view, pane.take_in)
    finally:
        pane.flush()


class EarlierEvents(msgspec.Struct, frozen=True):
    """The events before the part of a conversation that is shown first; they belong below its first `above` blocks."""

    events: Iterable["AgentEvent"]
    above: int


async def show_newest(
    agent: "Agent", seen: SessionEnd | None, pane: TranscriptView, status: StatusBar, waiting: "Waiting"
) -> "tuple[TurnView, EarlierEvents]":
    """Show the end of the agent's conversation; with a glimpse of it, only what has come since."""
    from tui_agent.tui.session.turns import TurnView

    if seen is not None:
        try:
            earlier, later = agent.branches.history_around(seen.first, seen.last)
        except ValueError:
            seen.remove()
        else:
            await show_past(later, seen.view, pane)
            return seen.view, EarlierEvents(earlier, seen.above)
    view = TurnView(pane.transcript, status, waiting)
    above = len(view.transcript)
    earlier, newest = agent.branches.history_in_parts(NEWEST)
    await show_past(newest, view, pane)
    return view, EarlierEvents(earlier, above)


async def show_earlier(past: EarlierEvents, view: "TurnView", pane: TranscriptView) -> None:
    """Show the earlier part: build it off screen, then swap it in at once without moving what is in view."""
    events = iter(past.events)
    first = next(events, None)
    if first is None:
        return
    newer, filling = view.transcript, view.offscreen()
    follower = pane.follower(filling.transcript)
    filling.transcript.repeat(newer.blocks[: past.above])
    await in_slices(chain([first], events), filling, follower.take_in)
    follower.take_in()
    if pane.transcript is not newer or view.transcript is not newer or view.moved:
        # The user has switched the branch meanwhile; that shows its own conversation.
        return
    view.go_on_below(filling, past.above)
    pane.show_more(follower, past.above)
    from tui_agent.system.process import give_back_freed

    await asyncio.to_thread(give_back_freed)


async def in_slices(past: Iterable["AgentEvent"], view: "TurnView", take_in: Callable[[], object]) -> None:
    """Feed an earlier conversation to a view; `take_in` is called after each slice to measure it."""
    began = monotonic()
    for event in past:
        view.show(event)
        if monotonic() - began > SLICE_S:
            take_in()
            await asyncio.sleep(0)
            began = monotonic()
    view.end()


class SubtaskSteps:
    """Fills in the steps of subtask cards from an earlier session when they are opened, one at a time.

    `read` returns how the subtask of a call id stood at its end; None if nothing is known.
    """

    def __init__(self, transcript: Transcript, read: Callable[[str], Awaitable["SubtaskProgress | None"]]) -> None:
        self._transcript = transcript
        self._read = read
        self._one_at_a_time = asyncio.Lock()
        self._reading: set[asyncio.Task[None]] = set()
        transcript.when_opened(self._look_up)

    def _look_up(self, block: SubtaskBlock) -> None:
        if block.state.finished and block.progress is None:
            task = asyncio.ensure_future(self._fill(block))
            self._reading.add(task)
            task.add_done_callback(self._reading.discard)

    async def _fill(self, block: SubtaskBlock) -> None:
        async with self._one_at_a_time:
            stood = await self._read(block.call_id)
        if stood is not None and block.progress is None and self._transcript.get(block.id) is block:
            self._transcript.show_progress(block, stood.text, subtask=stood)
