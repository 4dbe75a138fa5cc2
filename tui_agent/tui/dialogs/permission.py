"""The question whether a tool call may happen."""

import asyncio
from collections.abc import Callable
from textwrap import wrap
from time import monotonic
from typing import ClassVar, Final

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.content import Content
from textual.message import Message
from textual.widgets import Input, Static
from typing_extensions import override

from tui_agent.text import clean, displayed, one_line
from tui_agent.tools.base import PermissionAnswer, PermissionQuestion
from tui_agent.tui.cards.diffs import read_diff
from tui_agent.tui.cards.lines import fit

QUIET_S: Final = 0.3
"""Seconds without a key press before the question takes the keyboard."""

MAX_PREVIEW_LINE: Final = 8_000
"""Characters of one line of a preview: wrapping a line of a megabyte holds up the keys for seconds."""
MAX_PREVIEW_LINES: Final = 400

MAX_CHOICE_LINES: Final = 3

TINY_SCREEN: Final = 7
"""A screen with fewer lines gets title and choices only; a command then stands in the title."""

LOW_SCREEN: Final = 14
"""A screen with fewer lines gets the question in three of them."""

OTHER_LINES: Final = 11
"""Lines of the panel beside the preview: padding, margins, title, four choices, the keys or a field for words."""

LOW_OTHER_LINES: Final = 3
"""The same on a low screen: title, and choices on two lines."""

MAX_SHARE: Final = 75
"""Percent of the screen's height that the panel may take."""

PLAIN_REASONS: Final = frozenset(("It runs a command.", "It changes a file.", "It reaches the network."))
"""Reasons that say no more than the call itself does."""

_SHORT_CHOICES: Final = ("yes", "always", "no", "why")
_CHOICES: Final = ("Yes, this once", "Yes, always for {pattern}", "No", "No, and say why")


