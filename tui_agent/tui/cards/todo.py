"""The cards of the model's task list, with its items done, in progress and open, and of a plan that it submits."""

from collections.abc import Sequence
from functools import partial
from typing import Final

from typing_extensions import override

from tui_agent.conversation.tasks import PLAN, TodoItem, TodoList
from tui_agent.system.lenient import decoded
from tui_agent.text import counted, one_line
from tui_agent.tui.cards.tool import BODY_INDENT, ToolBlock, ToolState
from tui_agent.tui.painting.lines import Line, Run, fit, make_line, wrap
from tui_agent.tui.painting.palette import Look
from tui_agent.tui.painting.sections import Section

PREVIEW_ITEMS: Final = 3
"""Items of the task list shown under a collapsed card."""
PREVIEW_STEPS: Final = 6
"""Steps of a plan shown there."""


class TodoBlock(ToolBlock, eq=False, kw_only=True):
    """A call that sets the task list, shown as its items. A refused call, or one that ends the list, has none and looks
    like any other call.
    """

    TOOLS = frozenset(("todo",))

    todo: "tuple[TodoItem, ...]" = ()

    def __post_init__(self) -> None:
        if (written := decoded(self.arguments, TodoList)) is not None:
            self.todo = tuple(TodoItem(one_line(item.text), item.state) for item in written.items)
            self.summary = ""

    @override
    def text_parts(self) -> tuple[str, ...]:
        if not self.todo:
            return ToolBlock.text_parts(self)
        return self.display_name, *(item.line for item in self.todo), self.note, self.result

    @override
    def estimate(self, width: int, *, collapsed: bool) -> int:
        if not self._shown:
            return ToolBlock.estimate(self, width, collapsed=collapsed)
        return 1 + (self.preview_height() if collapsed else len(self.todo))

    @override
    def preview_height(self) -> int:
        return len(self._previewed) if self._shown else ToolBlock.preview_height(self)

    @override
    def draw_preview(self, width: int, look: Look) -> list[Line]:
        if not self._shown:
            return ToolBlock.draw_preview(self, width, look)
        return _draw(self._previewed, BODY_INDENT, False, width, look)

    @override
    def open_sections(self) -> list[Section]:
        if not self._shown:
            return ToolBlock.open_sections(self)
        return [Section(partial(_draw, self.todo, BODY_INDENT, True), breaks=len(self.todo) - 1)]

    @override
    def figures(self, look: Look) -> list[Run]:
        return [] if self._shown else ToolBlock.figures(self, look)

    @property
    def _shown(self) -> bool:
        return bool(self.todo) and self.state not in (ToolState.ERROR, ToolState.DENIED, ToolState.INTERRUPTED)

    @property
    def _previewed(self) -> "Sequence[TodoItem]":
        """The items of a collapsed card: those around the first open one, or the last ones if all are done."""
        items = self.todo
        first_open = next((place for place, item in enumerate(items) if item.state == "in_progress"), None)
        if first_open is None:
            first_open = next((place for place, item in enumerate(items) if item.state == "pending"), len(items))
        start = max(0, min(first_open - 1, len(items) - PREVIEW_ITEMS))
        return items[start : start + PREVIEW_ITEMS]


class PlanBlock(ToolBlock, eq=False, kw_only=True):
    """A submitted plan: its steps once it is approved. Its summary is the first line of the plan."""

    TOOLS = frozenset((PLAN,))

    def __post_init__(self) -> None:
        self.summary = self.summary.lstrip("# ").partition("␊")[0]

    @override
    def preview_lines(self) -> list[str]:
        steps = self.facts.steps
        if not steps:
            return ToolBlock.preview_lines(self)
        left = len(steps) - PREVIEW_STEPS
        more = [f"… {counted(left, 'more step')}"] if left > 0 else []
        return [*(f"{place}. {step}" for place, step in enumerate(steps[:PREVIEW_STEPS], 1)), *more]


def _draw(items: "Sequence[TodoItem]", indent: int, whole: bool, width: int, look: Look) -> list[Line]:
    """Paint items, each with its sign. `whole`: wrap long texts instead of cutting them."""
    palette, glyphs = look.palette, look.glyphs
    forms = {
        "done": (glyphs.checked, palette.faint, palette.faint),
        "in_progress": (glyphs.info, palette.accent, palette.base),
        "pending": (glyphs.unchecked, palette.faint, palette.muted),
    }
    lines: list[Line] = []
    for item in items:
        glyph, sign, ink = forms[item.state]
        start = (Run(" " * indent, palette.base), Run(f"{glyph} ", sign))
        if whole:
            lines += wrap([Run(item.text, ink)], width, first=start, rest=(Run(" " * (indent + 2), palette.base),))
        else:
            text = fit(item.text, max(1, width - indent - 2), glyphs.ellipsis)
            lines.append(make_line([*start, Run(text, ink)], gutter=indent + 2))
    return lines
