"""What could be typed next: a short list over the prompt."""

from collections.abc import Callable
from typing import Final, TypeAlias

from msgspec import Struct
from textual.content import Content
from textual.geometry import Size
from textual.widget import Widget
from typing_extensions import override

from tui_agent.text import one_line
from tui_agent.tui.painting.lines import fit
from tui_agent.tui.terminal.filters import marked_style

MAX_ROWS: Final = 8
_LABEL_CELLS: Final = 28
_LEAST_DESCRIPTION: Final = 12


class Choice(Struct, frozen=True):
    """One completion. insert: what stands in the prompt when it is taken. final: nothing needs to follow.
    names: what it can be called beside that.
    """

    insert: str
    label: str
    description: str = ""
    final: bool = True
    names: tuple[str, ...] = ()

    def begins_with(self, typed: str) -> bool:
        """Whether what was typed is the beginning of it, or of another name of it."""
        return any(name.lower().startswith(typed.lower()) for name in (self.insert, *self.names))

    def is_called(self, typed: str) -> bool:
        """Whether this was typed to its last character."""
        return typed.lower() in (name.rstrip().lower() for name in (self.insert, *self.names))


class Completion(Struct, frozen=True):
    """Choices for the text from character `start` up to the cursor."""

    start: int
    choices: tuple[Choice, ...]

    def means(self, choice: Choice, typed: str) -> bool:
        """Whether what was typed can be nothing but this choice: its whole name, or the beginning of no other."""
        alike = [each for each in self.choices if each.begins_with(typed)]
        return choice.is_called(typed) or (bool(typed.strip("/")) and alike == [choice])


Completer: TypeAlias = Callable[[str], Completion | None]
"""Given the text before the cursor: what could stand there instead, or None."""


class CompletionList(Widget):
    """Shows a completion, with one choice marked; hidden while there is none."""

    def __init__(self) -> None:
        super().__init__()
        self.completion: Completion | None = None
        self._marked = 0
        self.moved = False
        """Whether the user has looked for one."""
        self.display = False

    def show(self, completion: Completion | None) -> None:
        """Show these choices, or hide."""
        before = self._count
        self.completion = completion if completion is not None and completion.choices else None
        self._marked = 0
        self.moved = False
        self.display = self.completion is not None
        # To lay the whole screen out takes longer than all else a key press does.
        self.refresh(layout=self._count != before)

    @property
    def _count(self) -> int:
        return len(self.completion.choices) if self.completion is not None else 0

    def move(self, step: int) -> None:
        """Mark another choice; the ends meet."""
        if self.completion is not None:
            self._marked = (self._marked + step) % len(self.completion.choices)
            self.moved = True
            self.refresh()

    @property
    def marked(self) -> Choice | None:
        """The marked choice."""
        return None if self.completion is None else self.completion.choices[self._marked]

    @override
    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        """As many lines as choices, up to `MAX_ROWS` and a third of the screen."""
        if self.completion is None:
            return 0
        return min(MAX_ROWS, len(self.completion.choices), max(1, viewport.height // 3))

    @override
    def render(self) -> Content:
        """The choices around the marked one."""
        if self.completion is None:
            return Content("")
        rows = max(1, self.size.height)
        first = max(0, min(self._marked - rows // 2, len(self.completion.choices) - rows))
        visible = self.completion.choices[first : first + rows]
        width = self.size.width
        described = any(choice.description for choice in self.completion.choices)
        longest = max(len(choice.label) for choice in self.completion.choices) + 2
        label_width = min(longest, _LABEL_CELLS) if described else width
        lines = [
            _row(choice, width, label_width, marked_style(self.app) if index == self._marked else "")
            for index, choice in enumerate(visible, first)
        ]
        below = len(self.completion.choices) - first - len(visible)
        more = f"{below:,} more"
        blanks = width - lines[-1].cell_length - len(more)
        if below and blanks > 1:
            lines[-1] += Content.styled(" " * blanks + more, "$foreground 68%")
        return Content("\n").join(lines)


def _row(choice: Choice, width: int, label_width: int, marked: str) -> Content:
    """A line of the list; `marked`: how the label is written where it is the marked one."""
    label = fit(one_line(choice.label), max(1, min(width, label_width - 2))).ljust(label_width)
    room = width - label_width
    description = fit(one_line(choice.description), room) if room >= _LEAST_DESCRIPTION else ""
    return Content.assemble(
        (label, marked or "$foreground"),
        (description, "$foreground" if marked else "$foreground 68%"),
    )