class PermissionPanel(Vertical, can_focus=True):
    """Asks one question at a time, over the prompt.

    It takes the keyboard only once nobody has typed for `QUIET_S`; until then every key belongs to the prompt, and a
    letter that answers nothing goes back there.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("1", "choose(0)", "Once", show=False),
        Binding("2", "choose(1)", "Always", show=False),
        Binding("3", "choose(2)", "No", show=False),
        Binding("4", "choose(3)", "No, because", show=False),
        Binding("up", "mark(-1)", "Up", show=False),
        Binding("down", "mark(1)", "Down", show=False),
        Binding("enter", "choose_marked", "Choose", show=False),
        Binding("pageup", "scroll_preview(-1)", "Preview up", show=False),
        Binding("pagedown", "scroll_preview(1)", "Preview down", show=False),
    ]

    class Closed(Message):
        """No question waits any more; `had_focus`: the keyboard was here."""

        def __init__(self, had_focus: bool) -> None:
            super().__init__()
            self.had_focus = had_focus

    class Typed(Message):
        """The user typed something that is no answer."""

        def __init__(self, character: str) -> None:
            super().__init__()
            self.character = character

    def __init__(self, typed_at: Callable[[], float]) -> None:
        """`typed_at`: when a key last went to the prompt, on the monotonic clock."""
        super().__init__()
        self.display = False
        self._typed_at = typed_at
        self._one_at_a_time = asyncio.Lock()
        self._answer: asyncio.Future[PermissionAnswer] | None = None
        self._title = self._brief = self._reason = self._pattern = ""
        self._marked = 0

    @override
    def compose(self) -> ComposeResult:
        yield Static(id="permission-title")
        with VerticalScroll(id="permission-preview", can_focus=False):
            yield Static(id="permission-text")
        yield Static(id="permission-choices")
        yield Static(id="permission-keys")
        yield Input(placeholder="What should be done instead?", id="permission-reason", compact=True)

    @property
    def asking(self) -> bool:
        """Whether a question waits."""
        return self._answer is not None

    async def ask(self, question: PermissionQuestion) -> PermissionAnswer:
        """Show the question and wait for the answer. Cancelling it takes the question away."""
        async with self._one_at_a_time:
            self._answer = asyncio.get_running_loop().create_future()
            self._show(question)
            try:
                return await self._answer
            finally:
                self._answer = None
                had_focus = self.has_focus_within
                if self.is_attached:
                    self._set_open(False)
                    self.post_message(self.Closed(had_focus))

    def action_choose(self, index: int) -> None:
        """Answer with the choice of this number, counted from 0."""
        if self._answer is None or self._answer.done():
            return
        match index:
            case 0:
                self._answer.set_result(PermissionAnswer(allowed=True))
            case 1 if self._pattern:
                self._answer.set_result(PermissionAnswer(allowed=True, always=True))
            case 2:
                self._answer.set_result(PermissionAnswer(allowed=False))
            case 3:
                self._marked = 3
                reason = self.query_one(Input)
                reason.display = True
                self._paint()
                reason.focus()
            case _:
                self.app.bell()

    def action_choose_marked(self) -> None:
        """Answer with the marked choice."""
        self.action_choose(self._marked)

    def action_mark(self, step: int) -> None:
        """Mark another choice."""
        self._marked = (self._marked + step) % len(_CHOICES)
        if self._marked == 1 and not self._pattern:
            self._marked += step
        self._paint_choices()

    def action_scroll_preview(self, pages: int) -> None:
        """Show more of what is asked about."""
        preview = self.query_one(VerticalScroll)
        preview.scroll_relative(y=pages * max(1, preview.size.height - 1), animate=False)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """The reason is written."""
        event.stop()
        if self._answer is not None and not self._answer.done():
            self._answer.set_result(PermissionAnswer(allowed=False, feedback=event.value.strip()))

    def on_key(self, event: events.Key) -> None:
        """Let what answers nothing go where it was meant to go."""
        if isinstance(self.app.focused, Input):
            if event.key == "escape":
                event.stop()
                self.query_one(Input).display = False
                self.focus()
            return
        if event.is_printable and event.character is not None and event.key not in {"1", "2", "3", "4"}:
            event.stop()
            self.post_message(self.Typed(event.character))

    def _show(self, question: PermissionQuestion) -> None:
        self._pattern = one_line(question.pattern, 200)
        self._marked = 0
        self._title = one_line(question.preview.title) or one_line(question.tool, 80)
        self._brief = one_line(question.preview.command) or self._title
        reason = one_line(question.reason)
        self._reason = "" if reason in PLAIN_REASONS else reason
        self.query_one("#permission-text", Static).update(_preview(question))
        self.query_one(VerticalScroll).scroll_home(animate=False)
        field = self.query_one(Input)
        field.value = ""
        field.display = False
        self._paint()
        self._set_open(True)
        self._take_keyboard_after(QUIET_S, self._answer)

    def _set_open(self, is_open: bool) -> None:
        self.display = is_open
        # A screen of five lines has no room for the conversation as well.
        self.screen.set_class(is_open, "-asking")

    def _take_keyboard_after(self, seconds: float, asked: object) -> None:
        self.set_timer(seconds, lambda: self._take_keyboard(asked))

    def _take_keyboard(self, asked: object) -> None:
        if asked is not self._answer or self.has_focus_within:
            return
        remaining = self._typed_at() + QUIET_S - monotonic()
        if remaining > 0:
            self._take_keyboard_after(remaining, asked)
        else:
            self.focus()

    def on_resize(self) -> None:
        """Give what is asked about the lines that title and choices leave."""
        self._paint()

    def on_descendant_focus(self) -> None:
        """Say which keys work now."""
        self._paint()

    def on_focus(self) -> None:
        """Say which keys work now."""
        self._paint()

    def on_blur(self) -> None:
        """Say which key leads back here."""
        self._paint()

    def _paint(self) -> None:
        asked, what = ("? ", fit(self._brief, self._label_width() + 1)) if self._tiny else ("Allow this? ", self._title)
        title = Content.assemble((asked, "$accent bold"), (what, "$foreground bold"))
        if self._reason and not self._low:
            title += Content.styled(f"\n{self._reason}", "$foreground 68%")
        self.query_one("#permission-title", Static).update(title)
        keys = "Enter or a number answers, Esc stops the turn" if self.has_focus_within else "Tab to answer"
        told = self.query_one("#permission-keys", Static)
        told.update(Content(keys))
        told.display = not self._low and not self.query_one(Input).display
        self._paint_choices()
        self._bound_preview()

    @property
    def _low(self) -> bool:
        return self.app.size.height < LOW_SCREEN

    @property
    def _tiny(self) -> bool:
        return self.app.size.height < TINY_SCREEN

    def _bound_preview(self) -> None:
        screen = self.app.size.height
        preview = self.query_one(VerticalScroll)
        others = OTHER_LINES + (1 if self._reason else 0) + self._always_lines() - 1
        others = LOW_OTHER_LINES if self._low else others
        preview.styles.max_height = max(1, (screen - 1) * MAX_SHARE // 100 - others)

    def _paint_choices(self) -> None:
        choices = self.query_one("#permission-choices", Static)
        if self._low:
            named = [self._choice(index, name) for index, name in enumerate(_SHORT_CHOICES)]
            wide = sum(len(choice.plain) + 2 for choice in named) <= max(choices.size.width, self.app.size.width - 3)
            rows = [named] if wide else [named[:2], named[2:]]
            choices.update(Content("\n").join(Content("  ").join(row) for row in rows))
            return
        labels = [choice.format(pattern=self._pattern) for choice in _CHOICES]
        if not self._pattern:
            labels[1] = "Yes, always (not for this one)"
        choices.update(Content("\n").join(self._choice(index, label) for index, label in enumerate(labels)))

    def _choice(self, index: int, label: str) -> Content:
        possible = index != 1 or bool(self._pattern)
        marked = index == self._marked
        color = "$accent bold" if marked else "$foreground" if possible else "$foreground 40%"
        number = f"{index + 1} " if self._low else f"{index + 1}  "
        lines = [label] if self._low else _wrapped(label, self._label_width()) or [""]
        shown = Content(f"\n{' ' * len(number)}").join(Content.styled(line, color) for line in lines)
        return Content.assemble((number, "$accent bold" if marked else "$foreground 68%"), shown)

    def _label_width(self) -> int:
        # The padding and border of the panel, and the number before each choice.
        return max(10, self.app.size.width - 8)

    def _always_lines(self) -> int:
        return len(_wrapped(_CHOICES[1].format(pattern=self._pattern), self._label_width())) if self._pattern else 1


def _cut(line: str) -> str:
    """A line as it is painted; of a very long one the beginning, and how much more there is."""
    more = len(line) - MAX_PREVIEW_LINE
    return displayed(line) if more <= 0 else f"{displayed(line[:MAX_PREVIEW_LINE])} … {more:,} more characters"


def _wrapped(text: str, width: int) -> list[str]:
    """Lines of at most `width` characters, at most `MAX_CHOICE_LINES` of them."""
    return wrap(text, width, max_lines=MAX_CHOICE_LINES, placeholder=" …", break_on_hyphens=False)


def _preview(question: PermissionQuestion) -> Content:
    preview = question.preview
    if preview.diff:
        return _diff(preview.diff)
    if preview.command:
        return _lines(preview.command, lambda line: "$foreground")
    return _lines(preview.text or question.arguments, lambda line: "$foreground 68%")


def _lines(text: str, color: Callable[[str], str]) -> Content:
    lines = clean(text).rstrip("\n").split("\n")
    shown = [Content.styled(_cut(line), color(line)) for line in lines[:MAX_PREVIEW_LINES]]
    if len(lines) > len(shown):
        shown.append(Content.styled(f"… {len(lines) - len(shown):,} more lines", "$foreground 68%"))
    return Content("\n").join(shown)


def _diff(text: str) -> Content:
    """A diff from the first changed line on, and the line before it: there may be room for three lines only."""
    rows = read_diff(clean(text))
    changed = next((place for place, row in enumerate(rows) if row.sign in "+-"), 0)
    shown = rows[max(0, changed - 1) :][:MAX_PREVIEW_LINES]
    digits = max((len(str(row.number)) for row in shown), default=1)
    lines = [
        Content.assemble(
            (f"{row.number or '':>{digits}} ", "$foreground 68%"),
            (_cut(f"{row.sign} {row.text}") if row.number else "…", _diff_color(row.sign)),
        )
        for row in shown
    ]
    left = len(rows) - changed - len(shown)
    if left > 0:
        lines.append(Content.styled(f"… {left:,} more lines", "$foreground 68%"))
    return Content("\n").join(lines)


def _diff_color(sign: str) -> str:
    return {"+": "$text-success", "-": "$text-error"}.get(sign, "$foreground 80%")
