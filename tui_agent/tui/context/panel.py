"""The context panel: what the model sees, which context step comes next, and past steps; updated by events."""

import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Vertical
from textual.message import Message
from textual.timer import Timer
from textual.widgets import Static
from typing_extensions import override

from tui_agent.agent.context import Overview
from tui_agent.context.effects import Refusal
from tui_agent.conversation.entries import Words
from tui_agent.conversation.items import place_of
from tui_agent.storage.errors import StorageError
from tui_agent.tui.actions import bindings
from tui_agent.tui.context.rows import COMMANDS, EXPLAINED, AheadKey, ItemKey, StepKey, WordsKey, panel_rows
from tui_agent.tui.dialogs.row_list import RowList
from tui_agent.tui.keys import Keymap

if TYPE_CHECKING:
    from tui_agent.agent.agent import Agent

UPDATE_PAUSE: Final = 20.0
"""The panel waits this many times as long as its last update took: updates use at most 5% of the time."""

HINTS: Final[Mapping[type, Mapping[str, str]]] = {
    AheadKey: {"context.open": "previews it", "context.explain": "explains the words"},
    StepKey: {"context.open": "opens", "context.undo": "undoes"},
    ItemKey: {"context.open": "opens", "context.pin": "pins", "context.restore": "restores", "context.clear": "clears"},
    WordsKey: {"context.open": "reads", "context.edit": "edits", "context.drop": "drops", "context.pin": "pins"},
}
"""What can be done with each kind of row, by action id."""


