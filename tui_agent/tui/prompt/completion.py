"""Completion: the short list above the prompt of what could be typed next."""

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


class CompletionItem(Struct, frozen=True):
    """One completion.

    insert: the text put into the prompt. final: it is complete, nothing needs to follow. names: its other names.
    """

    insert: str
    label: str
    description: str = ""
    final: bool = True
    names: tuple[str, ...] = ()

    def begins_with(self, typed: str) -> bool:
        """Whether the typed text is a prefix of it or of one of its other names."""
        return any(name.lower().startswith(typed.lower()) for name in (self.insert, *self.names))

    def is_called(self, typed: str) -> bool:
        """Whether the typed text is exactly it or one of its other names."""
        return typed.lower() in (name.rstrip().lower() for name in (self.insert, *self.names))


class Completion(Struct, frozen=True):
    """Choices that could replace the text from character `start` up to the cursor."""

    start: int
    choices: tuple[CompletionItem, ...]

    def means(self, choice: CompletionItem, typed: str) -> bool:
        """Whether the typed text unambiguously means this choice: its whole name, or a prefix of no other choice."""
        alike = [each for each in self.choices if each.begins_with(typed)]
        return choice.is_called(typed) or (bool(typed.strip("/")) and alike == [choice])


Completer: TypeAlias = Callable[[str], Completion | None]
"""Maps the text before the cursor to its completions, or None."""


class CompletionList(Widget):
    """The list of choices, one of them marked; hidden while there are none."""

    def __init__(self) -> None:
        super().__init__()
        self.completion: Completion | None = None
        self._marked = 0
        self.moved = False
        """Whether the user has moved the mark."""
        self.display = False

    def show(self, completion: Completion | None) -> None:
        before = self._count
        self.completion = completion if completion is not None and completion.choices else None
        self._marked = 0
        self.moved = False
        self.display = self.completion is not None
        # A layout of the whole screen takes longer than everything else a key press does: avoid it if possible.
        self.refresh(layout=self._count != before)

    @property
    def _count(self) -> int:
        return len(self.completion.choices) if self.completion is not None else 0

    def move(self, step: int) -> None:
        """Move the mark, wrapping around at the ends."""
        if self.completion is not None:
            self._marked = (self._marked + step) % len(self.completion.choices)
            self.moved = True
            self.refresh()

    @property
    def marked(self) -> CompletionItem | None:
        return None if self.completion is None else self.completion.choices[self._marked]

    @override
    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        """A line for each choice, at most `MAX_ROWS` and a third of the screen."""
        if self.completion is None:
            return 0
        return min(MAX_ROWS, len(self.completion.choices), max(1, viewport.height // 3))

    @override
    def render(self) -> Content:
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


def _row(choice: CompletionItem, width: int, label_width: int, marked: str) -> Content:
    """A line of the list; `marked`: the style of the label if it is the marked one, else empty."""
    label = fit(one_line(choice.label), max(1, min(width, label_width - 2))).ljust(label_width)
    room = width - label_width
    description = fit(one_line(choice.description), room) if room >= _LEAST_DESCRIPTION else ""
    return Content.assemble(
        (label, marked or "$foreground"),
        (description, "$foreground" if marked else "$foreground 68%"),
    )
