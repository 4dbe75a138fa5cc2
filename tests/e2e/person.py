"""Someone at a terminal: types into the real command, and looks until the screen shows what was meant."""

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Final

from tests.tui.app.test_terminal_app import Terminal

ENTER, TAB, BACK_TAB, UP, DOWN, BREAK = "\r", "\t", "\x1b[Z", "\x1b[A", "\x1b[B", "\x03"
PAGE_DOWN: Final = "\x1b[6~"
ESC: Final = "\x1b[27u"
"""As terminals send it that tell it from the beginning of another key."""
PROMPT: Final = "what now? "
"""Of the shell."""
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

    def runs(self, command: str) -> str:
        """Have the shell run a command; all that it prints."""
        before = len(self.terminal.raw)
        self.sends(f"{command}{ENTER}")
        # Once where it is typed, and once more where it is over.
        self.terminal.until(lambda: self._printed(before).count(PROMPT) > 0)
        return self._printed(before).partition("\n")[2].replace(PROMPT, "")

    def _printed(self, since: int) -> str:
        return self.terminal.raw[since:].decode(errors="replace").replace("\r\n", "\n")

    def looks(self, words: str) -> list[tuple[str, str, str, bool]]:
        """These words where they stand last: each character with its colour, its ground, and whether it is slanted."""
        screen = self.terminal.screen
        row = max(number for number, line in enumerate(screen.display) if words in line)
        begins = screen.display[row].index(words)
        cells = [screen.buffer[row][column] for column in range(begins, begins + len(words))]
        return [(cell.data, cell.fg, cell.bg, cell.italics) for cell in cells]

    @property
    def status(self) -> str:
        return self.screen.splitlines()[-1]

    def waits_until_ready(self) -> None:
        self.terminal.until(lambda: self.status.split()[:1] == ["ready"])


@contextmanager
def at_the_terminal(
    project: Path,
    home: Path,
    *arguments: str,
    size: tuple[int, int],
    url: str,
    key: str = "",
    more: Mapping[str, str] | None = None,
    in_shell: bool = False,
) -> Iterator[Person]:
    """A person who has started the command, or who sits at a shell to start it in. more: of the environment."""
    environment = {
        "ANTHROPIC_BASE_URL": url,
        "OLLAMA_HOST": "http://127.0.0.1:9",
        "PYTHON_KEYRING_BACKEND": "keyring.backends.fail.Keyring",
        "PATH": os.pathsep.join((str(project / "bin"), str(Path(sys.executable).parent), os.environ["PATH"])),
        "SHELL": "/bin/sh",
        "PS1": PROMPT,
        **({"ANTHROPIC_API_KEY": key} if key else {}),
        **(more or {}),
    }
    rows, columns = size
    with closing(
        Terminal(project, home, *arguments, environment=environment, rows=rows, columns=columns, in_shell=in_shell)
    ) as terminal:
        yield Person(terminal)