class ContextPanel(Vertical):
    """Shows an agent's context, while it is open.

    It opens without the focus, so that typing still goes to the prompt; `take_keys` focuses it.
    """

    BINDINGS: ClassVar[list[BindingType]] = [*bindings("context", "context.")]

    class Closed(Message):
        """The user closed the panel."""

    @dataclass
    class Opened(Message):
        """The user wants to read a text."""

        title: str
        text: str

    @dataclass
    class Previewing(Message):
        """The user wants to see the step that comes next, or the calls, by the slash command that shows it."""

        command: str

    @dataclass
    class Changing(Message):
        """The user wants to change the context; `change` does it."""

        change: Callable[[], Awaitable[object | Refusal]]

    def __init__(self, agent: "Agent", keymap: Keymap, away: str = "") -> None:
        """`away`: see `tell`."""
        super().__init__()
        self._keymap, self._agent, self._away = keymap, agent, away
        self._rows = RowList(id="context-rows")
        self._keys = Static("", id="context-keys", markup=False)
        self.overview: Overview | None = None
        """The overview that is shown."""
        self._later: Timer | None = None
        self._looked_at = 0.0
        self._took = 0.0

    @override
    def compose(self) -> ComposeResult:
        yield self._rows
        yield self._keys

    def on_mount(self) -> None:
        self.call_after_refresh(self.look)

    def take_keys(self) -> None:
        """Focus the rows."""
        self._rows.focus()
        if self._rows.key is None:
            self._rows.action_edge(-1)

    def page(self, direction: int) -> None:
        self._rows.action_page(direction)

    def on_resize(self) -> None:
        """Wrap texts for the new width; show what the keys do now, or which one brings the focus back."""
        self._draw()

    on_descendant_focus = on_descendant_blur = on_resize

    def changed(self) -> None:
        """Schedule an update after a change; the longer the last one took, the later."""
        if self._later is not None or not self.is_mounted:
            return
        waited = time.monotonic() - self._looked_at
        self._later = self.set_timer(max(0.001, self._took * UPDATE_PAUSE - waited), self.look)

    def tell(self, away: str) -> None:
        """Say what comes before the next step if the user stays away; empty: nothing does."""
        if away != self._away:
            self._away = away
            self._draw()

    def look(self) -> None:
        """Update the panel from the agent."""
        if self._later is not None:
            self._later.stop()
            self._later = None
        began = time.monotonic()
        self.overview = self._agent.context.overview()
        self._draw()
        self._looked_at = time.monotonic()
        self._took = self._looked_at - began

    def on_row_list_moved(self) -> None:
        """Show which keys apply to this row."""
        self._keys.update(self._keys_text())

    def on_row_list_chosen(self) -> None:
        """Open a row on a second click."""
        self.action_open()

    def action_close(self) -> None:
        self.post_message(self.Closed())

    def action_open(self) -> None:
        # A worker, because it reads the disk: the app handles no other key until an action returns.
        self.run_worker(self._open(), name="open", exclusive=True, group="open")

    async def _open(self) -> None:
        match self._rows.key:
            case ItemKey(seq) | WordsKey(seq):
                try:
                    text = await self._agent.context.original(seq)
                except StorageError as error:
                    text = f"{error.message}\n{error.hint}"
                self.post_message(self.Opened(f"Message {seq}, as it was", text))
            case AheadKey(coming):
                self.post_message(self.Previewing(COMMANDS[coming]))
            case StepKey(seq) if self.overview is not None:
                step = next((step for step in self.overview.steps if step.event.seq == seq), None)
                if step is not None:
                    text = f"{step.event.reason}\n\n{step.event.text}".strip()
                    self.post_message(self.Opened(f"Step {seq}: {step.event.step}", text or "Nothing more is known."))

    def action_show_calls(self) -> None:
        self.post_message(self.Previewing("/at"))

    def action_explain(self) -> None:
        self.post_message(self.Opened("What these words mean", EXPLAINED))

    def action_pin(self) -> None:
        """Pin or unpin the item under the cursor, or the message of the words under it."""
        if (seq := self._item()) is not None or (seq := self._words()) is not None:
            self._change(lambda: self._agent.context.pin([seq], pinned=not self._is_pinned(seq)))

    def action_restore(self) -> None:
        if (seq := self._item()) is not None:
            self._change(lambda: self._agent.context.restore([seq]))

    def action_clear(self) -> None:
        if (seq := self._item()) is not None:
            self._change(lambda: self._agent.context.clear_results([seq]))

    def action_undo(self) -> None:
        if isinstance(key := self._rows.key, StepKey):
            self._change(lambda: self._agent.context.undo(key.seq))

    def action_edit(self) -> None:
        """Edit the kept words of the user under the cursor."""
        seq = self._words()
        kept = (
            next((each.text for each in self.overview.words if each.seq == seq), "")
            if self.overview is not None
            else ""
        )
        if seq is None or not kept:
            return
        from tui_agent.tui.context.draft_screen import EMPTY, WordsScreen

        def edited(text: str | None) -> None:
            if text is not None:
                self._keep(seq, text)

        self.app.push_screen(WordsScreen(f"What is kept of message {seq}", kept, EMPTY), edited)

    def action_drop(self) -> None:
        """Drop the kept words of the user under the cursor; this can be undone."""
        if (seq := self._words()) is not None:
            self._keep(seq, "")

    def action_jump_to_words(self) -> None:
        """Go to the newest of the user's kept words."""
        if self.overview is not None and self.overview.words:
            self._rows.go_to(WordsKey(self.overview.words[-1].seq))

    def action_jump_to_items(self) -> None:
        """Go to the newest item, below the figures."""
        if self.overview is not None and self.overview.items:
            self._rows.go_to(ItemKey(self.overview.items[-1].seq))

    def _keep(self, seq: int, text: str) -> None:
        self._change(lambda: self._agent.context.edit_words([Words(seq, text)]))

    def _change(self, change: Callable[[], Awaitable[object | Refusal]]) -> None:
        self.post_message(self.Changing(change))

    def _item(self) -> int | None:
        key = self._rows.key
        return key.seq if isinstance(key, ItemKey) else None

    def _words(self) -> int | None:
        key = self._rows.key
        return key.seq if isinstance(key, WordsKey) else None

    def _is_pinned(self, seq: int) -> bool:
        items = self.overview.items if self.overview is not None else ()
        place = place_of(items, seq)
        return place is not None and items[place].pinned

    def _draw(self) -> None:
        if self.overview is not None:
            focused = self.has_focus_within
            excerpt, width = self._agent.context.excerpt, self._rows.measure
            rows = panel_rows(self.overview, time.time(), excerpt, width, focused=focused, away=self._away)
            self._rows.show(rows)
            self._keys.update(self._keys_text())

    def _keys_text(self) -> str:
        key = self._keymap.text
        if not self.has_focus_within:
            return f"{key('focus')} goes to these rows, {key('context')} closes"
        here = next((hints for kind, hints in HINTS.items() if isinstance(self._rows.key, kind)), None)
        if here is not None:
            keys = [f"{key(name)} {does}" for name, does in here.items()]
        else:
            keys = [f"{key('list.up')}/{key('list.down')} move", f"{key('context.explain')} explains the words"]
            keys.append(f"{key('context.items')} jumps to the items, {key('context.calls')} goes back call by call")
            if self.overview is not None and self.overview.words:
                keys.append(f"{key('context.words')} to your words")
        return ", ".join([f"{key('context.close')} closes", *keys])
