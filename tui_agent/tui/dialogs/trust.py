"""The question whether to trust a project, with everything that the project brings."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Final

from textual import events
from textual.app import ComposeResult
from textual.containers import VerticalScroll
from textual.content import Content
from textual.message import Message
from textual.widgets import OptionList, Static
from typing_extensions import override

from tui_agent.settings.brought import BroughtFile
from tui_agent.text import clean, displayed, short_path
from tui_agent.tui.dialogs.dialog import QUIET_S, dialog_keys, dialog_title, framed
from tui_agent.tui.dialogs.pickers import ChoiceList, Option, PickerScreen

TRUST, NO_TRUST = "trust", "no"
FIRST: Final = "Trust this project?"
AGAIN: Final = "Trust this project again?"
TAKEN: Final = ("page_up", "page_down", "cursor_up", "cursor_down")
"""Actions of a list that the dialog takes over."""


class TrustAnswers(ChoiceList):
    """The answers. Their keys are the dialog's: some scroll the text above, and all are a deliberate choice."""

    @override
    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        return action not in TAKEN and super().check_action(action, parameters)


class TrustScreen(PickerScreen):
    """Asks whether a project's own settings and extensions may take effect.

    Its result is `TRUST`, `NO_TRUST`, or None if it was not answered. Trust is given only once the end of the text was
    in view. The answers stay at the bottom. Characters that are typed are meant for the prompt, and so is the Enter
    behind them.
    """

    @dataclass
    class Typed(Message):
        """The user typed a character that is meant for the prompt."""

        character: str

    def __init__(
        self, project: Path, found: Iterable[BroughtFile] = (), current: str = NO_TRUST, new: Sequence[str] = ()
    ) -> None:
        """New: what the project runs or sets since the user trusted it; none: it is not trusted yet."""
        super().__init__(
            AGAIN if new else FIRST,
            (
                Option(NO_TRUST, "No", "ignore it; settings count only where they are stricter"),
                Option(TRUST, "Yes, trust it", "use all of it"),
            ),
            current,
        )
        self._heading = AGAIN if new else FIRST
        self._brings = _listing(project, found, new)
        self._seen_to_the_end = self._typing = self._marked = False
        self._opened = 0.0

    @override
    def compose(self) -> ComposeResult:
        lines = (
            Static(Content(line.strip() or " "), classes="trust-detail" if line.startswith(" ") else None)
            for line in self._brings
        )
        brings = VerticalScroll(*lines, can_focus=False)
        yield framed([dialog_title(self._heading)], brings, [TrustAnswers(compact=True), dialog_keys()])

    @override
    def on_mount(self) -> None:
        super().on_mount()
        self._opened = monotonic()
        self.watch(self.query_one(VerticalScroll), "scroll_y", self._look, init=False)

    @override
    def on_resize(self) -> None:
        super().on_resize()
        self.call_after_refresh(self._look)

    def _look(self) -> None:
        """Note whether the end of the text is in view, and say what the keys do."""
        for place in self.query(VerticalScroll):
            if place.size.height and place.scroll_offset.y >= place.max_scroll_y:
                self._seen_to_the_end = True
        self._tell()

    def _tell(self, why: str = "") -> None:
        choose, later = self.key("picker.choose"), f"{self.key('picker.cancel')}: not now, for this start only"
        if self._typing:
            answers = f"What you type is kept for the prompt. Up or Down, then {choose} answers. {later}"
        elif self._seen_to_the_end:
            answers = f"{choose} answers, and it is remembered for this folder; /trust changes it. {later}"
        else:
            answers = f"{self.key('picker.page-down')} shows more; yes is possible at the end. {later}"
        for keys in self.query("Static.dialog-keys").results(Static):
            keys.update(why or answers)

    def on_key(self, event: events.Key) -> None:
        if event.is_printable and event.character is not None:
            event.stop()
            self._typing = True
            self.post_message(self.Typed(event.character))
            self._tell()

    @override
    def action_mark(self, step: int) -> None:
        self._typing, self._marked = False, True
        # It does not go round: from the first answer, Up leads to no other.
        self._mark((self.query_one(OptionList).highlighted or 0) + step)
        self._tell()

    @override
    def action_page(self, direction: int) -> None:
        place = self.query_one(VerticalScroll)
        place.scroll_relative(y=direction * max(1, place.size.height - 1), animate=False, immediate=True)
        self.call_after_refresh(self._look)

    @override
    def action_edge(self, direction: int) -> None:
        place = self.query_one(VerticalScroll)
        place.scroll_to(y=0 if direction < 0 else place.max_scroll_y, animate=False, immediate=True)
        self.call_after_refresh(self._look)

    @override
    def _choose(self, index: int | None) -> None:
        self._look()
        early = not self._marked and monotonic() - self._opened < QUIET_S
        if self._typing or early:
            # The Enter ends a line that was begun for the prompt.
            self._tell()
        elif index is not None and self._shown[index].value == TRUST and not self._seen_to_the_end:
            self._tell(f"There is more to see first: {self.key('picker.page-down')} shows it.")
        else:
            super()._choose(index)


def _listing(project: Path, found: Iterable[BroughtFile], new: Sequence[str]) -> list[str]:
    """Lines: what is new, then each file with what it does, and below it what it runs and sets."""
    lines = ["New since you trusted it", *(f"  {_line(each)}" for each in new), ""] if new else []
    lines.append(_line(f"{short_path(project)} contains"))
    for each in found:
        lines += ["", _line(f"{each.name}: {each.does}"), *(f"  {_line(detail)}" for detail in each.details)]
    return lines


def _line(text: str) -> str:
    return displayed(clean(text)).replace("\n", " ")
