"""Steps of subtasks on cards from an earlier session."""

import asyncio

from tui_agent.tools.base import SubtaskProgress
from tui_agent.tui.cards.blocks import SubtaskBlock, ToolState
from tui_agent.tui.pane.transcript import Transcript
from tui_agent.tui.session.past import SubtaskSteps


class Records:
    def __init__(self) -> None:
        self.asked: list[str] = []

    async def subtask_progress(self, call_id: str) -> SubtaskProgress | None:
        self.asked.append(call_id)
        await asyncio.sleep(0)
        return None if call_id == "unknown" else SubtaskProgress("model", "done", calls=(("read_file", call_id),))


def card(transcript: Transcript, call_id: str, name: str = "agentic_grep") -> SubtaskBlock:
    block = transcript.add_tool(call_id, name)
    assert isinstance(block, SubtaskBlock)
    transcript.finish_tool(block, ToolState.OK, "found")
    return block


async def settled() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    await asyncio.gather(*others)


async def test_they_are_read_when_a_card_is_opened_and_once() -> None:
    transcript, records = Transcript(), Records()
    SubtaskSteps(transcript, records.subtask_progress)
    first, unknown = card(transcript, "a"), card(transcript, "unknown")
    transcript.add_tool("b", "grep", state=ToolState.OK)
    await settled()
    assert records.asked == []
    for _ in range(3):
        transcript.toggle(first)
        await settled()
    assert records.asked == ["a"]
    assert first.progress is not None
    assert first.progress.calls == (("read_file", "a"),)
    transcript.toggle_all()
    await settled()
    assert records.asked == ["a", "unknown"]
    assert unknown.progress is None
    # A running subtask and a card that is gone are left alone.
    transcript.toggle(transcript.add_tool("running", "agentic_grep", state=ToolState.RUNNING))
    await settled()
    assert records.asked == ["a", "unknown"]
    gone = card(transcript, "gone")
    transcript.toggle(gone)
    transcript.truncate(0)
    await settled()
    assert gone.progress is None
