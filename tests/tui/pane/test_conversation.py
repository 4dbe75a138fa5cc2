"""The pane in a running app: selection, themes, sizes, and when it paints. `test_walk_of_keys` has its keys."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from rich.color import Color
from textual.app import App, ComposeResult
from textual.geometry import Offset
from textual.pilot import Pilot
from textual.selection import Selection
from textual.strip import Strip
from textual.widgets import Input
from typing_extensions import override

from tui_agent.tui.cards.blocks import ToolState
from tui_agent.tui.cards.prose import fenced_code
from tui_agent.tui.painting.glyphs import ASCII, UNICODE, Glyphs
from tui_agent.tui.painting.themes import THEMES, register_themes
from tui_agent.tui.pane.conversation import ConversationPane
from tui_agent.tui.pane.transcript import Transcript
from tui_agent.tui.pane.viewport import decode_line, encode_line

STYLES = Path(__file__).parents[3] / "styles" / "conversation.tcss"


class PaneApp(App[None]):
    CSS_PATH = STYLES

    def __init__(self, transcript: Transcript, glyphs: Glyphs) -> None:
        super().__init__()
        self.glyphs = glyphs
        self.pane = ConversationPane(transcript)
        self.told: list[str] = []
        """What the pane has said of keys."""

    @override
    def compose(self) -> ComposeResult:
        yield self.pane
        yield Input(compact=True)

    def on_mount(self) -> None:
        register_themes(self)
        self.theme = THEMES[0].name
        self.pane.focus()

    def on_conversation_pane_copied(self, message: ConversationPane.Copied) -> None:
        assert self.clipboard == message.text
        self.told.append(f"copied {message.what}: {message.text!r}")

    def on_conversation_pane_undo_asked(self, message: ConversationPane.UndoAsked) -> None:
        self.told.append(f"undo {message.block.seq}")

    def on_conversation_pane_rewind_asked(self, message: ConversationPane.RewindAsked) -> None:
        self.told.append(f"rewind {message.seq}")

    def on_conversation_pane_fork_asked(self, message: ConversationPane.ForkAsked) -> None:
        self.told.append(f"fork {message.seq}")


@asynccontextmanager
async def running(
    transcript: Transcript, size: tuple[int, int] = (60, 13), glyphs: Glyphs = UNICODE
) -> AsyncIterator[Pilot[None]]:
    app = PaneApp(transcript, glyphs)
    async with app.run_test(size=size) as pilot:
        await pilot.pause()
        yield pilot


def pane_of(pilot: Pilot[None]) -> ConversationPane:
    return pilot.app.query_one(ConversationPane)


def screen_of(pilot: Pilot[None]) -> list[str]:
    pane = pane_of(pilot)
    return [pane.render_line(y).text.rstrip() for y in range(pane.size.height)]


def conversation(turns: int = 3) -> Transcript:
    transcript = Transcript()
    for turn in range(turns):
        transcript.add_user(f"prompt {turn}")
        tool = transcript.add_tool(f"call {turn}", "read_file", summary=f"file{turn}.py")
        transcript.finish_tool(tool, ToolState.OK, "\n".join(f"row {turn}.{line}" for line in range(8)))
        transcript.add_prose(f"Answer **{turn}** is here.")
    return transcript


async def test_a_burst_of_fragments_reaches_the_screen_in_a_few_paints() -> None:
    transcript = conversation(1)
    async with running(transcript) as pilot:
        pane = pane_of(pilot)
        versions: set[int] = set()
        original = pane.render_line

        def watching(y: int) -> Strip:
            versions.add(block.version)
            return original(y)

        block = transcript.start_prose()
        pane.render_line = watching  # type: ignore[method-assign]
        for number in range(200):
            transcript.stream(block, f"w{number} ")
        for _ in range(200):
            if "w199" in "\n".join(original(y).text for y in range(pane.size.height)):
                break
            await pilot.pause(0.01)
        assert "w199" in "\n".join(screen_of(pilot))
        assert len(versions) <= 2


async def test_a_mouse_selection_copies_across_blocks_without_gutters() -> None:
    async with running(conversation(1), size=(60, 20)) as pilot:
        lines = screen_of(pilot)
        first = next(y for y, line in enumerate(lines) if "prompt 0" in line)
        last = next(y for y, line in enumerate(lines) if "Answer" in line)
        await pilot.mouse_down(ConversationPane, offset=(2 + len("pro"), first))
        await pilot.hover(ConversationPane, offset=(2 + len("Answer") - 1, last))
        await pilot.mouse_up(ConversationPane, offset=(2 + len("Answer") - 1, last))
        assert pilot.app.screen.get_selected_text() == (
            "mpt 0\n\nRead file0.py  8 lines\nrow 0.0\nrow 0.1\nrow 0.2\n\nAnswer"
        )
        pane = pane_of(pilot)
        for y in (first, last):
            styles = [style for _, style, _ in pane.render_line(y) if style and style.bgcolor]
            chosen = [style for style in styles if style.bgcolor == pane.look.palette.selected.bgcolor]
            assert chosen
            assert all(style.color != style.bgcolor for style in styles)


async def test_a_wrapped_paragraph_is_copied_as_one_line() -> None:
    transcript = Transcript()
    text = "word " * 40 + "end"
    transcript.add_prose(text + "\n\nnext")
    async with running(transcript) as pilot:
        end = encode_line(0, 1, 1)
        pilot.app.screen.selections = {pane_of(pilot): Selection(Offset(2, 0), Offset(6, end))}
        assert pilot.app.screen.get_selected_text() == text + "\n\nnext"


async def test_selected_text_survives_heights_above_it_changing() -> None:
    transcript = conversation(8)
    async with running(transcript) as pilot:
        pane = pane_of(pilot)
        last = encode_line(len(transcript) - 1, 1, 0)
        pane.text_select_all()
        assert pilot.app.screen.selections == {}
        pane.action_cursor(-1)
        assert pane._cursor is not None
        pane.text_select_all()
        assert pilot.app.screen.get_selected_text() == transcript.blocks[pane._cursor].plain_text
        pilot.app.screen.selections = {pane: Selection(Offset(2, last), Offset(8, last))}
        pane.toggle_all()
        await pilot.resize_terminal(40, 16)
        assert pilot.app.screen.get_selected_text() == "Answer"


async def test_every_theme_paints_in_its_own_colours() -> None:
    async with running(conversation(2)) as pilot:
        text, grounds = screen_of(pilot), list[set[Color | None]]()
        for theme in (*(theme.name for theme in THEMES if not theme.ansi), "textual-light", "ansi-dark"):
            pilot.app.theme = theme
            await pilot.pause()
            assert screen_of(pilot) == text
            line = pane_of(pilot).render_line(11)
            grounds.append({segment.style.bgcolor for segment in line if segment.style})
            assert grounds[-1] not in grounds[:-1]


async def test_any_size() -> None:
    async with running(conversation(3)) as pilot:
        pane = pane_of(pilot)
        for size in ((20, 6), (3, 3), (1, 1), (200, 60)):
            await pilot.resize_terminal(*size)
            await pilot.press("pageup", "k", "enter", "end", "home", "j")
            assert all(pane.render_line(y).cell_length == pane.size.width for y in range(pane.size.height))


async def test_a_running_card_spins_in_one_cell_without_layout_and_stops() -> None:
    transcript = Transcript()
    tool = transcript.add_tool("1", "run_command", summary="sleep", state=ToolState.RUNNING)
    async with running(transcript, glyphs=ASCII) as pilot:
        pane, pictures = pane_of(pilot), set[str]()
        while len(pictures) < 4:
            pictures.add(screen_of(pilot)[0])
            await pilot.pause(0.02)
        assert {picture.replace(picture[2], "?", 1) for picture in pictures} == {"  ? Run sleep  running"}
        transcript.finish_tool(tool, ToolState.OK, "done")
        pane.flush()
        assert screen_of(pilot)[0].startswith("  * Run")
        assert pane._spinner is None


async def test_an_empty_transcript_takes_every_key() -> None:
    async with running(Transcript()) as pilot:
        keys = ("up", "down", "enter", "y", "pageup", "pagedown", "home", "end", "left_square_bracket")
        await pilot.press(*keys, "right_square_bracket")
        assert pane_of(pilot).cursor_block is None
        pane_of(pilot).transcript.add_user("now there is one")
        pane_of(pilot).flush()
        assert "now there is one" in screen_of(pilot)[0]


async def test_the_wheel_and_the_scrollbar_move_the_view() -> None:
    async with running(conversation(20)) as pilot:
        pane = pane_of(pilot)
        end = screen_of(pilot)
        pane.scroll_to(y=pane.scroll_y - 3, animate=False)
        assert screen_of(pilot)[3:] == end[:-3]
        pane.scroll_to(y=0, animate=False)
        assert screen_of(pilot)[0].endswith("prompt 0")
        pane.scroll_to(y=pane.max_scroll_y, animate=False)
        assert screen_of(pilot) == end


async def test_rewinding_and_showing_another_transcript() -> None:
    transcript = conversation(5)
    async with running(transcript) as pilot:
        pane = pane_of(pilot)
        await pilot.press("k")
        transcript.truncate(3)
        pane.flush()
        assert "Answer 0" in "\n".join(screen_of(pilot))
        assert pane.cursor_block is None
        other = Transcript()
        other.add_user("another session")
        pane.show(other)
        pane.flush()
        assert [line for line in screen_of(pilot) if line] == ["▌ another session"]
        transcript.add_user("not shown")
        pane.flush()
        assert "not shown" not in "\n".join(screen_of(pilot))


async def test_nothing_is_painted_while_nothing_changes() -> None:
    transcript = conversation(3)
    async with running(transcript) as pilot:
        pane = pane_of(pilot)
        painted: list[int] = []
        original = pane.render_line

        def counting(y: int) -> Strip:
            painted.append(y)
            return original(y)

        pane.render_line = counting  # type: ignore[method-assign]
        await pilot.pause(0.3)
        assert painted == []
        assert not pane.auto_refresh


def test_code_is_what_stands_in_a_fence_that_may_be_open() -> None:
    texts = ("", "``inline``", "    indented, not a fence", "```\na\n\nb")
    assert [fenced_code(text) for text in texts] == [[], [], [], ["a\n\nb"]]


def test_encoded_lines_order_like_lines() -> None:
    places = [(0, 0, 0), (0, 0, 7), (0, 3, 1), (2, 0, 0), (30_000, 400, 60)]
    numbers = [encode_line(*place) for place in places]
    assert numbers == sorted(numbers)
    assert [tuple(decode_line(number)) for number in numbers] == places
