"""A conversation read with every key of its pane, and what stands on the screen after each.

`walk.txt` has the keys and the screens. After a change that is meant: ``.venv/bin/python -m
tests.tui.pane.test_walk_of_keys`` writes it anew; look at what changed.
"""

import asyncio
import re
from pathlib import Path
from typing import Final

from tests.settled import wait_for_what_is_due
from tests.tui.pane.test_conversation import PaneApp, conversation, pane_of, running, screen_of
from tui_agent.tui.cards.blocks import Level
from tui_agent.tui.painting.glyphs import ASCII
from tui_agent.tui.pane.transcript import Transcript

KEPT: Final = Path(__file__).with_name("walk.txt")
KEYS: Final = (
    *("up", "up", "enter", "up", "down", "down", "enter", "home", "down", "end", "pageup", "pageup", "pagedown"),
    *("left_square_bracket",) * 3,
    *("right_square_bracket",) * 4,
    *("slash", "r", "o", "w", "space", "1", "enter", "n", "N", "N", "n", "escape", "home", "slash", "backspace"),
    *("slash", "x", "y", "backspace", "backspace", "backspace", "slash", "A", "enter", "up", "escape", "end"),
)


CODE: Final = "Two:\n\n```python\nfirst = 1\n```\n\nand\n\n- in a list:\n  ```\n  second = 2\n    deeper\n  ```\n"
MESSAGE_KEYS: Final = (
    *("r", "f", "up", "r", "u", "up", "r", "f", "pageup", "pagedown", "tab", "shift+tab"),
    *("slash", "m", "escape"),
)


def _long() -> Transcript:
    transcript = conversation(3)
    transcript.add_prose("# Head\n\n" + "words " * 60 + "\n\n```py\nx = 1\n```")
    transcript.add_notice(Level.WARNING, "Careful", "Details.", "Try again.")
    return transcript


def _messages() -> Transcript:
    """Twenty messages of the user, with their numbers from 1 on, one without, and a step that can be undone."""
    transcript = Transcript()
    for number in range(1, 21):
        transcript.add_user(f"message {number}", seq=number)
    transcript.add_boundary("cleared", seq=23, before=9_000, after=8_000)
    transcript.add_user("not in the log yet")
    return transcript


async def _seen() -> list[str]:
    told: list[str] = []
    transcript = _long()
    async with running(transcript, size=(46, 9), glyphs=ASCII) as pilot:
        app, pane = pilot.app, pane_of(pilot)
        assert isinstance(app, PaneApp)
        before: list[str] = []

        def tell(what: str) -> None:
            told.append(f"--- {what}: at {pane._cursor}, line {pane._viewport.top_line}{', follows' * pane.following}")
            told.extend(f"> {said}" for said in app.told)
            app.told.clear()
            # Hits are counted a moment at a time.
            seen = [re.sub(r"(\d+ of \d+\+?|\.\.\.) - ", "# of # - ", line) for line in screen_of(pilot)]
            if seen != before:
                told.extend(seen)
            before[:] = seen

        async def press(*keys: str) -> None:
            for key in keys:
                await pilot.press(key)
                tell(key)

        tell("start")
        await press(*KEYS)
        await pilot.press("pageup")
        transcript.add_prose("One more line.")
        await pilot.pause(0.1)
        tell("one more line")
        transcript.add_user("and\na\nprompt")
        await pilot.pause(0.1)
        tell("a prompt")
        await pilot.click(pane, offset=(40, 7))
        tell("click on the label")
        for x, y in ((5, 1), (5, 1), (0, 5)):
            await pilot.click(pane, offset=(x, y))
            tell(f"click {x}, {y}")
        pane.toggle_all()
        await pilot.pause()
        tell("all open")
        await pilot.resize_terminal(30, 6)
        await pilot.pause()
        tell("smaller")
        transcript.add_prose(CODE)
        transcript.add_user("and now?")
        await press("end", "up", "up", "y", "c", "c", "c", "down", "c")
        for code in (False, True, True):
            assert pane.copy_answer(code=code)
            await pilot.pause()
            tell("of the answer")
        await pilot.resize_terminal(70, 10)
        await pilot.pause()
        transcript = _messages()
        pane.show(transcript)
        pane._move_cursor([block.id for block in transcript.blocks].index(22))
        tell("messages")
        await press(*MESSAGE_KEYS)
        pane._move_cursor([block.id for block in transcript.blocks].index(1))
        tell("the first")
        await press(*["down"] * 5)
        transcript.add_notice(Level.INFO, "new")
        pane.flush()
        tell("what is new")
    return told


async def test_the_screen_after_each_key_is_what_it_was() -> None:
    assert await _seen() == KEPT.read_text("utf-8").splitlines()


if __name__ == "__main__":
    wait_for_what_is_due()
    KEPT.write_text("".join(f"{line}\n" for line in asyncio.run(_seen())), "utf-8")
