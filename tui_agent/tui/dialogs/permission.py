"""The panel that asks whether a tool call may run, and asks the model's own questions."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from textwrap import wrap
from time import monotonic
from typing import ClassVar, Final

import msgspec
from textual import events
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.message import Message
from textual.widgets import Input, Static
from typing_extensions import override

from tui_agent.text import clean
from tui_agent.tools.base import PermissionAnswer, PermissionQuestion
from tui_agent.tui.actions import bindings
from tui_agent.tui.dialogs.answers import AnswerChoice, Answers, answers_to
from tui_agent.tui.dialogs.dialog import LOW_SCREEN, QUIET_S
from tui_agent.tui.dialogs.permission_preview import MAX_TITLE, Lines, Part, Prose, parts_of, rule_parts
from tui_agent.tui.dialogs.row_list import RowList
from tui_agent.tui.keys import Keymap
from tui_agent.tui.painting.lines import fit
from tui_agent.tui.terminal.filters import marked_style
from tui_agent.visible import visible_line

MAX_CHOICE_LINES: Final = 4
"""The choice that names the rules shows at most this many lines; if there are more, they stand below the preview."""

LARGE: Final = 20_000
"""A preview with more characters is broken into lines in a thread."""

MAX_REASON: Final = 600
"""The most characters shown of a reason; what is asked about is in the preview."""

TINY_SCREEN: Final = 7
"""A screen with fewer lines shows only title and choices; the command is then in the title."""

LEAST_LINES: Final = 3
"""Besides title and answers, the panel has at least a line of the call, the count of hidden ones, and the keys."""

MAX_SHARE: Final = 75
"""The most of the screen's height that the panel takes, in percent."""

AIRY_LINES: Final = 18
"""With at least this many lines the panel has padding."""

OUTSIDE_LINES: Final = 6
"""Lines of the screen outside panel and conversation: margins, the framed prompt, the status bar."""

PAUSE_S: Final = 1.0
"""Seconds from a question that was withdrawn to the next: what was meant for the one must not answer the other."""

MIN_PANE_LINES: Final = 1
"""Lines left to the conversation, unless the screen is tiny."""

PLAIN_REASONS: Final = frozenset(("It runs a command.", "It changes a file.", "It reaches the network."))
"""Reasons that are not shown, because the call itself says as much."""

WHY_KEYS: Final = "(Enter sends it, {back} goes back)"


