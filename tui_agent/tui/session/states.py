"""What the session behind the screen does next: every state, every message, and what follows, without doing any of it.

`step` is the whole of it: it takes a state and a message and gives the next state with the work to be done.
`conductor.Conductor` does that work, and what comes of it comes back as one more message. Nothing here waits, so a
key is answered in every state.
"""

from enum import Enum
from typing import TYPE_CHECKING, TypeAlias, assert_never

from msgspec import Struct
from msgspec.structs import replace

if TYPE_CHECKING:
    from tui_agent.arguments import Arguments
    from tui_agent.conversation.blocks import Image


class Phase(Enum):
    """Where the session stands."""

    OPENING = "opening"
    VACANT = "vacant"
    """It could not be opened; another one may be."""
    IDLE = "idle"
    PREPARING = "preparing"
    """No turn runs yet: the pictures of the next text are read."""
    RUNNING = "running"
    CLOSING = "closing"
    CLOSED = "closed"


class Outgoing(Struct, frozen=True):
    """A text that was sent and is not in the conversation yet."""

    number: int
    text: str


class State(Struct, frozen=True):
    """`outbox`: sent, the oldest first. `waiting`: in the conversation by number, for the running turn's next step.

    `reading` is the text of the outbox whose pictures are read, `taking` the one the running turn takes in, `ready`
    the pictures of the first one where they were read too late for the turn. `stopping`: the turn was told to end.
    `returning` comes back once the turn has ended, behind what it took in before and gives back itself.
    `next` is what is opened once this session is closed; None: the program ends.
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
        """Whether a turn runs, or is about to."""
        return self.phase in {Phase.PREPARING, Phase.RUNNING}

    @property
    def settled(self) -> bool:
        """Whether there is a session, or none to wait for."""
        return self.phase is not Phase.OPENING and not (self.phase is Phase.CLOSING and self.next is not None)

    @property
    def shown(self) -> tuple[str, ...]:
        """The texts that wait, the newest last."""
        taken = [each.text for each in self.outbox if each.number == self.taking]
        sent = [each.text for each in self.outbox if each.number != self.taking]
        return (*(text for _, text in self.waiting), *taken, *self.returning, *sent)


# What is told


class Send(Struct, frozen=True):
    """The user sent a text."""

    text: str


class Stop(Struct, frozen=True):
    """The user wants the turn stopped; what was not yet said comes back."""


class StopSummary(Struct, frozen=True):
    """The user wants no summary now; the turn that waits for it goes on."""


class TakeBack(Struct, frozen=True):
    """The user wants the newest text that waits back."""


class Prepare(Struct, frozen=True):
    """The user began to write."""


class Switch(Struct, frozen=True):
    """The user wants to go on in another session."""

    target: "Arguments"


class Close(Struct, frozen=True):
    """The program ends."""


class Opened(Struct, frozen=True):
    """The session is there."""


class NotOpened(Struct, frozen=True):
    """There will be no session; the user was told why."""


class Read(Struct, frozen=True):
    """The pictures of a text are there."""

    number: int
    images: "tuple[Image, ...]" = ()


class NotSent(Struct, frozen=True):
    """A text could not be sent; the user was told why."""

    number: int


class Taken(Struct, frozen=True):
    """The running turn took a text in. `waits`: its next step has not come yet."""

    number: int
    seq: int
    waits: bool = True


class NoTurn(Struct, frozen=True):
    """The turn that was to take a text in came to its end in that moment."""

    number: int
    images: "tuple[Image, ...]" = ()


class TurnEnded(Struct, frozen=True):
    """The turn is over; `unsent` are texts that no model has seen, where it was stopped."""

    unsent: tuple[str, ...] = ()


class Waits(Struct, frozen=True):
    """A text waits in the conversation."""

    seq: int
    text: str


class WaitsNoMore(Struct, frozen=True):
    """It was delivered or withdrawn."""

    seq: int


class Moved(Struct, frozen=True):
    """The conversation goes on elsewhere, where only these texts wait."""

    still: frozenset[int]


class Closed(Struct, frozen=True):
    """The session is closed, in order or with an error."""

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

# What is to be done


class OpenSession(Struct, frozen=True):
    """Open it; `Opened` or `NotOpened` follows."""

    target: "Arguments"


class ReadPictures(Struct, frozen=True):
    """Read the pictures a text names; `Read` or `NotSent` follows."""

    outgoing: Outgoing


class StopReading(Struct, frozen=True):
    """Read no further; nothing follows that still counts."""


class ShowTurn(Struct, frozen=True):
    """A turn begins, or is over."""

    runs: bool


class RunTurn(Struct, frozen=True):
    """Run a turn; `TurnEnded` follows."""

    text: str
    images: "tuple[Image, ...]"


class TakeIn(Struct, frozen=True):
    """Have the running turn take a text in; `Taken`, `NoTurn` or `NotSent` follows, before `TurnEnded`."""

    outgoing: Outgoing
    images: "tuple[Image, ...]"


class Interrupt(Struct, frozen=True):
    """Stop the running turn."""


class StopWriting(Struct, frozen=True):
    """Stop the summary that is being written."""


class Withdraw(Struct, frozen=True):
    """Take a text out of the conversation, and give it back."""

    seq: int


class PrepareAhead(Struct, frozen=True):
    """Have done what is due before the next turn."""


class GiveBack(Struct, frozen=True):
    """Put these texts back into the prompt."""

    texts: tuple[str, ...]


class TellNoSession(Struct, frozen=True):
    """Say that there is no session to send to."""


class TellClosing(Struct, frozen=True):
    """Say that there is nothing to stop, for this session is being opened or closed."""


class CloseSession(Struct, frozen=True):
    """End the turn, or the opening, and close the session; `Closed` follows."""


class Report(Struct, frozen=True):
    """Tell of an error."""

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
    """The state after `message`, and what is to be done. A message that no longer counts changes nothing."""
    match message:
        case Send(text):
            return _send(state, text)
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
            return _emptied(replace(state, phase=Phase.VACANT)) if state.phase is Phase.OPENING else (state, ())
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
        case Moved(still):
            gone = tuple(text for seq, text in state.waiting if seq not in still)
            return replace(state, waiting=tuple(each for each in state.waiting if each[0] in still)), _back(gone)
        case Closed(error):
            return _closed(state, error)
    assert_never(message)


def _send(state: State, text: str) -> Next:
    match state.phase:
        case Phase.VACANT:
            return state, (GiveBack((text,)), TellNoSession())
        case Phase.CLOSED:
            return state, (GiveBack((text,)),)
        case Phase.CLOSING if state.next is None:
            return state, (GiveBack((text,)),)
        case Phase.OPENING | Phase.CLOSING | Phase.IDLE | Phase.PREPARING | Phase.RUNNING:
            number = state.sent + 1
            state = replace(state, sent=number, outbox=(*state.outbox, Outgoing(number, text)))
            return _go_on(state) if state.phase is Phase.IDLE else _read_next(state)
    assert_never(state.phase)


def _stop(state: State) -> Next:
    match state.phase:
        case Phase.OPENING | Phase.CLOSING:
            state, work = _emptied(state)
            return state, (*work, TellClosing())
        case Phase.IDLE:
            return state, (StopWriting(),)
        case Phase.PREPARING:
            state, work = _emptied(replace(state, phase=Phase.IDLE))
            return state, (*work, ShowTurn(runs=False))
        case Phase.RUNNING:
            state, work = _emptied(replace(state, stopping=True))
            return state, (*work, Interrupt())
        case Phase.VACANT | Phase.CLOSED:
            return state, ()
    assert_never(state.phase)


def _take_back(state: State) -> Next:
    newest = state.outbox[-1] if state.outbox else None
    if newest is not None and newest.number != state.taking:
        stopped = (StopReading(),) if newest.number == state.reading else ()
        work: tuple[Work, ...] = (*stopped, GiveBack((newest.text,)))
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
            # Who wants to leave the program does not want to go on elsewhere.
            state = replace(state, next=target if state.next is not None else None)
            return _emptied(state) if state.next is None else (state, ())
        case Phase.CLOSED:
            return state, ()
        case Phase.OPENING | Phase.VACANT | Phase.IDLE | Phase.PREPARING | Phase.RUNNING:
            shown = (ShowTurn(runs=False),) if state.phase is Phase.PREPARING else ()
            state, work = _emptied(state)
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
    text = next((each.text for each in state.outbox if each.number == number), None)
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
    text = state.outbox[0].text
    state = _without(state, number)
    return _read_next(_waits(state, seq, text) if waits else state)


def _no_turn(state: State, number: int, images: "tuple[Image, ...]") -> Next:
    if number != state.taking:
        return state, ()
    if state.stopping or not state.busy:
        return _not_sent(state, number)
    # Its turn comes once this one is put away.
    return replace(state, taking=0, ready=images), ()


def _turn_ended(state: State, unsent: tuple[str, ...]) -> Next:
    if state.phase not in {Phase.CLOSING, Phase.RUNNING}:
        return state, ()
    back, state = _back((*unsent, *state.returning)), replace(state, returning=())
    if state.phase is Phase.CLOSING:
        return state, (*back, ShowTurn(runs=False))
    state, work = _go_on(replace(state, phase=Phase.IDLE, stopping=False))
    return state, (ShowTurn(runs=False), *back, *work)


def _closed(state: State, error: Exception | None) -> Next:
    if state.phase is not Phase.CLOSING:
        return state, ()
    back = _back(state.returning)
    if state.next is None:
        return State(Phase.CLOSED, state.sent), back
    told = () if error is None else (Report(error),)
    return State(Phase.OPENING, state.sent, state.outbox), (*back, OpenSession(state.next), *told)


def _go_on(state: State) -> Next:
    """From here a turn begins where something was sent."""
    if not state.outbox:
        return state, ()
    if state.ready is not None:
        state, work = _run(state, state.outbox[0], state.ready)
    else:
        state, work = _read_next(replace(state, phase=Phase.PREPARING))
    return state, (ShowTurn(runs=True), *work)


def _run(state: State, first: Outgoing, images: "tuple[Image, ...]") -> Next:
    state, work = _read_next(replace(_without(state, first.number), phase=Phase.RUNNING))
    return state, (RunTurn(first.text, images), *work)


def _read_next(state: State) -> Next:
    """Read the pictures of the first text, where none are read already: one text after the other keeps their order."""
    at_work = state.reading or state.taking or state.ready is not None or state.stopping
    if not state.busy or at_work or not state.outbox:
        return state, ()
    first = state.outbox[0]
    return replace(state, reading=first.number), (ReadPictures(first),)


def _emptied(state: State) -> Next:
    """What was sent and is not in the conversation comes back, but for what the turn is taking in just now.

    Texts come back in the order they were sent in: these only behind what the turn still has.
    """
    texts = tuple(each.text for each in state.outbox if each.number != state.taking)
    stopped = (StopReading(),) if state.reading else ()
    kept = tuple(each for each in state.outbox if each.number == state.taking)
    state = replace(state, outbox=kept, reading=0, ready=None)
    if state.taking or (state.phase is Phase.RUNNING and state.waiting):
        return replace(state, returning=(*state.returning, *texts)), stopped
    return state, (*stopped, *_back(texts))


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


def _back(texts: tuple[str, ...]) -> tuple[Work, ...]:
    return (GiveBack(texts),) if texts else ()
