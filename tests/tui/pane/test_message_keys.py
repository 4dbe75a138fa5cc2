"""Where the pane says what can be done with the user's message under the block cursor."""

from textual.app import App, ComposeResult
from textual.widgets import Input
from typing_extensions import override

from tui_agent.tui.cards.blocks import Level
from tui_agent.tui.pane.conversation import ConversationPane
from tui_agent.tui.pane.transcript import Transcript

BELOW = "  → r rewinds to before it · f forks after it"
IN_LINE = " r rewinds to before it · f forks after it"


class Screen(App[None]):
    """A pane on twenty messages of the user, with their numbers from 1 on, and a place to type."""

    def __init__(self) -> None:
        super().__init__()
        self.transcript = Transcript()
        for number in range(1, 21):
            self.transcript.add_user(f"message {number}", seq=number)
        self.pane = ConversationPane(self.transcript)
        self.asked: list[tuple[str, int]] = []

    @override
    def compose(self) -> ComposeResult:
        yield self.pane
        yield Input(compact=True)

    def on_mount(self) -> None:
        self.pane.focus()

    def on_conversation_pane_rewind_asked(self, message: ConversationPane.RewindAsked) -> None:
        self.asked.append(("rewind", message.seq))

    def on_conversation_pane_fork_asked(self, message: ConversationPane.ForkAsked) -> None:
        self.asked.append(("fork", message.seq))


def rows(screen: Screen) -> list[str]:
    return [screen.pane.render_line(y).text.rstrip() for y in range(screen.pane.scrollable_content_region.height)]


async def test_below_the_message_where_there_is_a_blank_line() -> None:
    screen = Screen()
    async with screen.run_test(size=(60, 10)) as pilot:
        await pilot.press("home")
        screen.pane.reveal(1)
        assert rows(screen)[:2] == ["▎ message 1", BELOW]
        await pilot.press("down")
        assert rows(screen)[:4] == ["▌ message 1", "", "▎ message 2", BELOW]


async def test_in_the_last_line_where_the_message_ends_there() -> None:
    screen = Screen()
    async with screen.run_test(size=(60, 10)) as pilot:
        for key in ("home", "left_square_bracket", *["down"] * 10):
            await pilot.press(key)
            await pilot.pause()
        *others, last = rows(screen)
        assert last.startswith("▎ message")
        assert last.endswith(IN_LINE)
        assert not any("rewinds" in row for row in others)


async def test_below_the_last_message_of_all() -> None:
    screen = Screen()
    async with screen.run_test(size=(60, 50)) as pilot:
        await pilot.press("up")
        shown = rows(screen)
        assert shown[shown.index("▎ message 20") + 1] == BELOW
        assert not any(shown[shown.index(BELOW) + 1 :])


async def test_not_where_the_message_is_out_of_view_or_the_keys_go_elsewhere() -> None:
    screen = Screen()
    async with screen.run_test(size=(60, 10)) as pilot:
        await pilot.press("home")
        screen.pane.reveal(1)
        await pilot.press("pagedown")
        assert not any("rewinds" in row for row in rows(screen))
        await pilot.press("pageup")
        assert BELOW in rows(screen)
        await pilot.press("tab")
        assert not any("rewinds" in row for row in rows(screen))


async def test_a_search_and_what_is_new_come_first() -> None:
    screen = Screen()
    async with screen.run_test(size=(60, 10)) as pilot:
        await pilot.press("home", "left_square_bracket", *["down"] * 10)
        await pilot.press("slash", "m")
        assert rows(screen)[-1].startswith("  /m")
        await pilot.press("escape")
        screen.transcript.add_notice(Level.INFO, "new")
        screen.pane.flush()
        assert rows(screen)[-1].endswith("new lines · End")


async def test_the_keys_name_the_message() -> None:
    screen = Screen()
    async with screen.run_test(size=(60, 10)) as pilot:
        screen.transcript.add_user("not in the log yet")
        screen.pane.reveal(21)
        await pilot.press("r", "f")
        assert screen.asked == []
        await pilot.press("up", "r", "up", "f")
        assert screen.asked == [("rewind", 20), ("fork", 19)]