class PermissionPanel(Vertical, can_focus=True):
    """Asks one question at a time, above the prompt.

    It takes the focus only once it is visible and nobody has typed for `QUIET_S`. Until then keys go to the prompt, and
    afterwards a letter that is no answer goes there too. A call can be allowed only once its last line was in view:
    until then "yes" shows the next page instead.
    """

    BINDINGS: ClassVar[list[BindingType]] = [*bindings("question")]

    @dataclass
    class Closed(Message):
        """The question was answered or withdrawn; `had_focus`: the panel had the focus."""

        had_focus: bool

    @dataclass
    class Typed(Message):
        """The user typed a character that is no answer."""

        character: str

    @dataclass
    class Unsaid(Message):
        """The question was withdrawn while the user was writing these words as the answer."""

        words: str

    @dataclass
    class EditAsked(Message):
        """The user wants to edit the plan in question; `PermissionPanel.use_edited` takes the result."""

        text: str

    def __init__(self, typed_at: Callable[[], float], keymap: Keymap) -> None:
        """`typed_at`: when a key was last pressed, on the monotonic clock."""
        super().__init__()
        self.display = False
        self._typed_at = typed_at
        self._keymap = keymap
        self._one_at_a_time = asyncio.Lock()
        self._answer: asyncio.Future[PermissionAnswer] | None = None
        self._withdrawn_at = -PAUSE_S
        self._rows = RowList(in_dialog=True, keys_elsewhere=True, id="permission-preview")
        self._title = self._brief = self._reason = ""
        self._rules: tuple[str, ...] = ()
        self._answers = Answers("call", "", (), "")
        self._plan = self._edited = ""
        self._parts: Sequence[Part] = ()
        self._is_large = False
        self._broken = Lines()
        self._of_call = 0
        self._width = 0
        self._seen = 0
        self._tiny_first = 0
        self._marked = 0
        self._outside_lines = OUTSIDE_LINES

    @override
    def compose(self) -> ComposeResult:
        yield Static(id="permission-title")
        yield self._rows
        with Vertical(id="permission-foot"):
            yield Static(id="permission-more")
            yield Static(id="permission-choices")
            yield Static(id="permission-keys")
            yield Input(id="permission-reason", compact=True)

    def on_mount(self) -> None:
        self.watch(self._rows, "scroll_y", self._track_view, init=False)

    @property
    def asking(self) -> bool:
        return self._answer is not None

    @property
    def preview(self) -> str:
        """The whole preview as text, in lines as they are shown."""
        return "\n".join(self._broken.text(place) for place in range(len(self._broken)))

    @property
    def hidden(self) -> int:
        """How many lines of the call have not been in view yet."""
        return max(0, self._of_call - self._seen)

    async def ask(self, question: PermissionQuestion) -> PermissionAnswer:
        """Show the question and wait for the answer. Cancelling withdraws the question."""
        async with self._one_at_a_time:
            await asyncio.sleep(max(0.0, self._withdrawn_at + PAUSE_S - monotonic()))
            parts = await asyncio.to_thread(parts_of, question, from_change=self._low)
            self._answer = asyncio.get_running_loop().create_future()
            self._show(question, parts)
            try:
                return await self._answer
            except asyncio.CancelledError:
                self._withdrawn_at = monotonic()
                if self.is_attached and (words := self.query_one(Input).value).strip():
                    self.post_message(self.Unsaid(words))
                raise
            finally:
                self._answer = None
                had_focus = self.has_focus_within
                if self.is_attached:
                    self._set_open(False)
                    self.post_message(self.Closed(had_focus))

    def leave(self, lines: int) -> None:
        """Leave this many lines of the screen to everything outside panel and conversation."""
        if lines != self._outside_lines:
            self._outside_lines = lines
            if self.asking and self.children:
                self._paint()

    def action_choose(self, index: int) -> None:
        if self._answer is None or self._answer.done():
            return
        choice = self._answers.choices[index] if index < len(self._answers.choices) else AnswerChoice("")
        match choice:
            case AnswerChoice(opens="words"):
                self._ask_for_words(index)
            case AnswerChoice(opens="edit"):
                self.post_message(self.EditAsked(self._edited or self._plan))
            case AnswerChoice(answer=None):
                self.app.bell()
            case AnswerChoice(answer=PermissionAnswer(allowed=True)) if self._must_see_more(choice):
                self.action_scroll_preview(1)
            case AnswerChoice(answer=PermissionAnswer() as answer):
                self._answer.set_result(msgspec.structs.replace(answer, edited=self._edited))

    def _must_see_more(self, choice: AnswerChoice) -> bool:
        unseen_rules = choice.adds_rules and len(self._broken) > self._seen
        return unseen_rules or (self._answers.need_all_seen and self.hidden > 0)

    def _ask_for_words(self, place: int) -> None:
        self._marked = place
        field = self.query_one(Input)
        field.display = True
        self._paint()
        field.focus()

    def use_edited(self, text: str | None) -> None:
        """Show the plan as the user edited it; None: unchanged."""
        if self._answer is None or self._answer.done():
            return
        if text:
            self._edited, self._marked, self._width = text, 0, 0
            self._parts, self._is_large = [Prose(text)], len(text) > LARGE
            self._paint()
        self.focus()

    def action_choose_marked(self) -> None:
        self.action_choose(self._marked)

    def action_mark(self, step: int) -> None:
        choices = self._answers.choices
        self._marked = (self._marked + step) % len(choices)
        while not choices[self._marked].is_possible:
            self._marked = (self._marked + step) % len(choices)
        self._paint_choices()

    def action_scroll_preview(self, pages: int) -> None:
        """Scroll the preview by pages; where all of it is in view, the conversation."""
        if len(self._broken) <= self._rows.size.height:
            self.call_later(self.app.run_action, f"page({pages})")
            return
        if self._tiny:
            self._tiny_first = min(max(0, self._tiny_first + pages), max(0, len(self._broken) - 1))
            self._track_view()
            self._paint()
            return
        step = pages * max(1, self._rows.size.height - 1)
        self._rows.scroll_to(y=self._rows.scroll_y + step, animate=False, immediate=True)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        if self._answer is not None and not self._answer.done():
            self._answer.set_result(self._answers.said(event.value.strip()))

    def on_key(self, event: events.Key) -> None:
        """Pass a character that is no answer on to the prompt."""
        if isinstance(self.app.focused, Input):
            if event.key in self._keymap.keys("question.back"):
                event.stop()
                self.query_one(Input).display = False
                self.focus()
            return
        if event.key.isdecimal() and 5 < int(event.key) <= len(self._answers.choices):
            event.stop()
            self.action_choose(int(event.key) - 1)
        elif event.is_printable and event.character is not None and event.key not in self.screen.active_bindings:
            event.stop()
            self.post_message(self.Typed(event.character))

    def _show(self, question: PermissionQuestion, parts: Sequence[Part]) -> None:
        preview = question.preview
        self._rules = tuple(map(visible_line, question.rules))
        self._answers = answers_to(question)
        self._plan, self._edited = clean(preview.text) if question.kind == "plan" else "", ""
        self._marked = self._tiny_first = self._seen = self._width = 0
        # What is longer is shown in full with the rest.
        title = visible_line(preview.title[: 2 * MAX_TITLE] or question.tool)
        self._title = fit(title.removesuffix(" outside the sandbox") if question.outside else title, MAX_TITLE)
        self._brief = visible_line(preview.command[: 2 * MAX_TITLE]) or self._title
        reason = visible_line(question.reason[:MAX_REASON])
        self._reason = "" if reason in PLAIN_REASONS else reason
        self._parts = parts
        size = sum(map(len, (preview.command, preview.diff, preview.text, question.arguments)))
        self._is_large = size + sum(len(change.diff) for change in preview.changes) > LARGE
        self._rows.scroll_home(animate=False)
        field = self.query_one(Input)
        field.value = ""
        field.placeholder = f"{self._answers.placeholder} {WHY_KEYS.format(back=self._keymap.text('question.back'))}"
        field.display = False
        self._paint()
        self._set_open(True)
        self._take_keyboard_after(QUIET_S, self._answer)

    def _set_open(self, is_open: bool) -> None:
        self.display = is_open
        # The stylesheet hides the conversation where the screen has no room for both.
        self.screen.set_class(is_open, "-asking")

    def _take_keyboard_after(self, seconds: float, asked: object) -> None:
        self.set_timer(seconds, lambda: self._take_keyboard(asked))

    def _take_keyboard(self, asked: object) -> None:
        if asked is not self._answer or self.has_focus_within:
            return
        remaining = self._typed_at() + QUIET_S - monotonic()
        if self.app.screen is not self.screen:
            # A dialog covers the question: the user has not seen it yet.
            remaining = QUIET_S
        if remaining > 0:
            self._take_keyboard_after(remaining, asked)
        else:
            self.focus()

    def on_resize(self) -> None:
        """Fit the preview to the new size; show which keys work now, or which one brings the focus back."""
        self._paint()

    on_descendant_focus = on_focus = on_blur = on_resize

    def on_row_list_resized(self) -> None:
        self._track_view()

    def _paint(self) -> None:
        for form, holds in (("-low", self._low), ("-tiny", self._tiny), ("-snug", self._max_lines < AIRY_LINES)):
            self.set_class(holds, form)
        self.styles.max_height = self._max_lines
        self._break_lines()
        asked = "?" if self._tiny else self._answers.title
        title = Content.styled(asked, "$accent bold")
        if self._tiny or self._answers.kind == "call":
            title += Content.styled(f" {self._headline()}", "$foreground bold")
        if self._reason and not self._low:
            title += Content.styled(f"\n{self._reason}", "$foreground 68%")
        self.query_one("#permission-title", Static).update(title)
        keys = self.query_one("#permission-keys", Static)
        keys.display = not self._low and not self.query_one(Input).display
        self._paint_choices()
        self._track_view()

    def _headline(self) -> str:
        """The text after "Allow this?"; on a tiny screen the preview itself, a line at a time."""
        if not self._tiny:
            return self._title
        if self._of_call < 2 and not self._tiny_first:
            return fit(self._brief, self._label_width() + 1)
        if not self._broken:
            return ""
        return f"{self._tiny_first + 1}/{len(self._broken)} {self._broken.text(self._tiny_first)}"

    @property
    def _title_lines(self) -> int:
        title = f"{self._answers.title} {self._title}" if self._answers.kind == "call" else ""
        reason = len(_wrapped(self._reason, self._label_width())) if self._reason else 0
        return len(_wrapped(title, self._label_width())) + reason

    @property
    def _max_lines(self) -> int:
        height = self.app.size.height
        others = self._outside_lines + (0 if self._tiny else MIN_PANE_LINES)
        return max(1, min((height - 1) * MAX_SHARE // 100, height - others))

    @property
    def _spare_lines(self) -> int:
        """Lines left below the whole labels of the answers and a line of the call; negative: they do not fit."""
        answers = sum(len(self._below_label(choice)) for choice in self._answers.choices)
        return self._max_lines - self._title_lines - answers - LEAST_LINES

    @property
    def _low(self) -> bool:
        return self.app.size.height < LOW_SCREEN or self._spare_lines < 0

    @property
    def _tiny(self) -> bool:
        return self.app.size.height < TINY_SCREEN

    def _break_lines(self) -> None:
        """Wrap the preview for the present width. After a change of width all of it must be seen again."""
        # A tiny screen numbers the lines: as many digits are left free as their number may have.
        counted = (14 if self._is_large else 8) if self._tiny else 0
        width = max(10, self._label_width() + 1 - counted) if self._tiny else self._label_width()
        if width == self._width:
            return
        self._width, self._seen = width, 0
        below = rule_parts(self._rules) if not self._rules_fit() else []
        if not self._is_large:
            self._take_lines(width, Lines(self._parts, width), Lines([*self._parts, *below], width))
            return
        # Until it is broken into lines, a line is hidden: nothing can be allowed.
        self._broken, self._of_call = Lines(), 1
        self._rows.show(self._broken)
        self.run_worker(self._break_in_worker(width, self._parts, below), name="preview", exclusive=True)

    async def _break_in_worker(self, width: int, parts: Sequence[Part], below: Sequence[Part]) -> None:
        of_call = await asyncio.to_thread(Lines, parts, width)
        whole = await asyncio.to_thread(Lines, [*parts, *below], width) if below else of_call
        if self._parts is parts:
            self._take_lines(width, of_call, whole)
            self._paint()

    def _take_lines(self, width: int, of_call: Lines, whole: Lines) -> None:
        if width == self._width:
            self._broken, self._of_call = whole, len(of_call)
            self._rows.show(whole)

    def _track_view(self) -> None:
        """Record which lines are in view, and show how many are below them."""
        if self._tiny:
            last = self._tiny_first + 1
        else:
            in_view = self._lines_in_view
            last = round(self._rows.scroll_y) + in_view if in_view else 0
        self._seen = max(self._seen, min(last, len(self._broken)))
        more = self.query_one("#permission-more", Static)
        below = len(self._broken) - last
        # Without this line, all others may be in view.
        more.display = len(self._broken) > self._rows.size.height + more.display and below > 0 and not self._tiny
        lines = f"{below:,} more line{'s' * (below > 1)}"
        must = self.hidden and self._answers.need_all_seen
        unseen = f"{lines}, PgDn or Enter shows them" + (" before you can say yes" if must else "")
        more.update(Content(unseen if self._label_width() > len(unseen) else f"{lines}: PgDn"))
        answers = "" if must else "Enter or a number answers, "
        keys = f"{answers}Esc stops the turn" if self.has_focus_within else "Tab to answer"
        self.query_one("#permission-keys", Static).update(Content(keys))

    @property
    def _lines_in_view(self) -> int:
        """Lines of the preview on the screen: while the panel changes its size, the answers may cover most of them."""
        top, height = self._rows.region.y, self._rows.size.height
        return max(0, min(height, self.query_one("#permission-foot").region.y - top))

    def _paint_choices(self) -> None:
        choices = self._answers.choices
        if not self._low:
            shown = [self._choice(place, self._label_lines(choice)) for place, choice in enumerate(choices)]
        elif self._answers.kind == "call":
            shown = self._short_rows()
        else:
            more = f" ({len(choices)} answers: up, down)"
            label = fit(choices[self._marked].label, max(8, self._label_width() - len(more)))
            shown = [self._choice(self._marked, [label + more])]
        self.query_one("#permission-choices", Static).update(Content("\n").join(shown))

    def _short_rows(self) -> list[Content]:
        """The short answers to a call, on one line or two; the narrowest screen leaves out the last, not its key."""
        named = [self._choice(place, [choice.short]) for place, choice in enumerate(self._answers.choices)]
        room = self.app.size.width - 3
        gap = "  " if sum(len(each.plain) + 2 for each in named) <= room else " "
        rows = [named] if sum(len(each.plain) + 1 for each in named) <= room + 1 else [named[:2], named[2:]]
        if sum(len(each.plain) + 1 for each in rows[-1]) > room + 1:
            rows[-1].pop()
        return [Content(gap).join(row) for row in rows]

    def _label_lines(self, choice: AnswerChoice) -> list[str]:
        if not choice.names_rules:
            return _wrapped(choice.label, self._label_width())
        if not self._rules_fit():
            return self._below_label(choice)
        if self._rule_fits_its_choice(choice):
            return [f"{choice.label} {self._rules[0]}"]
        return [choice.label, *(f"  {line}" for line in self._wrapped_rules())]

    def _below_label(self, choice: AnswerChoice) -> list[str]:
        """The label of a choice when the rules are listed below the preview."""
        rules = f"{len(self._rules)} rules" if len(self._rules) > 1 else "rule"
        where = f" the {rules} at the end of the list above" if choice.names_rules else ""
        return _wrapped(f"{choice.label}{where}", self._label_width())

    def _rule_fits_its_choice(self, choice: AnswerChoice) -> bool:
        return len(self._rules) == 1 and len(choice.label) + len(self._rules[0]) < self._label_width()

    def _wrapped_rules(self) -> list[str]:
        return [line for rule in self._rules for line in _wrapped(rule, self._label_width() - 2)]

    def _choice(self, index: int, lines: list[str]) -> Content:
        possible = self._answers.choices[index].is_possible
        marked = index == self._marked
        marked_so = marked_style(self.app)
        color = marked_so if marked else "$foreground" if possible else "$foreground 40%"
        number = f"{index + 1} " if self._low else f"{index + 1}  "
        shown = Content(f"\n{' ' * len(number)}").join(Content.styled(line, color) for line in lines)
        return Content.assemble((number, marked_so if marked else "$foreground 68%"), shown)

    def _label_width(self) -> int:
        # Minus the panel's padding and border, and the number of the choice.
        return max(10, self.app.size.width - 8)

    def _rules_fit(self) -> bool:
        """Whether the rules are shown with the choice "always" rather than below the preview."""
        if self._low:
            return not self._rules
        choice = next((each for each in self._answers.choices if each.names_rules), None)
        if choice is None or self._rule_fits_its_choice(choice):
            return True
        return len(self._wrapped_rules()) <= min(MAX_CHOICE_LINES, self._spare_lines)


def _wrapped(text: str, width: int) -> list[str]:
    if text.isascii():
        return wrap(text, width, break_on_hyphens=False) or [""]
    return [line.plain.rstrip() for line in Content(text).wrap(width)] or [""]
