"""A subtask's card, while it runs and afterwards."""

import pytest
from msgspec import structs
from rich.cells import cell_len

from tui_agent.tools.base import SubtaskProgress
from tui_agent.tui.cards.blocks import SubtaskBlock, ToolState
from tui_agent.tui.painting.glyphs import ASCII, UNICODE, Glyphs
from tui_agent.tui.painting.palette import Look, Palette
from tui_agent.tui.pane.block_painting import BlockPainting
from tui_agent.tui.pane.transcript import Transcript

PROGRESS = SubtaskProgress(
    "claude-haiku-5-5",
    "working",
    12_345,
    0.0042,
    calls=(
        ("grep", '{"pattern":"TODO","path":"src"}'),
        ("read_file", '{"path":"src/a.py"}'),
        ("read_file", '{"path":"src/long_long_na…'),
        ("list_dir", '{"path":"."}'),
    ),
    earlier=2,
)


def lines(progress: SubtaskProgress, *, width: int = 60, glyphs: Glyphs = UNICODE) -> list[str]:
    transcript = Transcript()
    block = transcript.add_tool("1", "agentic_research", summary="find all", state=ToolState.RUNNING)
    assert isinstance(block, SubtaskBlock)
    transcript.show_progress(block, progress.text, subtask=progress)
    painting = BlockPainting(block, None, width, Look(Palette.from_theme({}), glyphs))
    estimated = painting.height
    painted = [line for section in range(len(painting.heights)) for line in painting.lines(section)]
    assert len(painted) == estimated
    assert all(cell_len(line.text) <= width for line in painted)
    return [line.text.rstrip() for line in painted]


def test_its_figures_and_newest_calls_are_nested_under_it() -> None:
    shown = lines(PROGRESS)
    assert shown[1].strip() == "claude-haiku-5-5 · working · 12,345 tokens · $0.0042"
    assert [line.strip().split()[:2] for line in shown[2:]] == [
        ["└", "Search"], ["└", "Read"], ["└", "Read"], ["└", "List"]
    ]  # fmt: skip
    assert "src/a.py" in shown[3]
    assert "{" not in shown[3]


@pytest.mark.parametrize("width", [1, 5, 9, 20, 200])
def test_it_fits(width: int) -> None:
    lines(PROGRESS, width=width)


def test_it_is_plain_where_it_has_to_be() -> None:
    assert all(line.isascii() for line in lines(structs.replace(PROGRESS, calls=PROGRESS.calls[:2]), glyphs=ASCII))


def test_waiting_has_no_steps() -> None:
    assert lines(SubtaskProgress("", "waiting: other subtasks are running"))[1:] == [
        "    waiting: other subtasks are running"
    ]


def test_opened_when_it_is_over_it_has_every_step_and_its_answer() -> None:
    transcript = Transcript()
    block = transcript.add_tool("1", "agentic_research", summary="find all", state=ToolState.RUNNING)
    assert isinstance(block, SubtaskBlock)
    over = structs.replace(PROGRESS, log="20260101-010101-abcd:sub:12345678")
    transcript.show_progress(block, over.text, subtask=over)
    transcript.finish_tool(block, ToolState.OK, "There are two.")
    look = Look(Palette.from_theme({}), UNICODE)
    closed = _painted(BlockPainting(block, None, 60, look))
    assert [line.strip() for line in closed[1:]] == ["There are two."]
    transcript.toggle(block)
    opened = [line.strip() for line in _painted(BlockPainting(block, None, 60, look))]
    assert opened[1:] == [
        "claude-haiku-5-5 · working · 12,345 tokens · $0.0042",
        "└ … 2 calls before",
        "└ Search TODO src",
        "└ Read src/a.py",
        '└ Read {"path":"src/long_long_na…',
        "└ List .",
        "└ log 20260101-010101-abcd:sub:12345678",
        "",
        "There are two.",
    ]
    assert "src/a.py" in block.plain_text


def _painted(painting: BlockPainting) -> list[str]:
    return [line.text.rstrip() for section in range(len(painting.heights)) for line in painting.lines(section)]
