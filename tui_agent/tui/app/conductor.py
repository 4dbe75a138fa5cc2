"""The session behind the screen: one inbox, one task that empties it, and the work that `states.step` asks for."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Protocol, assert_never

from tui_agent.tui.app import states
from tui_agent.tui.app.states import Inbound, Phase, State, Work
from tui_agent.tui.cards.blocks import Level

if TYPE_CHECKING:
    from tui_agent.agent.agent import Agent
    from tui_agent.arguments import Arguments
    from tui_agent.conversation.blocks import Image
    from tui_agent.session import Session
    from tui_agent.tui.app.turns import TurnView

    Opening = Callable[[Arguments], Coroutine[None, None, tuple[Session, TurnView]]]


class SessionUnavailable(Exception):
    """There is no session to talk to, and the user has been told why."""


class Stage(Protocol):
    """The screen, as the session sees it."""

    def say(self, level: Level, title: str, text: str = "", hint: str = "") -> None:
        """Show a notice in the pane."""
        ...

    def hint(self, text: str) -> None:
        """Show a few words in the status bar for a moment."""
        ...

    def give_back(self, text: str) -> None:
        """Put a text that was not sent back where the user can change it."""
        ...

    def show_waiting(self, texts: tuple[str, ...], *, held: bool) -> None:
        """Show the texts that wait; `held`: for a message of the user's, no turn being there to take them."""
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
    What is asked of it is only noted, so nobody waits who asks; the state is changed by one task alone.
    """

    def __init__(self, stage: Stage, opening: "Opening") -> None:
        self._stage = stage
        self._opening = opening
        self._inbox: asyncio.Queue[Inbound] = asyncio.Queue()
        self._queued: set[int] = set()
        self._state = State()
        self._view: TurnView | None = None
        self._opener: asyncio.Task[None] | None = None
        self._reader: asyncio.Task[None] | None = None
        self._taker: asyncio.Task[None] | None = None
        self._turn: asyncio.Task[None] | None = None
        self._others: set[asyncio.Task[None]] = set()
        self._began = asyncio.Event()
        self._heard = asyncio.Event()
        self._settled = asyncio.Event()
        self._closed: asyncio.Future[Exception | None] = asyncio.get_running_loop().create_future()
        self._consumer = asyncio.create_task(self._consume(), name="conductor")
        self.session: Session | None = None

    @property
    def busy(self) -> bool:
        """Whether a turn runs or is about to, or something was asked that is not looked at yet."""
        return self._state.busy or not self._inbox.empty()

    @property
    def phase(self) -> Phase:
        """Where the session stands."""
        return self._state.phase

    # What may be asked; all of it answers at once

    def open(self, target: "Arguments") -> None:
        """Make the first session."""
        self._do(states.OpenSession(target))

    def send(self, text: str) -> None:
        """Begin a turn with this text, or let it wait for the running turn's next step, or for the session."""
        self._post(states.Send(text))

    def stop(self) -> None:
        """Stop the running turn; what was not yet sent goes back to the prompt.

        A summary that the turn waits for is stopped in its place, and one that is written while no turn runs.
        """
        self._post(states.Stop())

    def take_back(self) -> None:
        """Give the newest text that waits back to the prompt."""
        self._post(states.TakeBack())

    def prepare_ahead(self) -> None:
        """The user writes the next prompt: have done meanwhile what is due before it."""
        self._post(states.Prepare())

    def switch(self, target: "Arguments") -> None:
        """Close this session in order, and go on in another one."""
        self._post(states.Switch(target))

    async def agent(self) -> "Agent":
        """The agent, once there is one. Raises SessionUnavailable."""
        while not self._state.settled:
            await self._settled.wait()
        if self.session is None:
            raise SessionUnavailable
        return self.session.agent

    async def close(self) -> None:
        """Stop the turn and close the session; a second call waits for the same end. Raises what closing raised."""
        self._post(states.Close())
        error = await asyncio.shield(self._closed)
        if error is not None:
            raise error

    def add(self, seq: int, text: str) -> None:
        """A text waits in the conversation for the next step."""
        self._queued.add(seq)
        self._post(states.Waits(seq, text))

    def remove(self, seq: int) -> None:
        """A text waits no more."""
        if seq:
            self._post(states.WaitsNoMore(seq))

    def forget_waiting(self) -> None:
        """The conversation goes on elsewhere: what waited for a step there goes back to the prompt."""
        if self.session is not None:
            self._post(states.Moved(frozenset(seq for seq, _ in self.session.agent.queued())))

    # The inbox

    def _post(self, message: Inbound) -> None:
        self._inbox.put_nowait(message)

    async def _consume(self) -> None:
        while self._state.phase is not Phase.CLOSED:
            message = await self._inbox.get()
            try:
                self._take(message)
                if self._inbox.empty():
                    self._stage.show_waiting(self._state.shown, held=self._state.phase is Phase.IDLE)
            except Exception as error:
                self._stage.report(error)

    def _take(self, message: Inbound) -> None:
        if isinstance(message, states.Stop) and self.session is not None and self.session.agent.awaits_summary:
            message = states.StopSummary()
        self._state, work = states.step(self._state, message)
        if self._state.settled:
            self._settled.set()
        else:
            self._settled.clear()
        if isinstance(message, states.Closed) and self._state.phase is Phase.CLOSED:
            self._closed.set_result(message.error)
        for each in work:
            self._do(each)

    def _do(self, work: Work) -> None:
        match work:
            case states.OpenSession(target):
                self._opener = asyncio.create_task(self._open(target), name="open")
            case states.ReadPictures(outgoing):
                self._read(outgoing)
            case states.StopReading():
                if self._reader is not None:
                    self._reader.cancel()
            case states.ShowTurn(runs):
                self._show_turn(runs=runs)
            case states.RunTurn(text, images):
                self._run(text, images)
            case states.TakeIn(outgoing, images):
                self._taker = asyncio.create_task(self._take_in(outgoing, images), name="queue")
            case states.Interrupt():
                self._beside(self._interrupt())
            case states.StopWriting():
                if self.session is not None:
                    self.session.agent.stop_writing()
            case states.Withdraw(seq):
                self._beside(self._withdraw_one(seq))
            case states.PrepareAhead():
                self._beside(self._prepare())
            case states.GiveBack(texts):
                self._stage.give_back("\n".join(texts))
            case states.TellNoSession():
                told = "your text is back in the prompt; /new begins a session, /sessions chooses one"
                self._stage.say(Level.ERROR, "There is no session to send this to", hint=told)
            case states.TellClosing():
                now = "opening" if self._state.phase is Phase.OPENING else "closing"
                self._stage.hint(f"{now} the session; Ctrl+C twice quits")
            case states.CloseSession():
                self._beside(self._close())
            case states.Report(error):
                self._stage.report(error)
            case _:
                assert_never(work)

    def _beside(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work)
        self._others.add(task)
        task.add_done_callback(self._others.discard)

    # The work

    async def _open(self, target: "Arguments") -> None:
        self._queued.clear()
        try:
            self.session, self._view = await self._opening(target)
        except SessionUnavailable:
            self._post(states.NotOpened())
        except Exception as error:
            self._stage.report(error)
            self._post(states.NotOpened())
        else:
            self._view.show_waiting(self.session.agent.queued())
            self._post(states.Opened())

    def _read(self, outgoing: states.Outgoing) -> None:
        from tui_agent.tui.prompt.mentions import names_pictures

        if names_pictures(outgoing.text):
            self._reader = asyncio.create_task(self._read_pictures(outgoing), name="pictures")
        else:
            self._post(states.Read(outgoing.number))

    async def _read_pictures(self, outgoing: states.Outgoing) -> None:
        try:
            images = await self._stage.pictures(outgoing.text)
        except Exception as error:
            self._stage.report(error)
            self._post(states.NotSent(outgoing.number))
        else:
            self._post(states.Read(outgoing.number, images))

    def _show_turn(self, *, runs: bool) -> None:
        if self._view is None:
            return
        if runs:
            self._view.begin()
        else:
            self._view.end()
        self._stage.turn_changed()

    def _run(self, text: str, images: "tuple[Image, ...]") -> None:
        if self.session is None or self._view is None:
            raise RuntimeError("a turn without a session")
        self._began.clear()
        self._heard.clear()
        self._turn = asyncio.create_task(self._run_turn(self.session, self._view, text, images), name="turn")

    async def _run_turn(self, session: "Session", view: "TurnView", text: str, images: "tuple[Image, ...]") -> None:
        from tui_agent.agent.events import UserMessage

        try:
            async for event in session.agent.run(text, images):
                self._began.set()
                view.show(event)
                if isinstance(event, UserMessage):
                    self._heard.set()
        except Exception as error:
            self._stage.report(error)
        finally:
            self._began.set()
            self._heard.set()
        if self._taker is not None and not self._taker.done():
            await asyncio.wait({self._taker})
        unsent = await self._unsent(session, view, text) if view.interrupted else ()
        self._post(states.TurnEnded(tuple(unsent)))

    async def _unsent(self, session: "Session", view: "TurnView", text: str) -> list[str]:
        from tui_agent.agent.turn.user_shell import is_note

        waiting = {seq for seq, queued in session.agent.queued() if not is_note(queued)}
        # What began the turn waits in the conversation too, where the turn was stopped before it could be heard.
        unsent = [] if view.answered or waiting - self._queued else [text]
        return unsent + [queued for seq in sorted(waiting) if (queued := await self._withdraw(session, seq))]

    async def _take_in(self, outgoing: states.Outgoing, images: "tuple[Image, ...]") -> None:
        from tui_agent.agent.turn.turns import NotRunning

        # What began the turn comes first.
        await self._heard.wait()
        session = self.session
        if session is None:
            self._post(states.NoTurn(outgoing.number, images))
            return
        try:
            seq = await session.agent.queue(outgoing.text, images)
        except NotRunning:
            self._post(states.NoTurn(outgoing.number, images))
        except Exception as error:
            self._stage.report(error)
            self._post(states.NotSent(outgoing.number))
        else:
            self._queued.add(seq)
            # The turn may have delivered it already.
            waits = any(seq == waiting for waiting, _ in session.agent.queued())
            self._post(states.Taken(outgoing.number, seq, waits))

    async def _interrupt(self) -> None:
        await self._began.wait()
        if self.session is not None:
            self.session.agent.interrupt()

    async def _prepare(self) -> None:
        if self.session is None:
            return
        try:
            await self.session.agent.prepare_ahead()
        except Exception as error:
            self._stage.report(error)

    async def _withdraw_one(self, seq: int) -> None:
        if self.session is not None and (text := await self._withdraw(self.session, seq)):
            self._stage.give_back(text)

    async def _withdraw(self, session: "Session", seq: int) -> str:
        try:
            return await session.agent.withdraw(seq)
        except Exception as error:
            self._stage.report(error)
            return ""
        finally:
            self.remove(seq)

    async def _close(self) -> None:
        """End what is under way, the session last; whatever goes wrong, `Closed` follows."""
        error: Exception | None = None
        try:
            if self._opener is not None and not self._opener.done():
                self._opener.cancel()
                await asyncio.wait({self._opener})
            if self._turn is not None and not self._turn.done():
                await self._interrupt()
                await asyncio.wait({self._turn})
            session, self.session = self.session, None
            if session is not None:
                await session.close()
        except Exception as problem:
            error = problem
        self._post(states.Closed(error))
