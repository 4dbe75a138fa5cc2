"""The state machine of the session behind the screen, as pure functions.

`State` has a method for each thing that can happen; it returns the next state with the work to do, and changes nothing
where the news is out of date. `conductor.Conductor` does the work and tells its outcome to another method. Nothing here
waits, so keys are handled in every state.
"""

from enum import Enum
from typing import TYPE_CHECKING, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

if TYPE_CHECKING:
    from tui_agent.arguments import Arguments
    from tui_agent.conversation.blocks import Image


class Phase(Enum):
    """The phase of a session's life."""

    OPENING = "opening"
    VACANT = "vacant"
    """The session could not be opened; the user may open another one."""
    IDLE = "idle"
    PREPARING = "preparing"
    """A turn is about to start: the pictures of its text are being read."""
    RUNNING = "running"
    CLOSING = "closing"
    CLOSED = "closed"


class Outgoing(Struct, frozen=True):
    """A text that was sent but is not in the conversation yet. `number` counts the sent texts from 1; `typed` is what
    the user typed, if that is not the text.
    """

    number: int
    text: str
    typed: str = ""

    @property
    def shown(self) -> str:
        """What the user typed."""
        return self.typed or self.text


# Work


class NamedWork(Enum):
    """Work that needs nothing but to be named."""

    SHOW_TURN = "show that a turn begins"
    SHOW_NO_TURN = "show that a turn has ended"
    STOP_READING = "stop reading pictures; a `read` that follows all the same is ignored"
    INTERRUPT = "stop the running turn"
    STOP_WRITING = "stop the summary that is being written"
    PREPARE_AHEAD = "do the context work that is due before the next turn"
    TELL_NO_SESSION = "tell the user that there is no session to send to"
    TELL_CLOSING = "tell the user that nothing can be stopped because the session is being opened or closed"
    CLOSE_SESSION = "end the turn, or the opening, and close the session; `closed` follows"


class OpenSession(Struct, frozen=True):
    """Open a session; `opened` or `not_opened` follows."""

    target: "Arguments"


class ReadPictures(Struct, frozen=True):
    """Read the pictures a text names; `read` or `not_sent` follows."""

    outgoing: Outgoing


class RunTurn(Struct, frozen=True):
    """Run a turn with this text; `turn_ended` follows."""

    outgoing: Outgoing
    images: "tuple[Image, ...]"


class DeliverToTurn(Struct, frozen=True):
    """Give a text to the running turn; `taken`, `no_turn` or `not_sent` follows, before `turn_ended`."""

    outgoing: Outgoing
    images: "tuple[Image, ...]"


class Withdraw(Struct, frozen=True):
    """Take a waiting text out of the conversation and put it back into the prompt."""

    seq: int


class ReturnToPrompt(Struct, frozen=True):
    """Put these texts back into the prompt."""

    texts: tuple[str, ...]


class Report(Struct, frozen=True):
    """Show an error."""

    error: Exception


class EndWith(Struct, frozen=True):
    """Nothing opens any more: let everybody who waits for the end go on, with the error of closing."""

    error: Exception | None


Work: TypeAlias = (
    NamedWork | OpenSession | ReadPictures | RunTurn | DeliverToTurn | Withdraw | ReturnToPrompt | Report | EndWith
)
Next: TypeAlias = "tuple[State, tuple[Work, ...]]"


