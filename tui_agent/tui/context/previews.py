"""The preview of a context step or of a switch of the model, before it is done."""

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, Final

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.widgets import Input
from typing_extensions import override

from tui_agent.agent.context import SwitchPreview
from tui_agent.context.changes import PreviewedStep, StepPreview
from tui_agent.context.economics import StepPrice
from tui_agent.context.effects import Refusal
from tui_agent.context.forecast import price_lines
from tui_agent.text import counted, money_text, percent_text
from tui_agent.tui.actions import bindings
from tui_agent.tui.context.drawing import before_after_line
from tui_agent.tui.context.rows import ItemKey, item_rows, titled_rows
from tui_agent.tui.dialogs.dialog import Dialog, dialog_keys, dialog_title, framed
from tui_agent.tui.dialogs.row_list import ListRow, RowList, plain_row

TITLES: Final[dict[PreviewedStep, str]] = {
    "compact": "Summarise the older turns?",
    "clear": "Clear old tool results?",
    "checkpoint": "Record the finished task?",
}
ASKED_FOR: Final[dict[PreviewedStep, str]] = {
    "compact": "what the summary should keep above all (optional)",
    "checkpoint": "a note on the task (optional)",
}
FIRST: Final = {
    "limit": "room is made, since it does not fit",
    "clear": "old results are cleared",
    "compact": "older turns are summarised",
}
"""What happens first with another model, by the mark that the request passes."""


@dataclass(frozen=True, slots=True)
class Accepted:
    """The user accepted. `focus`: what the summary should keep, or the note of a checkpoint."""

    focus: str = ""


