"""Keys have their effect in the order in which they were pressed, however slow a widget is."""

import asyncio
from typing import ClassVar

from textual import events
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.widgets import TextArea
from typing_extensions import override

from tui_agent.tui.app.typing_order import KEY_WAIT_S, TypingOrder


class Slow(TextArea):
    """Takes no key before it is let."""

    def __init__(self) -> None:
        super().__init__()
        self.lets = asyncio.Event()

    @override
    async def _on_key(self, event: events.Key) -> None:
        await self.lets.wait()
        await super()._on_key(event)


class Typed(App[object]):
    """Hands keys on as the real app does."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("ctrl+c", "look", priority=True)]

    def __init__(self) -> None:
        super().__init__()
        self.order = TypingOrder(self)
        self.area = Slow()
        self.seen: list[str] = []
        self.looked = asyncio.Event()

    @override
    def compose(self) -> ComposeResult:
        yield self.area

    @override
    async def on_event(self, event: events.Event) -> None:
        if self.order.keeps(event):
            return
        is_new = isinstance(event, events.Key) and not event.is_forwarded
        target, screen = (self.focused or self.screen, self.screen) if is_new else (None, None)
        await super().on_event(event)
        if target is not None and screen is not None:
            self.order.follow(event, target, screen)

    async def on_typing_order_mark(self, mark: TypingOrder.Mark) -> None:
        await self.order.came_back(mark)

    def action_look(self) -> None:
        self.seen.append(self.area.text)
        self.looked.set()


async def test_a_key_that_was_kept_with_letters_waits_until_they_are_written() -> None:
    app = Typed()
    async with app.run_test() as pilot:
        app.area.lets.set()
        app.area.focus()
        await pilot.pause()
        for key in ("w", "o", "r", "d", "ctrl+c"):
            app.post_message(events.Key(key, key if len(key) == 1 else None))
        await pilot.pause()
        assert app.area.text == ""
        await app.order.begin()
        await app.looked.wait()
    assert app.seen == ["word"]


async def test_a_key_waits_for_letters_that_a_slow_widget_has_not_written_yet() -> None:
    app = Typed()
    async with app.run_test() as pilot:
        app.area.focus()
        await pilot.pause()
        await app.order.begin()
        for key in ("w", "o", "r", "d", "ctrl+c"):
            app.post_message(events.Key(key, key if len(key) == 1 else None))
        await asyncio.sleep(3 * KEY_WAIT_S)
        assert app.seen == []
        app.area.lets.set()
        await app.looked.wait()
    assert app.seen == ["word"]


async def test_a_key_does_not_wait_for_one_whose_widget_is_gone() -> None:
    app = Typed()
    async with app.run_test() as pilot:
        app.area.focus()
        await pilot.pause()
        await app.order.begin()
        app.post_message(events.Key("w", "w"))
        app.post_message(events.Key("ctrl+c", None))
        await asyncio.sleep(0)
        app.area.remove()
        app.area.lets.set()
        await app.looked.wait()
