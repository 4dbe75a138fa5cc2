"""Someone at a terminal: types into the real command, and looks until the screen shows what was meant."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final

from tests.tui.test_terminal_app import Terminal

ENTER, TAB, BACK_TAB, UP, DOWN, BREAK = "\r", "\t", "\x1b[Z", "\x1b[A", "\x1b[B", "\x03"
ESC: Final = "\x1b[27u"
"""As terminals send it that tell it from the beginning of another key."""
SIZES: Final = [(40, 120), (24, 80), (20, 60)]


class Person:
    """Someone at a terminal: types, and looks until it shows what was expected."""

    def __init__(self, terminal: Terminal) -> None:
        self.terminal = terminal
        self.focused = ""

    @property
    def screen(self) -> str:
        return self.terminal.text

    @property
    def words(self) -> str:
        """What is written on the screen, as one line and without what dialogs are framed with."""
        return " ".join(self.screen.translate(dict.fromkeys(map(ord, "▌│╭╮╰╯─▇▅▄▆▃▂▁"), " ")).split())

    def sends(self, keys: str) -> None:
        self.terminal.process.send(keys)

    def sees(self, *words: str) -> None:
        """Wait for these words on the screen, however its lines are broken."""
        for each in words:
            self.terminal.until(partial(self._shows, each))

    def _shows(self, words: str) -> bool:
        return words in self.screen or words in self.words

    def no_longer_sees(self, words: str) -> None:
        self.terminal.until(lambda: words not in self.screen)

    def types(self, text: str) -> None:
        """Write it into the prompt, and see it there."""
        self.sends(text)
        self.sees(f"│ {text}"[: self.terminal.screen.columns - 4])

    def says(self, text: str, *answer: str) -> None:
        self.types(text)
        self.sends(ENTER)
        self.sees(*answer)

    def closes(self, words: str) -> None:
        """Esc over a dialog that shows these words."""
        self.sends(ESC)
        self.no_longer_sees(words)

    @property
    def frame(self) -> str:
        """The colour of the prompt's frame."""
        return str(self.terminal.screen.buffer[self.terminal.screen.lines - 2][0].fg)

    def goes_back_to_the_prompt(self) -> None:
        """Esc, until its frame says that it has the keyboard."""
        self.sends(ESC)
        self.terminal.until(lambda: self.frame == self.focused)

    def notes_the_frame(self) -> None:
        """As it is while the prompt has the keyboard."""
        self.focused = self.frame

    def empties(self) -> None:
        self.sends(BREAK)
        self.sees("│ Ask, or / for commands")

    @property
    def status(self) -> str:
        return self.screen.splitlines()[-1]

    def waits_until_ready(self) -> None:
        self.terminal.until(lambda: self.status.split()[:1] == ["ready"])


@contextmanager
def at_the_terminal(
    project: Path, home: Path, *arguments: str, size: tuple[int, int], url: str, key: str = ""
) -> Iterator[Person]:
    environment = {
        "ANTHROPIC_BASE_URL": url,
        "OLLAMA_HOST": "http://127.0.0.1:9",
        "PYTHON_KEYRING_BACKEND": "keyring.backends.fail.Keyring",
        "PATH": os.pathsep.join((str(project / "bin"), str(Path(sys.executable).parent), os.environ["PATH"])),
        "SHELL": "/bin/sh",
        **({"ANTHROPIC_API_KEY": key} if key else {}),
    }
    rows, columns = size
    terminal = Terminal(project, home, *arguments, environment=environment, rows=rows, columns=columns)
    try:
        yield Person(terminal)
    finally:
        terminal.close()
