"""States of the conversation pane beyond its blocks: a search, what is new below, subtasks, alerts."""

from msgspec import structs

from tests.gallery.conversations import Script, coding_turn
from tests.gallery.stage import Stage
from tests.gallery.states import state
from tui_agent.agent import events
from tui_agent.tools.base import SubtaskProgress

_STANDS = SubtaskProgress(
    "claude-haiku-5-5",
    "working",
    18_204,
    0.0061,
    calls=(
        ("grep", '{"pattern":"average","path":"."}'),
        ("read_file", '{"path":"ledger.py"}'),
        ("read_file", '{"path":"report.py"}'),
    ),
    earlier=3,
)


async def _told(stage: Stage) -> None:
    await stage.open()
    stage.play(coding_turn().events)
    stage.time_reasoning(2.4)


@state(light=True)
async def search(stage: Stage) -> None:
    await _told(stage)
    await stage.pilot.press("tab", "slash", *"average", "enter")


@state()
async def new_lines(stage: Stage) -> None:
    await _told(stage)
    stage.app.pane.action_top()
    await stage.pilot.pause()
    stage.app.pane.action_page(-1)
    stage.app.pane.flush()
    more = Script().ask("And what of the report's width?").say("It stays as it is: the column is padded to 12 cells.")
    stage.play(more.message().events)


@state()
async def subtask(stage: Stage) -> None:
    await stage.open()
    script = Script().ask("Where is the mean worked out, and who calls it?")
    call = script.call("agentic_research", question="where is the mean worked out, and who calls it?")
    stage.play([*script.events, events.ToolProgress(call_id=call, text=_STANDS.text, subtask=_STANDS)], running=14)


@state()
async def subtask_opened(stage: Stage) -> None:
    await stage.open()
    script = Script().ask("Where is the mean worked out, and who calls it?")
    call = script.call("agentic_research", question="where is the mean worked out, and who calls it?")
    stood = structs.replace(_STANDS, doing="done", earlier=0, log="20261121-214501-ab12:sub:5f0c9d21a7e4")
    progress = events.ToolProgress(call_id=call, text=stood.text, subtask=stood)
    answer = "`average` in ledger.py:12 works it out; `table` in report.py:8 is its only caller."
    summary = "claude-haiku-5-5, 4 model calls, 18,204 tokens, $0.0061"
    stage.play([*script.events, progress, *Script().result(call, answer, summary=summary, ms=9_200).events])
    stage.app.pane.toggle_block(len(stage.app.pane.transcript) - 1)


@state()
async def alert(stage: Stage) -> None:
    await _told(stage)
    text = "It has run the same command 4 times with the same result: python -m pytest -q"
    stage.play([events.Alert(signal="repeat", text=text, action="warn")])
