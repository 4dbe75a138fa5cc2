"""The app's context features: the panel, previews of steps, and undoing steps from the conversation."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Final

from tui_agent.agent.commands.command import AT_ONCE
from tui_agent.context.forecast import sentence, soon
from tui_agent.text import clock_text, money_text
from tui_agent.tui.actions import BY_ID, BY_NAME
from tui_agent.tui.cards.blocks import BoundaryBlock, Level
from tui_agent.tui.context.drafting import UNCHANGED, Drafting
from tui_agent.tui.session.conductor import SessionUnavailable
from tui_agent.tui.wording import WHILE_A_TURN_RUNS

if TYPE_CHECKING:
    from textual.timer import Timer
    from textual.worker import Worker

    from tui_agent.agent.agent import Agent
    from tui_agent.context.before_expiry import ExpirySummary
    from tui_agent.context.changes import StepPreview
    from tui_agent.context.effects import Refusal
    from tui_agent.models.base import Model
    from tui_agent.tui.context.panel import ContextPanel
    from tui_agent.tui.host import Host

SLOW_S: Final = 0.3
"""Seconds until the status bar shows what the user is waiting for."""
LOOK_AGAIN_S: Final = 15.0
"""After so many seconds at most the clock is looked at again: a timer stands still while the machine sleeps."""
BEFORE_EXPIRY_S: Final = 40.0
"""Seconds before the cache expires at which a summary is begun, if one is worth it."""


def _before_expiry(worth: "ExpirySummary") -> str:
    now, then, without = map(money_text, (worth.writing_usd, worth.then_usd, worth.without_usd))
    return f"{now} now and {then} with your next message, instead of {without}"


class Steering:
    """Handles the context features of one app. Its parts are created on first use."""

    def __init__(self, host: "Host") -> None:
        self._host = host
        self._unasked = False
        self._announced = self._summarised = 0
        self._expiry: Timer | None = None
        self._away = ""
        self.panel: ContextPanel | None = None
        self._asked_for = True
        self.drafting = Drafting(host)

    @property
    def has_focus(self) -> bool:
        return self.panel is not None and self.panel.has_focus_within

    # The panel

    @property
    def may_leave(self) -> bool:
        """Whether the panel is open only because there was room for it, and nobody is using it."""
        return self.panel is not None and not self._asked_for and not self.has_focus

    def toggle(self, *, asked_for: bool = True) -> None:
        """Open or close the panel. `asked_for`: the user wants it; else there is room for it."""
        if self.panel is not None:
            self.close()
        else:
            self._asked_for = asked_for
            self._host.run_worker(self._open(), name="context", exclusive=True, group="context")

    def close(self) -> None:
        panel, self.panel = self.panel, None
        if panel is not None and panel.is_attached:  # it is not while the app ends
            panel.screen.set_class(False, "-context")
            if panel.has_focus_within or self._host.focused is None:
                self._host.entry.prompt.focus()
            panel.remove()

    def changed(self) -> None:
        """Update what shows the context, after a change of it."""
        if self.panel is not None:
            self.panel.changed()

    def watch(self, agent: "Agent") -> None:
        """Show what comes next in the status bar, and tell when the cache has expired while nothing runs."""
        if self._expiry is not None:
            self._expiry.stop()
            self._expiry = None
        look = partial(self._look_ahead, agent)
        _: Worker[None] = self._host.run_worker(look, name="forecast", exclusive=True, group="forecast")

    async def _look_ahead(self, agent: "Agent") -> None:
        seen = await agent.context.forecast_when_known()
        left, newest = agent.context.expires_in, agent.context.newest_answer
        worth = await agent.context.summary_before_expiry() if left and newest != self._summarised else None
        shown, self._away = soon(seen), ""
        if worth is not None and left:
            at = clock_text(time.time() + max(0.0, left - BEFORE_EXPIRY_S))
            shown = f"summary at {at}"
            self._away = f"If you are away until {at}, a summary comes first: {_before_expiry(worth)}."
        self._host.status.show(soon=shown, ahead=f"{sentence(seen)} {self._away}".rstrip())
        if self.panel is not None:
            self.panel.tell(self._away)
        if agent.busy or left is None or newest == self._announced:
            return
        if left:
            before, then = (0.0, self._expired) if worth is None else (BEFORE_EXPIRY_S, self._about_to_expire)
            self._wait(left - before, lambda: self._when_left(agent, before, then))
            return
        if notice := agent.context.expired(seen):
            self._announced = newest
            self._host.say(Level.INFO, notice)

    def _wait(self, seconds: float, then: Callable[[], None]) -> None:
        self._expiry = self._host.pane.set_timer(min(max(0.1, seconds), LOOK_AGAIN_S), then)

    def _when_left(self, agent: "Agent", before: float, then: "Callable[[Agent], None]") -> None:
        """Do it if no more than so many seconds are left until the cache expires, else look again later."""
        wait = (agent.context.expires_in or 0.0) - before
        if wait > 0.05:
            self._wait(wait, lambda: self._when_left(agent, before, then))
        else:
            then(agent)

    def _about_to_expire(self, agent: "Agent") -> None:
        self._summarised = agent.context.newest_answer
        write = partial(self._write_before_expiry, agent)
        _: Worker[None] = self._host.run_worker(write, name="before expiry", exclusive=True, group="forecast")

    async def _write_before_expiry(self, agent: "Agent") -> None:
        if worth := await agent.context.summary_before_expiry(start=True):
            notice = f"The cache is about to expire, so a summary is written: {_before_expiry(worth)}"
            self._host.say(Level.INFO, f"{notice}. Esc stops it, /undo-step takes it back.")
        self.watch(agent)

    def _expired(self, agent: "Agent") -> None:
        self.changed()
        self.watch(agent)

    async def change(self, change: "Callable[[], Awaitable[object | Refusal]]") -> None:
        """Change the context, or tell the user why it cannot be changed."""
        from tui_agent.agent.turn.turns import AgentBusy
        from tui_agent.context.effects import Refusal
        from tui_agent.storage.errors import StorageError

        try:
            done = await change()
        except AgentBusy:
            self._host.hint(WHILE_A_TURN_RUNS)
        except StorageError as error:
            self._host.say(Level.ERROR, error.message, hint=error.hint)
        else:
            if isinstance(done, Refusal):
                self._host.say(Level.WARNING, UNCHANGED, done.reason)

    async def undo(self, block: BoundaryBlock) -> None:
        """Undo a context step in the conversation, or restore an evicted result."""
        agent = await self._host.agent()
        context, seq = agent.context, block.seq
        await self.change(lambda: context.restore([seq]) if block.restores else context.undo(seq))

    async def _open(self) -> None:
        from tui_agent.tui.context.panel import ContextPanel

        try:
            agent = await self._host.agent()
        except SessionUnavailable:
            self._host.say(Level.WARNING, "There is no session, so there is no context to show")
            return
        pane = self._host.pane
        if self.panel is None and pane.is_mounted:
            self.panel = ContextPanel(agent, self._host.keymap, self._away)
            pane.screen.set_class(True, "-context")
            await pane.screen.mount(self.panel, after=pane)

    # Previews

    async def run(self, text: str, run: Callable[[str], Awaitable[None]]) -> None:
        """Run a command, with a preview first if it has one; the panel's own command opens the panel.

        A written summary is shown again before it is used.
        """
        word, _, argument = text.strip()[1:].partition(" ")
        name, argument = word.lower(), argument.strip()
        self._unasked = name.endswith(AT_ONCE)
        name = name.removesuffix(AT_ONCE)
        if name in BY_ID["context"].names and not argument:
            self.toggle()
            return
        if name == "at":
            if command := await self._looked_back(argument, text):
                await run(command)
            return
        if not self._unasked:
            wanted = await self._wanted(name, argument)
            if wanted is None:
                return
            argument = wanted
        try:
            await run(f"/{name} {argument}".rstrip() if self._unasked or argument else text)
        finally:
            self._unasked = False

    async def _looked_back(self, number: str, text: str) -> str:
        """Show what the model saw at a call; the command to run then, `text` if there is nothing to show."""
        from tui_agent.tui.context.calls_screen import CallsScreen

        agent = await self._host.agent()
        with self.notice_if_slow("reading the calls"):
            past = await agent.context.past()
        chosen = int(number) if number.isdecimal() and len(number) < 10 else 0 if number else len(past.calls)
        if not 1 <= chosen <= len(past.calls):
            return text
        context = agent.context
        window = agent.engine.window.tokens
        seq = await self._host.question(CallsScreen(past, chosen, context.excerpt, window))
        return f"/fork {seq}" if seq else ""

    async def may_switch(self, agent: "Agent", model: "Model") -> bool:
        """Preview a switch of the model and ask; True without asking if nothing has been said yet."""
        from tui_agent.tui.context.previews import PreviewScreen

        if self._unasked or not agent.context.items():
            return True
        seen = await agent.context.preview_switch(model)
        return await self._host.question(PreviewScreen(seen)) is not None

    @contextmanager
    def notice_if_slow(self, what: str) -> Iterator[None]:
        """Show in the status bar what is being done, if it takes longer than `SLOW_S`."""
        telling = asyncio.get_running_loop().call_later(SLOW_S, self._host.working, what)
        try:
            yield
        finally:
            telling.cancel()
            if self._host.status.status.activity == what:
                self._host.working("")

    async def _wanted(self, name: str, argument: str) -> str | None:
        """The command's argument after the preview; None if there is nothing to run."""
        step = BY_NAME[name].previews if name in BY_NAME else None
        agent = await self._host.agent() if step is not None else None
        if step is None or agent is None or agent.busy or (step == "checkpoint" and not agent.has_checkpointer):
            return argument
        from tui_agent.agent.turn.turns import AgentBusy
        from tui_agent.context.effects import Refusal
        from tui_agent.storage.errors import StorageError
        from tui_agent.tui.context.previews import PreviewScreen

        with self.notice_if_slow("looking at what it would do"):
            seen = await agent.context.preview(step, argument)
        if isinstance(seen, Refusal):
            return argument

        async def pin(seq: int) -> "StepPreview | Refusal":
            try:
                refused = await agent.context.pin([seq])
            except (AgentBusy, StorageError) as error:
                return Refusal(str(error))
            return refused if isinstance(refused, Refusal) else await agent.context.preview(step, argument)

        prices = agent.profile.prices
        free = prices is not None and not prices.input
        screen = PreviewScreen(seen, excerpt=agent.context.excerpt, pin=pin, focus=argument, free=free)
        accepted = await self._host.question(screen)
        if accepted is None or step == "clear":
            return None if accepted is None else accepted.focus
        try:
            await self.drafting.run(agent, step, accepted.focus)
        except AgentBusy:
            self._host.hint(WHILE_A_TURN_RUNS)
        return None