class State(Struct, frozen=True):
    """The whole state.

    sent: how many texts were sent so far.
    outbox: texts that are not in the conversation yet, oldest first.
    waiting: texts in the conversation, with their entry numbers, that wait for the running turn's next step.
    reading: the number of the outbox text whose pictures are being read; 0: none.
    taking: the number of the outbox text that the running turn is taking in; 0: none.
    wanted_back: the user wants that text back as soon as it is taken in.
    ready: the pictures of the first outbox text, if they were read too late for the turn.
    stopping: the turn was told to end.
    returning: texts to give back once the turn has ended, after those that the turn itself gives back.
    next: the session to open once this one is closed; None: the program ends.
    """

    phase: Phase = Phase.OPENING
    sent: int = 0
    outbox: tuple[Outgoing, ...] = ()
    waiting: tuple[tuple[int, str], ...] = ()
    reading: int = 0
    taking: int = 0
    wanted_back: bool = False
    ready: "tuple[Image, ...] | None" = None
    stopping: bool = False
    returning: tuple[str, ...] = ()
    next: "Arguments | None" = None

    @property
    def busy(self) -> bool:
        """Whether a turn is running or about to start."""
        return self.phase in {Phase.PREPARING, Phase.RUNNING}

    @property
    def settled(self) -> bool:
        """Whether opening has finished, with or without a session."""
        return self.phase is not Phase.OPENING and not (self.phase is Phase.CLOSING and self.next is not None)

    @property
    def shown(self) -> tuple[str, ...]:
        """The texts shown as waiting, newest last."""
        taken = [each.shown for each in self.outbox if each.number == self.taking]
        sent = [each.shown for each in self.outbox if each.number != self.taking]
        return (*(text for _, text in self.waiting), *taken, *self.returning, *sent)

    # What the user wants

    def send(self, text: str, typed: str = "") -> Next:
        """The user sent a text; `typed`: see `Outgoing`."""
        outgoing = Outgoing(self.sent + 1, text, typed)
        ends = self.phase is Phase.CLOSED or (self.phase is Phase.CLOSING and self.next is None)
        if ends or self.phase is Phase.VACANT:
            return self, (ReturnToPrompt((outgoing.shown,)), *(() if ends else (NamedWork.TELL_NO_SESSION,)))
        state = replace(self, sent=outgoing.number, outbox=(*self.outbox, outgoing))
        return state._go_on() if state.phase is Phase.IDLE else state._read_next()

    def stop(self) -> Next:
        """The user wants the turn stopped, and unsent texts back."""
        match self.phase:
            case Phase.IDLE:
                return self, (NamedWork.STOP_WRITING,)
            case Phase.VACANT | Phase.CLOSED:
                return self, ()
            case Phase.OPENING | Phase.CLOSING:
                state, then = self, NamedWork.TELL_CLOSING
            case Phase.PREPARING:
                state, then = replace(self, phase=Phase.IDLE), NamedWork.SHOW_NO_TURN
            case Phase.RUNNING:
                state, then = replace(self, stopping=True), NamedWork.INTERRUPT
        state, work = state._outbox_returned()
        return state, (*work, then)

    def take_back(self) -> Next:
        """The user wants the newest waiting text back."""
        newest = self.outbox[-1] if self.outbox else None
        if newest is not None:
            if newest.number == self.taking:
                return replace(self, wanted_back=True), ()
            stopped = (NamedWork.STOP_READING,) if newest.number == self.reading else ()
            state, ended = self._without(newest.number)._unless_empty()
            return state, (*stopped, ReturnToPrompt((newest.shown,)), *ended)
        if self.waiting and (self.busy or self.phase is Phase.IDLE):
            return self, (Withdraw(max(seq for seq, _ in self.waiting)),)
        return self, ()

    def prepare(self) -> Next:
        """The user started to write."""
        return self, (NamedWork.PREPARE_AHEAD,) if self.phase is Phase.IDLE else ()

    def leave(self, target: "Arguments | None") -> Next:
        """The user wants to switch to another session; None: the program ends."""
        if self.phase is Phase.CLOSED:
            return self, ()
        if self.phase is Phase.CLOSING:
            # Quitting wins over a wish to switch, whichever came first.
            state = replace(self, next=target if self.next is not None else None)
            return state._outbox_returned() if state.next is None else (state, ())
        shown = (NamedWork.SHOW_NO_TURN,) if self.phase is Phase.PREPARING else ()
        state, work = self._outbox_returned()
        return replace(state, phase=Phase.CLOSING, next=target), (*work, *shown, NamedWork.CLOSE_SESSION)

    def released(self, target: "Arguments") -> Next:
        """The session goes on elsewhere, with its turn and what waits in its conversation; another one is opened."""
        texts = tuple(each.shown for each in self.outbox if each.number != self.taking)
        stopped = (NamedWork.STOP_READING,) if self.reading else ()
        return State(Phase.OPENING, self.sent), (*stopped, *_give_back((*self.returning, *texts)), OpenSession(target))

    # How the work came out

    def opened(self) -> Next:
        """The session is open."""
        return replace(self, phase=Phase.IDLE)._go_on() if self.phase is Phase.OPENING else (self, ())

    def not_opened(self) -> Next:
        """The session could not be opened; the user was told why."""
        return replace(self, phase=Phase.VACANT)._outbox_returned() if self.phase is Phase.OPENING else (self, ())

    def read(self, number: int, images: "tuple[Image, ...]" = ()) -> Next:
        """The pictures of a text were read."""
        if number != self.reading:
            return self, ()
        first = self.outbox[0]
        if self.phase is Phase.PREPARING:
            return self._run(first, images)
        return replace(self, reading=0, taking=number), (DeliverToTurn(first, images),)

    def not_sent(self, number: int) -> Next:
        """A text could not be sent; the user was told why."""
        text = next((each.shown for each in self.outbox if each.number == number), None)
        if text is None:
            return self, ()
        state, ended = self._without(number)._unless_empty()
        state, work = state._read_next()
        return state, (ReturnToPrompt((text,)), *ended, *work)

    def taken(self, number: int, seq: int, *, waits: bool = True) -> Next:
        """The running turn took in a text as entry `seq`. `waits`: it is for the next step, which has not begun."""
        if number != self.taking:
            return self, ()
        state = self._without(number)
        state, work = (state.waits(seq, self.outbox[0].shown)[0] if waits else state)._read_next()
        return state, (*((Withdraw(seq),) if waits and self.wanted_back else ()), *work)

    def no_turn(self, number: int, images: "tuple[Image, ...]" = ()) -> Next:
        """The turn ended before it could take in a text."""
        if number != self.taking:
            return self, ()
        if self.stopping or self.wanted_back or not self.busy:
            return self.not_sent(number)
        # It starts the next turn once this one has ended.
        return replace(self, taking=0, ready=images), ()

    def turn_ended(self, unsent: tuple[str, ...] = ()) -> Next:
        """The turn has ended. `unsent`: texts to give back because no model has seen them."""
        if self.phase not in {Phase.CLOSING, Phase.RUNNING}:
            return self, ()
        back, state = _give_back((*unsent, *self.returning)), replace(self, returning=())
        if self.phase is Phase.CLOSING:
            return state, (*back, NamedWork.SHOW_NO_TURN)
        state, work = replace(state, phase=Phase.IDLE, stopping=False)._go_on()
        return state, (NamedWork.SHOW_NO_TURN, *back, *work)

    def waits(self, seq: int, text: str) -> Next:
        """A text in the conversation waits for the next step."""
        others = (each for each in self.waiting if each[0] != seq)
        return replace(self, waiting=(*others, (seq, text))), ()

    def waits_no_more(self, seq: int) -> Next:
        """A waiting text was delivered or withdrawn."""
        return replace(self, waiting=tuple(each for each in self.waiting if each[0] != seq)), ()

    def moved(self, still: frozenset[int], *, gives_back: bool = True) -> Next:
        """The branch was changed; on the new one only the texts `still` wait. `gives_back`: the others go to the
        prompt.
        """
        gone = tuple(text for seq, text in self.waiting if seq not in still) if gives_back else ()
        return replace(self, waiting=tuple(each for each in self.waiting if each[0] in still)), _give_back(gone)

    def closed(self, error: Exception | None = None) -> Next:
        """The session is closed, cleanly or with an error."""
        if self.phase is not Phase.CLOSING:
            return self, ()
        back = _give_back(self.returning)
        if self.next is None:
            return State(Phase.CLOSED, self.sent), (*back, EndWith(error))
        reports = () if error is None else (Report(error),)
        return State(Phase.OPENING, self.sent, self.outbox), (*back, OpenSession(self.next), *reports)

    # Steps of several of these

    def _go_on(self) -> Next:
        """Start a turn if something was sent."""
        if not self.outbox:
            return self, ()
        if self.ready is not None:
            state, work = self._run(self.outbox[0], self.ready)
        else:
            state, work = replace(self, phase=Phase.PREPARING)._read_next()
        return state, (NamedWork.SHOW_TURN, *work)

    def _run(self, first: Outgoing, images: "tuple[Image, ...]") -> Next:
        state, work = replace(self._without(first.number), phase=Phase.RUNNING)._read_next()
        return state, (RunTurn(first, images), *work)

    def _read_next(self) -> Next:
        """Read the pictures of the first text unless some are being read: one at a time keeps the texts in order."""
        at_work = self.reading or self.taking or self.ready is not None or self.stopping
        if not self.busy or at_work or not self.outbox:
            return self, ()
        first = self.outbox[0]
        return replace(self, reading=first.number), (ReadPictures(first),)

    def _unless_empty(self) -> Next:
        """Give up the turn that was about to start if its text is gone and no other follows."""
        if self.phase is Phase.PREPARING and not self.outbox:
            return replace(self, phase=Phase.IDLE), (NamedWork.SHOW_NO_TURN,)
        return self, ()

    def _outbox_returned(self) -> Next:
        """Give the outbox back, except for a text that the turn is just taking in.

        Texts come back in the order they were sent, so while a turn has earlier ones these wait in `returning`.
        """
        texts = tuple(each.shown for each in self.outbox if each.number != self.taking)
        stopped = (NamedWork.STOP_READING,) if self.reading else ()
        kept = tuple(each for each in self.outbox if each.number == self.taking)
        state = replace(self, outbox=kept, reading=0, ready=None)
        if self.taking or (self.phase is Phase.RUNNING and self.waiting):
            return replace(state, returning=(*self.returning, *texts)), stopped
        return state, (*stopped, *_give_back(texts))

    def _without(self, number: int) -> "State":
        return replace(
            self,
            outbox=tuple(each for each in self.outbox if each.number != number),
            reading=0 if self.reading == number else self.reading,
            taking=0 if self.taking == number else self.taking,
            wanted_back=self.wanted_back and self.taking != number,
            ready=None if self.outbox and self.outbox[0].number == number else self.ready,
        )


def _give_back(texts: tuple[str, ...]) -> tuple[Work, ...]:
    return (ReturnToPrompt(texts),) if texts else ()
