"""What is typed, one after the other: a key goes nowhere before the one pressed before it has had its effect.

Textual hands each key to the widget with the focus, and runs the binding when the key comes back from there. Keys that
come in one go would all reach that widget first: behind the Esc that closes a dialog the words meant for the prompt,
behind the slash that begins a search the words to be searched for.
"""

from collections import deque
from functools import partial
from typing import Final

from textual import events
from textual.app import App
from textual.message import Message
from textual.message_pump import MessagePump
from textual.screen import Screen
from textual.timer import Timer

PATIENCE_S: Final = 0.1
"""Seconds for which a key waits for one that does not come back."""
PATIENT: Final = 20
"""As many times as long it waits where the one before is with a widget that is only slow, as all are at the start."""
ROUNDS: Final = 2
"""Ways through the widgets: on the first a key runs its binding, on the second comes what that told them."""
TYPED: Final = (events.Key, events.Paste, events.AppFocus, events.AppBlur)
"""What is kept in its order; a key brings the focus back, so its loss must not overtake one."""


class TypingOrder:
    """Keeps what is typed for an app until it can be taken; `begin` says that there is a prompt."""

    class Mark(Message):
        """Goes the way of a key, behind it."""

        def __init__(self, number: int, rounds: int) -> None:
            super().__init__()
            self.number = number
            self.rounds = rounds

    def __init__(self, app: App[object]) -> None:
        self._app = app
        self._kept: deque[events.Event] = deque()
        self._passing: events.Event | None = None
        self._begun = False
        self._number = 0
        self._under_way = 0
        self._written: MessagePump | None = None
        self._screen: Screen[object] | None = None
        self._target: MessagePump | None = None
        self._overdue: Timer | None = None

    async def begin(self) -> None:
        """Let go what came before there was anything to take it."""
        self._begun = True
        await self.go_on()

    def keeps(self, event: events.Event) -> bool:
        """Whether an event has to wait for those before it, or for a dialog that does not stand yet."""
        if not isinstance(event, TYPED):
            return False
        if event.is_forwarded:
            # The widget it was for had no use for it, and a dialog came meanwhile.
            if not isinstance(event, events.Key) or not self._dialog_comes:
                return False
            event = events.Key(event.key, event.character)
        elif event is self._passing or not (self._kept or self._waits or self._comes_behind_letters(event)):
            return False
        self._kept.append(event)
        self._begin_to_wait()
        return True

    def follow(self, event: events.Event, target: MessagePump, screen: Screen[object]) -> None:
        """A key was handed to a widget: keep those behind it until it has had its effect there."""
        if not isinstance(event, events.Key) or screen is not self._app.screen:
            return
        if self._only_writes(event):
            self._written = target
        else:
            self._mark(target, ROUNDS)

    async def first(self, event: events.Event) -> None:
        """Let this go before all that is kept."""
        self._kept.appendleft(event)
        await self.go_on()

    async def came_back(self, mark: Mark) -> None:
        """A mark has been wherever its key was."""
        if mark.number != self._under_way:
            return
        if mark.rounds > 1:
            self._send(self._app.focused or self._app.screen, mark.number, mark.rounds - 1)
        else:
            self._under_way = 0
        await self.go_on()

    async def go_on(self) -> None:
        """Hand on what may go now."""
        while self._kept and not self._waits:
            if self._comes_behind_letters(self._kept[0]):
                self._begin_to_wait()
                return
            self._passing = self._kept.popleft()
            await self._app.on_event(self._passing)

    @property
    def _waits(self) -> bool:
        # A dialog that is gone takes the marks with it that were on their way in it.
        on_the_way = bool(self._under_way) and self._screen is self._app.screen
        return not self._begun or on_the_way or self._dialog_comes

    @property
    def _dialog_comes(self) -> bool:
        from tui_agent.tui.dialogs.dialog import Dialog

        screen = self._app.screen
        return isinstance(screen, Dialog) and not screen.stands

    def _comes_behind_letters(self, event: events.Event) -> bool:
        """Whether a key means what is written in a field, which letters may still be on their way to."""
        if self._written is None or not isinstance(event, events.Key) or self._only_writes(event):
            return False
        self._mark(self._written, 1)
        return self._waits

    def _mark(self, target: MessagePump, rounds: int) -> None:
        self._written = None
        self._number += 1
        self._send(target, self._number, rounds)

    def _send(self, target: MessagePump, number: int, rounds: int) -> None:
        self._screen, self._target = self._app.screen, target
        self._under_way = number if target.post_message(self.Mark(number, rounds)) else 0
        if self._overdue is not None:
            self._overdue.stop()
            self._overdue = None

    def _begin_to_wait(self) -> None:
        if self._under_way and self._overdue is None:
            self._wait(PATIENT)

    def _wait(self, patience: int) -> None:
        self._overdue = self._app.set_timer(PATIENCE_S, partial(self._look, self._under_way, patience - 1))

    async def _look(self, number: int, patience: int) -> None:
        """Go on without the key that is under way, unless it may still come back."""
        self._overdue = None
        if number != self._under_way:
            return
        if patience and self._target is not None and self._target.is_running and self._target.is_attached:
            self._wait(patience)
        else:
            self._under_way = 0
            await self.go_on()

    def _only_writes(self, event: events.Key) -> bool:
        """Whether it changes a text and nothing else; the first sign in an empty one may mean something."""
        from textual.widgets import Input, TextArea

        focused = self._app.focused
        if not event.is_printable:
            return False
        return isinstance(focused, Input) or (isinstance(focused, TextArea) and bool(focused.text))
