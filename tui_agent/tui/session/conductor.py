"""The session behind the screen: an inbox, one task that consumes it, and the work that `State` returns."""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import aclosing
from functools import partial
from typing import TYPE_CHECKING, Final, assert_never

from tui_agent.tui.cards.blocks import Level
from tui_agent.tui.session import states
from tui_agent.tui.session.states import NamedWork, Next, Phase, State, Work

if TYPE_CHECKING:
    from tui_agent.agent.agent import Agent
    from tui_agent.arguments import Arguments
    from tui_agent.conversation.blocks import Image
    from tui_agent.session import Session
    from tui_agent.tui.host import Host
    from tui_agent.tui.session.turns import TurnView

    Opening = Callable[[Arguments], Coroutine[None, None, tuple[Session, TurnView]]]
    Message = Callable[[State], Next]
    """What happened, applied to the state of its turn in the inbox."""


SHOW_WAITING_AFTER_S: Final = 0.15
"""Seconds until the text that starts a turn is shown as waiting, if it has not entered the conversation by then."""


class SessionUnavailable(Exception):
    """There is no session, and the user has been told why."""


class Conductor:
    """Owns the session and the running turn.

    `opening` creates the session and the view that shows its events; it raises `SessionUnavailable` if it cannot.
    Requests only post a message and return at once; a single task changes the state.
    """

    def __init__(self, host: "Host", opening: "Opening") -> None:
        self._host = host
        self._opening = opening
        self._inbox: asyncio.Queue[Message] = asyncio.Queue()
        self._queued: set[int] = set()
        self._not_entered = ""
        self._ran: states.Outgoing | None = None
        self._state = State()
        self._view: TurnView | None = None
        self._opener: asyncio.Task[None] | None = None
        self._reader: asyncio.Task[None] | None = None
        self._taker: asyncio.Task[None] | None = None
        self._turn: asyncio.Task[None] | None = None
        self._others: set[asyncio.Task[None]] = set()
        self._began = asyncio.Event()
        self._entered = asyncio.Event()
        self._settled = asyncio.Event()
        self._closed: asyncio.Future[Exception | None] = asyncio.get_running_loop().create_future()
        self._consumer = asyncio.create_task(self._consume(), name="conductor")
        self.session: Session | None = None

    @property
    def busy(self) -> bool:
        """Whether a turn is running or about to start, or a message is still in the inbox of an opened session."""
        return self._state.busy or (self._state.phase is not Phase.OPENING and not self._inbox.empty())

    @property
    def failed(self) -> bool:
        return self._view is not None and self._view.failed

    @property
    def broke_off(self) -> bool:
        """Whether the newest turn ended in an error, or was stopped."""
        return self._view is not None and (self._view.failed or self._view.interrupted)

    @property
    def phase(self) -> Phase:
        return self._state.phase

    # Requests; they return at once

    def open(self, target: "Arguments") -> None:
        self._do(states.OpenSession(target))

    def send(self, text: str, typed: str = "") -> None:
        """Start a turn with this text; it waits for the running turn's next step, or until the session is open.

        `typed`: what the user typed, if that is not the text.
        """
        self._post(lambda state: state.send(text, typed))

    def send_again(self) -> bool:
        """Send the text of the newest turn once more, if that turn failed; False if it did not."""
        if self._ran is None or not self.failed or self.busy:
            return False
        self.send(self._ran.text, self._ran.typed)
        return True

    def stop(self) -> None:
        """Stop the running turn; texts that were not sent yet go back to the prompt.

        If the turn waits for a summary, or if no turn runs, stop the summary that is being written instead.
        """

        def stop(state: State) -> Next:
            awaited = self.session is not None and self.session.agent.context.awaits_summary
            return (state, (NamedWork.STOP_WRITING,)) if awaited else state.stop()

        self._post(stop)

    def release(self, target: "Arguments") -> "tuple[Session, Coroutine[None, None, None]] | None":
        """Let go of the session and its running turn, and open another one; None if no turn runs.

        What it returns has to be awaited until the turn ends, and the session closed then.
        """
        session, turn, view = self.session, self._turn, self._view
        if self._state.phase is not Phase.RUNNING or session is None or turn is None or view is None:
            return None
        view.end()
        view.leave_screen()
        self.session = self._turn = None
        for work in self._take(lambda state: state.released(target)):
            self._do_or_report(partial(self._do, work))

        async def rest() -> None:
            try:
                await asyncio.shield(turn)
            except asyncio.CancelledError:
                session.agent.interrupt()
                await asyncio.wait((turn,))
                raise

        return session, rest()

    def take_back(self) -> None:
        """Put the newest waiting text back into the prompt."""
        self._post(State.take_back)

    def prepare_ahead(self) -> None:
        """While the user writes the next prompt, do the context work that is due before it."""
        self._post(State.prepare)

    def switch(self, target: "Arguments") -> None:
        """Close this session cleanly, then open another one."""
        self._post(lambda state: state.leave(target))

    async def agent(self) -> "Agent":
        """The agent, once there is one. Raises SessionUnavailable."""
        while not self._state.settled:
            await self._settled.wait()
        if self.session is None:
            raise SessionUnavailable
        return self.session.agent

    async def close(self) -> None:
        """Stop the turn and close the session. A second call waits for the first. Raises what closing raised."""
        self._post(lambda state: state.leave(None))
        error = await asyncio.shield(self._closed)
        if error is not None:
            raise error

    def add(self, seq: int, text: str) -> None:
        """Note that a text in the conversation waits for the next step."""
        self._queued.add(seq)
        self._post(lambda state: state.waits(seq, text))

    def remove(self, seq: int) -> None:
        """Note that a text no longer waits."""
        if seq:
            self._post(lambda state: state.waits_no_more(seq))

    def forget_waiting(self, *, give_back: bool) -> None:
        """After a change of branch: forget texts that waited on the old one; `give_back`: they go to the prompt."""
        if self.session is not None:
            still = frozenset(seq for seq, _ in self.session.agent.turns.queued())
            self._post(lambda state: state.moved(still, gives_back=give_back))

    # The inbox

    def _post(self, message: "Message") -> None:
        self._inbox.put_nowait(message)

    async def _consume(self) -> None:
        while self._state.phase is not Phase.CLOSED:
            message = await self._inbox.get()
            for work in self._take(message):
                self._do_or_report(partial(self._do, work))
            if self._inbox.empty():
                self._do_or_report(self._show_waiting)

    def _do_or_report(self, work: Callable[[], None]) -> None:
        """Do it; report an error to the user instead of raising it, so that other work goes on."""
        try:
            work()
        except Exception as error:
            self._host.report(error)

    def _show_waiting(self) -> None:
        texts = (self._not_entered, *self._state.shown) if self._not_entered else self._state.shown
        self._host.show_waiting(texts, held=self._state.phase is Phase.IDLE)

    def _take(self, message: "Message") -> tuple[Work, ...]:
        self._state, work = message(self._state)
        if self._state.settled:
            self._settled.set()
        else:
            self._settled.clear()
        return work

    def _do(self, work: Work) -> None:
        match work:
            case states.OpenSession(target):
                self._opener = asyncio.create_task(self._open(target), name="open")
            case states.ReadPictures(outgoing):
                self._read(outgoing)
            case NamedWork.STOP_READING:
                if self._reader is not None:
                    self._reader.cancel()
            case NamedWork.SHOW_TURN | NamedWork.SHOW_NO_TURN:
                self._show_turn(runs=work is NamedWork.SHOW_TURN)
            case states.RunTurn(outgoing, images):
                self._run(outgoing, images)
            case states.DeliverToTurn(outgoing, images):
                self._taker = asyncio.create_task(self._take_in(outgoing, images), name="queue")
            case NamedWork.INTERRUPT:
                self._spawn(self._interrupt())
            case NamedWork.STOP_WRITING:
                if self.session is not None:
                    self.session.agent.context.stop_writing()
            case states.Withdraw(seq):
                self._spawn(self._withdraw_one(seq))
            case NamedWork.PREPARE_AHEAD:
                self._spawn(self._prepare())
            case states.ReturnToPrompt(texts):
                self._host.give_back("\n".join(texts))
            case NamedWork.TELL_NO_SESSION:
                where = "your text is back in the prompt; /new begins a session, /sessions chooses one"
                self._host.say(Level.ERROR, "There is no session to send this to", hint=where)
            case NamedWork.TELL_CLOSING:
                now = "opening" if self._state.phase is Phase.OPENING else "closing"
                self._host.hint(f"{now} the session; Ctrl+C twice quits")
            case NamedWork.CLOSE_SESSION:
                self._spawn(self._close())
            case states.Report(error):
                self._host.report(error)
            case states.EndWith(error):
                self._closed.set_result(error)
            case _:
                assert_never(work)

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work)
        self._others.add(task)
        task.add_done_callback(self._others.discard)

    # The work

    async def _open(self, target: "Arguments") -> None:
        self._queued.clear()
        try:
            self.session, self._view = await self._opening(target)
        except SessionUnavailable:
            self._post(State.not_opened)
        except Exception as error:
            self._host.report(error)
            self._post(State.not_opened)
        else:
            self._view.show_waiting(self.session.agent.turns.queued())
            self._post(State.opened)

    def _read(self, outgoing: states.Outgoing) -> None:
        from tui_agent.tui.prompt.mentions import names_pictures

        if names_pictures(outgoing.text):
            self._reader = asyncio.create_task(self._read_pictures(outgoing), name="pictures")
        else:
            self._post(lambda state: state.read(outgoing.number))

    async def _read_pictures(self, outgoing: states.Outgoing) -> None:
        try:
            images = await self._host.pictures(outgoing.text)
        except Exception as error:
            self._host.report(error)
            self._post(lambda state: state.not_sent(outgoing.number))
        else:
            self._post(lambda state: state.read(outgoing.number, images))

    def _show_turn(self, *, runs: bool) -> None:
        if self._view is None:
            return
        if runs:
            self._view.begin()
        else:
            self._view.end()
        self._host.refresh_status()

    def _run(self, outgoing: states.Outgoing, images: "tuple[Image, ...]") -> None:
        if self.session is None or self._view is None:
            raise RuntimeError("a turn without a session")
        self._ran = outgoing
        self._began.clear()
        self._entered.clear()
        self._turn = asyncio.create_task(self._run_turn(self.session, self._view, outgoing, images), name="turn")

    async def _run_turn(
        self, session: "Session", view: "TurnView", outgoing: states.Outgoing, images: "tuple[Image, ...]"
    ) -> None:
        from tui_agent.agent.events import UserMessage

        text = outgoing.shown
        unsent = [text]
        # Entering the conversation may take a while: the model may first be asked for its facts.
        later = asyncio.get_running_loop().call_later(SHOW_WAITING_AFTER_S, self._show_not_entered, text)
        try:
            async with aclosing(session.agent.run(outgoing.text, images, typed=outgoing.typed)) as events:
                async for event in events:
                    self._began.set()
                    if isinstance(event, UserMessage):
                        unsent = []
                        later.cancel()
                        self._show_not_entered("")
                        self._entered.set()
                    view.show(event)
        except Exception as error:
            self._host.report(error)
        finally:
            later.cancel()
            if self.session is session:
                self._show_not_entered("")
                self._began.set()
                self._entered.set()
        if self.session is not session:
            return  # it was released
        try:
            if self._taker is not None and not self._taker.done():
                await asyncio.wait({self._taker})
            unsent = await self._unsent(session, view, text, unsent)
        finally:
            back = tuple(unsent)
            self._post(lambda state: state.turn_ended(back))

    def _show_not_entered(self, text: str) -> None:
        if self._not_entered != text:
            self._not_entered = text
            self._do_or_report(self._show_waiting)

    async def _unsent(self, session: "Session", view: "TurnView", text: str, not_entered: list[str]) -> list[str]:
        """The texts to give back after a turn because no model has seen them; if it was stopped, waiting ones too."""
        waiting = {seq for seq, _ in session.agent.turns.queued()}
        # If a summary was being written just then, the text that started the turn waits in the conversation too.
        began_waiting = bool(waiting - self._queued)
        if not view.interrupted:
            return [] if began_waiting else not_entered
        unsent = [] if view.answered or began_waiting else [text]
        return unsent + [queued for seq in sorted(waiting) if (queued := await self._withdraw(session, seq))]

    async def _take_in(self, outgoing: states.Outgoing, images: "tuple[Image, ...]") -> None:
        from tui_agent.agent.turn.turns import NotRunning

        # The text that started the turn must enter the conversation first.
        await self._entered.wait()
        session = self.session
        if session is None:
            self._post(lambda state: state.no_turn(outgoing.number, images))
            return
        try:
            seq = await session.agent.queue(outgoing.text, images, typed=outgoing.typed)
        except NotRunning:
            self._post(lambda state: state.no_turn(outgoing.number, images))
        except Exception as error:
            self._host.report(error)
            self._post(lambda state: state.not_sent(outgoing.number))
        else:
            self._queued.add(seq)
            # The turn may have taken it into a step already.
            waits = any(seq == waiting for waiting, _ in session.agent.turns.queued())
            self._post(lambda state: state.taken(outgoing.number, seq, waits=waits))

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
            self._host.report(error)

    async def _withdraw_one(self, seq: int) -> None:
        if self.session is not None and (text := await self._withdraw(self.session, seq)):
            self._host.give_back(text)

    async def _withdraw(self, session: "Session", seq: int) -> str:
        try:
            return await session.agent.turns.withdraw(seq)
        except Exception as error:
            self._host.report(error)
            return ""
        finally:
            self.remove(seq)

    async def _close(self) -> None:
        """End whatever is running, the session last; posts that it is closed even if something fails."""
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
        self._post(lambda state: state.closed(error))
