"""The steps of subtasks whose cards are from an earlier session: read from their own records when a card is opened."""

import asyncio
from typing import Final, Protocol

from tui_agent.tui.cards.blocks import ToolBlock
from tui_agent.tui.pane.transcript import Transcript

_PREFIX: Final = "agentic_"


class Records(Protocol):
    """Who knows what subtasks did; `agent.agent.Agent` is one."""

    async def subtask_progress(self, call_id: str) -> str:
        """What was told last of the subtask that worked for a call; empty where nothing is known."""
        ...


def is_subtask(name: str) -> bool:
    """Whether calls of this tool are done by a model of its own."""
    return name.startswith(_PREFIX)


class SubtaskSteps:
    """Fills in the steps of cards from an earlier session when they are opened, one card at a time."""

    def __init__(self, transcript: Transcript, records: Records) -> None:
        self._transcript = transcript
        self._records = records
        self._one_at_a_time = asyncio.Lock()
        self._reading: set[asyncio.Task[None]] = set()
        transcript.when_opened(self._look_up, is_subtask)

    def _look_up(self, block: ToolBlock) -> None:
        if block.state.finished and not block.steps:
            task = asyncio.ensure_future(self._fill(block))
            self._reading.add(task)
            task.add_done_callback(self._reading.discard)

    async def _fill(self, block: ToolBlock) -> None:
        async with self._one_at_a_time:
            steps = await self._records.subtask_progress(block.call_id)
        if steps and not block.steps and self._transcript.get(block.id) is block:
            self._transcript.show_steps(block, steps)
