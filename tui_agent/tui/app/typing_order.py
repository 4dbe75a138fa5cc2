"""Keeps typed keys in order: each key is dispatched only after the one before it has taken effect.

Textual sends a key to the focused widget, and runs its binding only when the event bubbles back. Keys that arrive in
one burst would therefore all reach the same widget: text typed after the Esc that closes a dialog would go to the
dialog instead of the prompt, and text after the slash that starts a search to the conversation.
"""

from collections import deque
from dataclasses import dataclass
from functools import partial
from typing import Final

from textual import events
from textual.app import App
from textual.message import Message
from textual.message_pump import MessagePump
from textual.screen import Screen
from textual.timer import Timer

KEY_WAIT_S: Final = 0.1
"""Seconds that a key waits for the one before it before checking on it."""
MAX_KEY_WAITS: Final = 20
"""How many times it waits again while the widget with that key is alive but slow, as widgets are at the start."""
ROUNDS: Final = 2
"""How often a mark passes through the widgets: first after the key's binding, then after the messages that posted."""
TYPED: Final = (events.Key, events.Paste, events.AppFocus, events.AppBlur)
"""The events kept in order. A key proves that the terminal has the focus, so losing it must not overtake a key."""


class TypingOrder:
    """Queues an app's key events until they can be dispatched; call `begin` once there is a prompt."""

    @dataclass
    class Mark(Message):
        """A message that follows a key through the same widgets, to tell when the key has taken effect."""

        number: int
        rounds: int

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
        """Dispatch the keys that were typed before there was a prompt."""
        self._begun = True
        await self.go_on()

    def keeps(self, event: events.Event) -> bool:
        """Queue an event if it must wait for earlier ones, or for a dialog that is not composed yet; False if not."""
        if not isinstance(event, TYPED):
            return False
        if event.is_forwarded:
            # The widget did not use the key, and a dialog has opened meanwhile.
            if not isinstance(event, events.Key) or not self._dialog_comes:
                return False
            event = events.Key(event.key, event.character)
        elif event is self._passing or not (self._kept or self._waits or self._comes_behind_letters(event)):
            return False
        self._kept.append(event)
        self._begin_to_wait()
        return True

    def follow(self, event: events.Event, target: MessagePump, screen: Screen[object]) -> None:
        """Note that a key was sent to a widget: later ones wait until it has taken effect."""
        if not isinstance(event, events.Key) or screen is not self._app.screen:
            return
        if self._only_writes(event):
            self._written = target
        else:
            self._mark(target, ROUNDS)

    async def first(self, event: events.Event) -> None:
        """Dispatch this event ahead of all queued ones."""
        self._kept.appendleft(event)
        await self.go_on()

    async def came_back(self, mark: Mark) -> None:
        """A mark has returned, so its key has taken effect."""
        if mark.number != self._under_way:
            return
        if mark.rounds > 1:
            self._send(self._app.focused or self._app.screen, mark.number, mark.rounds - 1)
        else:
            self._under_way = 0
        await self.go_on()

    async def go_on(self) -> None:
        """Dispatch the queued events that need not wait any more."""
        while self._kept and not self._waits:
            if self._comes_behind_letters(self._kept[0]):
                self._begin_to_wait()
                return
            self._passing = self._kept.popleft()
            await self._app.on_event(self._passing)

    @property
    def _waits(self) -> bool:
        # Marks on their way in a closed dialog are lost with it.
        on_the_way = bool(self._under_way) and self._screen is self._app.screen
        return not self._begun or on_the_way or self._dialog_comes

    @property
    def _dialog_comes(self) -> bool:
        from tui_agent.tui.dialogs.dialog import Dialog

        screen = self._app.screen
        return isinstance(screen, Dialog) and not screen.stands

    def _comes_behind_letters(self, event: events.Event) -> bool:
        """Whether a key acts on a field's text while typed letters may still be on their way to the field."""
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
            self._wait(MAX_KEY_WAITS)

    def _wait(self, patience: int) -> None:
        self._overdue = self._app.set_timer(KEY_WAIT_S, partial(self._look, self._under_way, patience - 1))

    async def _look(self, number: int, patience: int) -> None:
        """Stop waiting for the key in progress, unless its widget is alive and may just be slow."""
        self._overdue = None
        if number != self._under_way:
            return
        if patience and self._target is not None and self._target.is_running and self._target.is_attached:
            self._wait(patience)
        else:
            self._under_way = 0
            await self.go_on()

    def _only_writes(self, event: events.Key) -> bool:
        """Whether a key only types a character; the first one in an empty prompt may be a command."""
        from textual.widgets import Input, TextArea

        focused = self._app.focused
        if not event.is_printable:
            return False
        return isinstance(focused, Input) or (isinstance(focused, TextArea) and bool(focused.text))
