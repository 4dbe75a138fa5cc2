"""A prompt that is written, edited, completed and sent key by key, and what it shows after each.

In `walk.txt` stand the key, the text with the cursor as ┃, what is selected, and the completions. After a change that
is meant: ``.venv/bin/python -m tests.tui.prompt.test_walk_of_prompt`` writes it anew; look at what changed.
"""

import asyncio
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from textual import events

from tests.tui.prompt.test_prompt import PromptApp
from tui_agent.tui.prompt.completion import CompletionList

KEPT: Final = Path(__file__).with_name("walk.txt")
PASTED: Final = "\n".join(f"line {number}" for number in range(30))
KEYS: Final = (
    *("o", "n", "e", "space", "t", "w", "o", "ctrl+j", "l", "i", "n", "e"),
    *("up", "up", "home", "ctrl+right", "delete", "ctrl+w", "ctrl+y", "end", "ctrl+k", "ctrl+u", "ctrl+y", "ctrl+z"),
    *("enter", "up", "down", "up", "up", "x", "enter", "up", "up", "down", "down", "down"),
    *("slash", "down", "down", "up", "up", "tab", "space", "x", "ctrl+u", "slash", "down", "tab", "y", "ctrl+u"),
    *("slash", "m", "enter", "ctrl+u", "slash", "h", "escape", "enter", "slash", "h", "enter", "slash", "z", "ctrl+u"),
    *("a", "paste", "b", "left", "backspace", "ctrl+z", "left", "backspace", "enter", "paste", "enter", "up", "ctrl+u"),
    *("a", "backslash", "enter", "b", "shift+left", "shift+left", "delete", "enter", "up", "ctrl+d"),
    *("left", "ctrl+d", "ctrl+d", "up", "up", "x", "up", "end", "ctrl+u", "a", "ctrl+j", "b", "up", "up", "down"),
    *("down", "ctrl+u", "backspace", "ctrl+u", "space", "enter", "ctrl+u", "m", "home", "slash", "h", "enter"),
    *("end", "ctrl+u", "b", "backslash", "backslash", "enter", "!", "l", "backslash", "enter", *["ctrl+j"] * 7),
)


async def _seen(home: Path) -> list[str]:
    told: list[str] = []
    app = PromptApp(home)
    async with app.run_test(size=(60, 20)) as pilot:
        prompt = app.area.prompt
        for key in KEYS:
            sent, left = len(app.sent), app.left
            if key == "paste":
                prompt.post_message(events.Paste(PASTED))
                await pilot.pause()
            else:
                await pilot.press(key)
            row, column = prompt.cursor_location
            lines = prompt.text.split("\n")
            lines[row] = f"{lines[row][:column]}┃{lines[row][column:]}"
            chosen = f" selected {prompt.selected_text!r}" if prompt.selected_text else ""
            told.append(f"{key}: {'⏎'.join(lines)}{chosen}, {app.area.size.height} lines{', left' * (app.left - left)}")
            told += [f"  sent {text!r} as {written!r}" for text, written in app.sent[sent:]]
            choices = app.query_one(CompletionList)
            if choices.display and choices.marked is not None:
                told.append(f"  marked {choices.marked.insert}{', moved' * choices.moved}")
                told += [f"  {line.rstrip()}" for line in str(choices.render()).split("\n")]
    return told


async def test_the_prompt_after_each_key_is_what_it_was(tmp_path: Path) -> None:
    assert await _seen(tmp_path) == KEPT.read_text("utf-8").splitlines()


if __name__ == "__main__":
    with TemporaryDirectory() as folder:
        KEPT.write_text("".join(f"{line}\n" for line in asyncio.run(_seen(Path(folder)))), "utf-8")
