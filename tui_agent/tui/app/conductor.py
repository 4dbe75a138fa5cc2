"""The session behind the screen: opened after the first paint, one turn at a time, stopped and closed in order."""

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Protocol

from tui_agent.tui.cards.blocks import Level

if TYPE_CHECKING:
    from tui_agent.agent.agent import Agent
    from tui_agent.conversation.blocks import Image
    from tui_agent.session import Session
    from tui_agent.tui.app.turns import TurnView


class SessionUnavailable(Exception):
    """There is no session to talk to, and the user has been told why."""


class Stage(Protocol):
    """The screen, as the session sees it."""

    def say(self, level: Level, title: str, text: str = "", hint: str = "") -> None:
        """Show a notice in the pane."""
        ...

    def give_back(self, text: str) -> None:
        """Put a text that was not sent back where the user can change it."""
        ...

    def show_waiting(self, texts: tuple[str, ...]) -> None:
        """Show the texts that wait."""
        ...

    async def pictures(self, text: str) -> "tuple[Image, ...]":
        """The pictures that a text names; what cannot be sent is told."""
        ...

    def turn_changed(self) -> None:
        """A turn began or ended."""
        ...

    def report(self, error: Exception) -> None:
        """Tell of an error nobody expected, and keep its details."""
        ...


class Conductor:
    """Owns the session and the running turn.

    `opening` makes the session and the view its events go to; it raises `SessionUnavailable` when that cannot be done.
    """

    def __init__(self, stage: Stage, opening: Callable[[], Coroutine[None, None, "tuple[Session, TurnView]"]]) -> None:
        self._stage = stage
        self._opening = opening
        self._opened: asyncio.Future[Session] = asyncio.get_running_loop().create_future()
        self._view: TurnView | None = None
        self._turn: asyncio.Task[None] | None = None
        self._reading: asyncio.Task[tuple[Image, ...]] | None = None
        self._early: deque[str] = deque()
        self._waiting: dict[int, str] = {}
        self.session: Session | None = None

    @property
    def busy(self) -> bool:
        """Whether a turn runs."""
        return self._turn is not None and not self._turn.done()

    async def open(self) -> None:
        """Make the session, then send what the user sent in the meantime."""
        try:
            self.session, self._view = await self._opening()
        except SessionUnavailable:
            self._fail()
            return
        except Exception as error:
            self._stage.report(error)
            self._fail()
            return
        self._view.show_waiting(self.session.agent.queued())
        self._opened.set_result(self.session)
        early = list(self._early)
        self._early.clear()
        self._show_waiting()
        for text in early:
            await self.send(text)

    async def agent(self) -> "Agent":
        """The agent, once there is one. Raises SessionUnavailable."""
        session = await asyncio.shield(self._opened)
        return session.agent

    async def send(self, text: str) -> None:
        """Begin a turn with this text, or let it wait for the running turn's next step, or for the session."""
        if not self._opened.done():
            self._early.append(text)
            self._show_waiting()
        elif self.session is None or self._view is None:
            self._stage.give_back(text)
            self._stage.say(Level.ERROR, "There is no session to send this to", hint="your text is back in the prompt")
        elif self.busy:
            await self._queue(self.session, text)
        else:
            self._turn = asyncio.create_task(self._run(self.session, self._view, text), name="turn")

    async def prepare_ahead(self) -> None:
        """The user writes the next prompt: have done meanwhile what is due before it."""
        if self.session is None or self.busy:
            return
        try:
            await self.session.agent.prepare_ahead()
        except Exception as error:
            self._stage.report(error)

    async def stop(self) -> None:
        """Stop the running turn; what was not yet sent goes back to the prompt.

        A summary that the turn waits for is stopped in its place, and one that is written while no turn runs.
        """
        if self.session is not None and (self.session.agent.awaits_summary or not self.busy):
            self.session.agent.stop_writing()
            return
        if self._turn is not None and self.session is not None and self.busy:
            if not self.session.agent.interrupt() and self._reading is not None:
                self._reading.cancel()
            await asyncio.wait({self._turn})

    async def take_back(self) -> str | None:
        """The newest text that waits, which then waits no more; None: none can be had back."""
        if self._early:
            text = self._early.pop()
            self._show_waiting()
            return text
        if not self._waiting or self.session is None:
            return None
        return await self._withdraw(self.session, max(self._waiting)) or None

    async def close(self) -> None:
        """Stop the turn and close the session; a second call does nothing."""
        await self.stop()
        session, self.session = self.session, None
        if session is not None:
            await session.close()

    def add(self, seq: int, text: str) -> None:
        """A text waits in the conversation for the next step."""
        self._waiting[seq] = text
        self._show_waiting()

    def remove(self, seq: int) -> None:
        """A text waits no more."""
        if self._waiting.pop(seq, None) is not None:
            self._show_waiting()

    def forget_waiting(self) -> None:
        """The conversation goes on elsewhere: what waited for a step there goes back to the prompt."""
        if self.session is None:
            return
        waits = {seq for seq, _ in self.session.agent.queued()}
        unsent = [self._waiting.pop(seq) for seq in sorted(self._waiting) if seq not in waits]
        if unsent:
            self._show_waiting()
            self._stage.give_back("\n".join(unsent))

    async def _run(self, session: "Session", view: "TurnView", text: str) -> None:
        view.begin()
        self._stage.turn_changed()
        try:
            # Many large pictures take seconds to read, in which Esc gives the text back.
            self._reading = asyncio.create_task(self._stage.pictures(text), name="pictures")
            await asyncio.wait({self._reading})
            if self._reading.cancelled():
                self._stage.give_back(text)
                return
            async for event in session.agent.run(text, self._reading.result()):
                view.show(event)
        except Exception as error:
            self._stage.report(error)
        finally:
            self._reading = None
            view.end()
            self._stage.turn_changed()
        if view.interrupted:
            await self._give_back_unsent(session, view, text)

    async def _give_back_unsent(self, session: "Session", view: "TurnView", text: str) -> None:
        from tui_agent.agent.user_shell import is_note

        waiting = {seq for seq, queued in session.agent.queued() if not is_note(queued)}
        # What began the turn waits in the conversation too, where the turn was stopped before it could be heard.
        unsent = [] if view.answered or waiting - self._waiting.keys() else [text]
        unsent += [queued for seq in sorted(waiting) if (queued := await self._withdraw(session, seq))]
        if unsent:
            self._stage.give_back("\n".join(unsent))

    async def _queue(self, session: "Session", text: str) -> None:
        from tui_agent.agent.agent import NotRunning

        try:
            seq = await session.agent.queue(text, await self._stage.pictures(text))
        except NotRunning:
            # The turn came to its end in this very moment: the text begins the next one.
            if self._turn is not None:
                await asyncio.wait({self._turn})
            await self.send(text)
        except Exception as error:
            self._stage.give_back(text)
            self._stage.report(error)
        else:
            # The turn may have delivered it already.
            if any(seq == waiting for waiting, _ in session.agent.queued()):
                self.add(seq, text)

    async def _withdraw(self, session: "Session", seq: int) -> str:
        try:
            return await session.agent.withdraw(seq)
        except Exception as error:
            self._stage.report(error)
            return ""
        finally:
            self.remove(seq)

    def _fail(self) -> None:
        self._opened.set_exception(SessionUnavailable())
        self._opened.exception()
        if self._early:
            self._stage.give_back("\n".join(self._early))
            self._early.clear()
            self._show_waiting()

    def _show_waiting(self) -> None:
        self._stage.show_waiting((*self._waiting.values(), *self._early))