class PreviewScreen(Dialog[Accepted | None]):
    """A preview to accept, change or cancel; its result is `Accepted`, or None.

    `pin` pins an item and returns the updated preview. `free`: the model costs nothing.
    """

    BINDINGS: ClassVar[list[BindingType]] = [*bindings("preview")]
    CLICK_OUTSIDE_CLOSES = True

    def __init__(
        self,
        seen: StepPreview | SwitchPreview,
        *,
        excerpt: Callable[[int], str] = lambda _: "",
        pin: Callable[[int], Awaitable[StepPreview | Refusal]] | None = None,
        focus: str = "",
        free: bool = False,
    ) -> None:
        super().__init__()
        self._seen = seen
        self._excerpt = excerpt
        self._pin = pin
        self._pinning = self._accepts = False
        self._focus = focus
        self._free = free
        self._rows = RowList(in_dialog=True)
        self._keys_line = dialog_keys()

    @override
    def compose(self) -> ComposeResult:
        asked = ASKED_FOR.get(self._step) if self._step is not None else None
        field = [Input(self._focus, placeholder=asked, compact=True, select_on_focus=False)] if asked else []
        yield framed([dialog_title(self._title)], self._rows, [*field, self._keys_line])

    def on_mount(self) -> None:
        self._rows.focus()
        self._draw()
        self._rows.action_edge(-1)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Accept on Enter in the focus field."""
        event.stop()
        self.action_accept()

    def action_accept(self) -> None:
        """Accept, once pins under way are done."""
        self._accepts = self._pinning
        if not self._pinning:
            asked = self.query(Input)
            self.dismiss(Accepted(asked.first().value.strip() if asked else self._focus))

    @override
    def action_leave(self) -> None:
        """Go back from the focus field to the list; from the list, cancel."""
        if isinstance(self.focused, Input):
            self._rows.focus()
        else:
            super().action_leave()

    def action_edit(self) -> None:
        asked = self.query(Input)
        if asked:
            asked.first().focus()

    def action_pin(self) -> None:
        key = self._rows.key
        if self._pin is not None and isinstance(key, ItemKey) and not self._pinning:
            self._pinning = True
            self.run_worker(self._pinned(self._pin(key.seq)), name="pin")

    async def _pinned(self, pinning: Awaitable[StepPreview | Refusal]) -> None:
        seen = await pinning
        self._pinning = False
        if isinstance(seen, Refusal):
            self._accepts = False
            self._tell(seen.reason)
            return
        self._seen = seen
        self._draw()
        if self._accepts:
            self.action_accept()

    @property
    def _step(self) -> PreviewedStep | None:
        return self._seen.step if isinstance(self._seen, StepPreview) else None

    @property
    def _title(self) -> str:
        return TITLES[self._seen.step] if isinstance(self._seen, StepPreview) else "Switch to another model?"

    def _draw(self) -> None:
        seen = self._seen
        if isinstance(seen, SwitchPreview):
            rows = switch_rows(seen)
        else:
            rows = preview_rows(seen, time.time(), self._excerpt, free=self._free)
        self._rows.show(rows)
        self._tell("")

    def _tell(self, why: str) -> None:
        key = self.key
        keys = [f"{key('preview.accept')} does it", f"{key('preview.cancel')} cancels"]
        keys += (
            [f"{key('preview.edit')} says what to keep"]
            if self._step == "compact"
            else [f"{key('preview.edit')} adds a note"]
            if self._step == "checkpoint"
            else []
        )
        keys += [f"{key('preview.pin')} keeps an item"] if self._pin is not None else []
        self._keys_line.update(why or ", ".join(keys))


def preview_rows(seen: StepPreview, now: float, excerpt: Callable[[int], str], *, free: bool = False) -> list[ListRow]:
    """The effects of a step: sizes before and after, what leaves, and the cost. `free`: the model costs nothing."""
    preview, about = seen.preview, "" if seen.exact else "about "
    largest = max(preview.before, preview.after)
    rows = [
        ListRow(partial(before_after_line, "now", preview.before, largest, f"{preview.before:,}")),
        ListRow(partial(before_after_line, "after", preview.after, largest, f"{about}{preview.after:,}")),
        plain_row(),
        fact_row("Frees", f"{about}{preview.freed:,} tokens"),
        *price_rows(seen.price, exact=seen.exact, free=free),
    ]
    if preview.thinking_calls:
        rows.append(fact_row("Drops the thinking", f"of {counted(preview.thinking_calls, 'call')}"))
    title = f"Leaves the view: {len(preview.leaving):,}"
    return [*rows, *titled_rows(title, item_rows(preview.leaving, now, excerpt, preview.scale), "tokens  age")]


def switch_rows(seen: SwitchPreview) -> list[ListRow]:
    """The effects of another model: its window, the layer that would act, and the price of a cold cache."""
    rows = [
        plain_row((f"  {seen.before}", "muted"), ("  to  ", "muted"), (seen.after, "base")),
        plain_row(),
        _filled("now", seen.tokens, seen.window_before),
        _filled("after", seen.tokens, seen.window_after),
        plain_row(),
        fact_row("Request", f"about {seen.tokens:,} tokens"),
    ]
    if seen.fires:
        rows.append(fact_row("Before the next call", FIRST[seen.fires]))
    if seen.cost_usd:
        rows.append(fact_row("Next call", f"{money_text(seen.cost_usd)}, nothing of it is cached yet"))
        reading = f"{money_text(seen.call_usd)} to read (now {money_text(seen.call_usd_before)})"
        rows.append(fact_row("Calls after it", reading))
    else:
        rows.append(fact_row("Next call", "its price is not known" if seen.cost_usd is None else "costs no money"))
    if seen.reasoning_dropped:
        rows.append(fact_row("Reasoning dropped", f"{seen.reasoning_dropped:,} blocks"))
    return rows


def _filled(label: str, tokens: int, window: int) -> ListRow:
    share = f"{percent_text(tokens / window)} of {window:,}" if window else "window unknown"
    return ListRow(partial(before_after_line, label, tokens, window or tokens, share))


def price_rows(price: StepPrice | None, *, exact: bool, free: bool = False) -> list[ListRow]:
    """What a step costs and saves, and when it has paid for itself; None: its price is unknown. `exact`: its text is
    written.
    """
    if price is None:
        return [fact_row("Costs", "nothing, the model is free" if free else "not known, no price is")]
    return [fact_row(label, value) for label, value in price_lines(price, exact=exact)]


def fact_row(label: str, value: str) -> ListRow:
    return plain_row((f"  {label:<22}", "muted"), (value, "base"))
