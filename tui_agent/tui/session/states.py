"""The state machine of the session behind the screen: its states, messages and work, as pure functions.

`step` takes a state and a message and returns the next state with the work to do. `conductor.Conductor` does the work
and posts its outcome as another message. Nothing here waits, so keys are handled in every state.
"""

from enum import Enum
from typing import TYPE_CHECKING, TypeAlias, assert_never

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


class State(Struct, frozen=True):
    """The whole state.

    sent: how many texts were sent so far.
    outbox: texts that are not in the conversation yet, oldest first.
    waiting: texts in the conversation, with their entry numbers, that wait for the running turn's next step.
    reading: the number of the outbox text whose pictures are being read; 0: none.
    taking: the number of the outbox text that the running turn is taking in; 0: none.
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


# Messages


class Send(Struct, frozen=True):
    """The user sent a text; `typed`: see `Outgoing`."""

    text: str
    typed: str = ""


class Stop(Struct, frozen=True):
    """The user wants the turn stopped, and unsent texts back."""


class StopSummary(Struct, frozen=True):
    """The user wants the summary stopped; the turn that waits for it goes on."""


class TakeBack(Struct, frozen=True):
    """The user wants the newest waiting text back."""


class Prepare(Struct, frozen=True):
    """The user started to write."""


class Switch(Struct, frozen=True):
    """The user wants to switch to another session."""

    target: "Arguments"


class Close(Struct, frozen=True):
    """The program ends."""


class Opened(Struct, frozen=True):
    """The session is open."""


class NotOpened(Struct, frozen=True):
    """The session could not be opened; the user was told why."""


class Read(Struct, frozen=True):
    """The pictures of a text were read."""

    number: int
    images: "tuple[Image, ...]" = ()


class NotSent(Struct, frozen=True):
    """A text could not be sent; the user was told why."""

    number: int


class Taken(Struct, frozen=True):
    """The running turn took in a text as entry `seq`. `waits`: it is for the next step, which has not begun."""

    number: int
    seq: int
    waits: bool = True


class NoTurn(Struct, frozen=True):
    """The turn ended before it could take in a text."""

    number: int
    images: "tuple[Image, ...]" = ()


class TurnEnded(Struct, frozen=True):
    """The turn has ended. `unsent`: texts to give back because no model has seen them."""

    unsent: tuple[str, ...] = ()


class Waits(Struct, frozen=True):
    """A text in the conversation waits for the next step."""

    seq: int
    text: str


class WaitsNoMore(Struct, frozen=True):
    """A waiting text was delivered or withdrawn."""

    seq: int


class Moved(Struct, frozen=True):
    """The branch was changed; on the new one only the texts `still` wait. `gives_back`: the others go to the prompt."""

    still: frozenset[int]
    gives_back: bool = True


class Closed(Struct, frozen=True):
    """The session is closed, cleanly or with an error."""

    error: Exception | None = None


Inbound: TypeAlias = (
    Send
    | Stop
    | StopSummary
    | TakeBack
    | Prepare
    | Switch
    | Close
    | Opened
    | NotOpened
    | Read
    | NotSent
    | Taken
    | NoTurn
    | TurnEnded
    | Waits
    | WaitsNoMore
    | Moved
    | Closed
)

# Work


class OpenSession(Struct, frozen=True):
    """Open a session; `Opened` or `NotOpened` follows."""

    target: "Arguments"


class ReadPictures(Struct, frozen=True):
    """Read the pictures a text names; `Read` or `NotSent` follows."""

    outgoing: Outgoing


class StopReading(Struct, frozen=True):
    """Stop reading pictures; a `Read` that follows all the same is ignored."""


class ShowTurn(Struct, frozen=True):
    """Show that a turn begins or has ended."""

    runs: bool


class RunTurn(Struct, frozen=True):
    """Run a turn with this text; `TurnEnded` follows."""

    outgoing: Outgoing
    images: "tuple[Image, ...]"


class TakeIn(Struct, frozen=True):
    """Give a text to the running turn; `Taken`, `NoTurn` or `NotSent` follows, before `TurnEnded`."""

    outgoing: Outgoing
    images: "tuple[Image, ...]"


class Interrupt(Struct, frozen=True):
    """Stop the running turn."""


class StopWriting(Struct, frozen=True):
    """Stop the summary that is being written."""


class Withdraw(Struct, frozen=True):
    """Take a waiting text out of the conversation and put it back into the prompt."""

    seq: int


class PrepareAhead(Struct, frozen=True):
    """Do the context work that is due before the next turn."""


class GiveBack(Struct, frozen=True):
    """Put these texts back into the prompt."""

    texts: tuple[str, ...]


class TellNoSession(Struct, frozen=True):
    """Tell the user that there is no session to send to."""


class TellClosing(Struct, frozen=True):
    """Tell the user that nothing can be stopped because the session is being opened or closed."""


class CloseSession(Struct, frozen=True):
    """End the turn, or the opening, and close the session; `Closed` follows."""


class Report(Struct, frozen=True):
    """Show an error."""

    error: Exception


Work: TypeAlias = (
    OpenSession
    | ReadPictures
    | StopReading
    | ShowTurn
    | RunTurn
    | TakeIn
    | Interrupt
    | StopWriting
    | Withdraw
    | PrepareAhead
    | GiveBack
    | TellNoSession
    | TellClosing
    | CloseSession
    | Report
)
Next: TypeAlias = tuple[State, tuple[Work, ...]]


def step(state: State, message: Inbound) -> Next:
    """The state after `message`, and the work to do. A message that is out of date changes nothing."""
    match message:
        case Send():
            return _send(state, Outgoing(state.sent + 1, message.text, message.typed))
        case Stop():
            return _stop(state)
        case StopSummary():
            return state, (StopWriting(),)
        case TakeBack():
            return _take_back(state)
        case Prepare():
            return state, (PrepareAhead(),) if state.phase is Phase.IDLE else ()
        case Switch(target):
            return _leave(state, target)
        case Close():
            return _leave(state, None)
        case Opened():
            return _go_on(replace(state, phase=Phase.IDLE)) if state.phase is Phase.OPENING else (state, ())
        case NotOpened():
            return _outbox_returned(replace(state, phase=Phase.VACANT)) if state.phase is Phase.OPENING else (state, ())
        case Read(number, images):
            return _read(state, number, images)
        case NotSent(number):
            return _not_sent(state, number)
        case Taken(number, seq, waits):
            return _taken(state, number, seq, waits=waits)
        case NoTurn(number, images):
            return _no_turn(state, number, images)
        case TurnEnded(unsent):
            return _turn_ended(state, unsent)
        case Waits(seq, text):
            return _waits(state, seq, text), ()
        case WaitsNoMore(seq):
            return replace(state, waiting=tuple(each for each in state.waiting if each[0] != seq)), ()
        case Moved(still, gives_back):
            gone = tuple(text for seq, text in state.waiting if seq not in still) if gives_back else ()
            return replace(state, waiting=tuple(each for each in state.waiting if each[0] in still)), _give_back(gone)
        case Closed(error):
            return _closed(state, error)
    assert_never(message)


def _send(state: State, outgoing: Outgoing) -> Next:
    match state.phase:
        case Phase.VACANT:
            return state, (GiveBack((outgoing.shown,)), TellNoSession())
        case Phase.CLOSED:
            return state, (GiveBack((outgoing.shown,)),)
        case Phase.CLOSING if state.next is None:
            return state, (GiveBack((outgoing.shown,)),)
        case Phase.OPENING | Phase.CLOSING | Phase.IDLE | Phase.PREPARING | Phase.RUNNING:
            state = replace(state, sent=outgoing.number, outbox=(*state.outbox, outgoing))
            return _go_on(state) if state.phase is Phase.IDLE else _read_next(state)
    assert_never(state.phase)


def _stop(state: State) -> Next:
    match state.phase:
        case Phase.OPENING | Phase.CLOSING:
            state, work = _outbox_returned(state)
            return state, (*work, TellClosing())
        case Phase.IDLE:
            return state, (StopWriting(),)
        case Phase.PREPARING:
            state, work = _outbox_returned(replace(state, phase=Phase.IDLE))
            return state, (*work, ShowTurn(runs=False))
        case Phase.RUNNING:
            state, work = _outbox_returned(replace(state, stopping=True))
            return state, (*work, Interrupt())
        case Phase.VACANT | Phase.CLOSED:
            return state, ()
    assert_never(state.phase)


def _take_back(state: State) -> Next:
    newest = state.outbox[-1] if state.outbox else None
    if newest is not None and newest.number != state.taking:
        stopped = (StopReading(),) if newest.number == state.reading else ()
        work: tuple[Work, ...] = (*stopped, GiveBack((newest.shown,)))
        state = _without(state, newest.number)
        if state.phase is Phase.PREPARING and not state.outbox:
            return replace(state, phase=Phase.IDLE), (*work, ShowTurn(runs=False))
        return state, work
    if newest is None and state.waiting and state.phase in {Phase.IDLE, Phase.PREPARING, Phase.RUNNING}:
        return state, (Withdraw(max(seq for seq, _ in state.waiting)),)
    return state, ()


def _leave(state: State, target: "Arguments | None") -> Next:
    match state.phase:
        case Phase.CLOSING:
            # Quitting wins over a wish to switch, whichever came first.
            state = replace(state, next=target if state.next is not None else None)
            return _outbox_returned(state) if state.next is None else (state, ())
        case Phase.CLOSED:
            return state, ()
        case Phase.OPENING | Phase.VACANT | Phase.IDLE | Phase.PREPARING | Phase.RUNNING:
            shown = (ShowTurn(runs=False),) if state.phase is Phase.PREPARING else ()
            state, work = _outbox_returned(state)
            return replace(state, phase=Phase.CLOSING, next=target), (*work, *shown, CloseSession())
    assert_never(state.phase)


def _read(state: State, number: int, images: "tuple[Image, ...]") -> Next:
    if number != state.reading:
        return state, ()
    first = state.outbox[0]
    if state.phase is Phase.PREPARING:
        return _run(state, first, images)
    return replace(state, reading=0, taking=number), (TakeIn(first, images),)


def _not_sent(state: State, number: int) -> Next:
    text = next((each.shown for each in state.outbox if each.number == number), None)
    if text is None:
        return state, ()
    state = _without(state, number)
    back: tuple[Work, ...] = (GiveBack((text,)),)
    if state.phase is Phase.PREPARING and not state.outbox:
        return replace(state, phase=Phase.IDLE), (*back, ShowTurn(runs=False))
    state, work = _read_next(state)
    return state, (*back, *work)


def _taken(state: State, number: int, seq: int, *, waits: bool) -> Next:
    if number != state.taking:
        return state, ()
    text = state.outbox[0].shown
    state = _without(state, number)
    return _read_next(_waits(state, seq, text) if waits else state)


def _no_turn(state: State, number: int, images: "tuple[Image, ...]") -> Next:
    if number != state.taking:
        return state, ()
    if state.stopping or not state.busy:
        return _not_sent(state, number)
    # It starts the next turn once this one has ended.
    return replace(state, taking=0, ready=images), ()


def _turn_ended(state: State, unsent: tuple[str, ...]) -> Next:
    if state.phase not in {Phase.CLOSING, Phase.RUNNING}:
        return state, ()
    back, state = _give_back((*unsent, *state.returning)), replace(state, returning=())
    if state.phase is Phase.CLOSING:
        return state, (*back, ShowTurn(runs=False))
    state, work = _go_on(replace(state, phase=Phase.IDLE, stopping=False))
    return state, (ShowTurn(runs=False), *back, *work)


def _closed(state: State, error: Exception | None) -> Next:
    if state.phase is not Phase.CLOSING:
        return state, ()
    back = _give_back(state.returning)
    if state.next is None:
        return State(Phase.CLOSED, state.sent), back
    told = () if error is None else (Report(error),)
    return State(Phase.OPENING, state.sent, state.outbox), (*back, OpenSession(state.next), *told)


def _go_on(state: State) -> Next:
    """Start a turn if something was sent."""
    if not state.outbox:
        return state, ()
    if state.ready is not None:
        state, work = _run(state, state.outbox[0], state.ready)
    else:
        state, work = _read_next(replace(state, phase=Phase.PREPARING))
    return state, (ShowTurn(runs=True), *work)


def _run(state: State, first: Outgoing, images: "tuple[Image, ...]") -> Next:
    state, work = _read_next(replace(_without(state, first.number), phase=Phase.RUNNING))
    return state, (RunTurn(first, images), *work)


def _read_next(state: State) -> Next:
    """Read the pictures of the first text unless some are being read: one at a time keeps the texts in order."""
    at_work = state.reading or state.taking or state.ready is not None or state.stopping
    if not state.busy or at_work or not state.outbox:
        return state, ()
    first = state.outbox[0]
    return replace(state, reading=first.number), (ReadPictures(first),)


def _outbox_returned(state: State) -> Next:
    """Give the outbox back, except for a text that the turn is just taking in.

    Texts come back in the order they were sent, so while a turn has earlier ones these wait in `returning`.
    """
    texts = tuple(each.shown for each in state.outbox if each.number != state.taking)
    stopped = (StopReading(),) if state.reading else ()
    kept = tuple(each for each in state.outbox if each.number == state.taking)
    state = replace(state, outbox=kept, reading=0, ready=None)
    if state.taking or (state.phase is Phase.RUNNING and state.waiting):
        return replace(state, returning=(*state.returning, *texts)), stopped
    return state, (*stopped, *_give_back(texts))


def _without(state: State, number: int) -> State:
    return replace(
        state,
        outbox=tuple(each for each in state.outbox if each.number != number),
        reading=0 if state.reading == number else state.reading,
        taking=0 if state.taking == number else state.taking,
        ready=None if state.outbox and state.outbox[0].number == number else state.ready,
    )


def _waits(state: State, seq: int, text: str) -> State:
    others = (each for each in state.waiting if each[0] != seq)
    return replace(state, waiting=(*others, (seq, text)))


def _give_back(texts: tuple[str, ...]) -> tuple[Work, ...]:
    return (GiveBack(texts),) if texts else ()
