"""The session behind the screen as a state machine: every state with every message."""

from collections import Counter
from collections.abc import Callable
from operator import methodcaller
from pathlib import Path
from random import Random
from typing import Final, TypeAlias

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tui_agent.arguments import Arguments
from tui_agent.conversation.blocks import Image
from tui_agent.tui.session.states import (
    DeliverToTurn,
    EndWith,
    NamedWork,
    Next,
    OpenSession,
    Outgoing,
    Phase,
    ReadPictures,
    Report,
    ReturnToPrompt,
    RunTurn,
    State,
    Withdraw,
    Work,
)

Message: TypeAlias = Callable[[State], Next]
HERE: Final = Arguments(folder=Path("/p"), home=Path("/h"), project=Path("/p"))
THERE: Final = Arguments(folder=Path("/p"), home=Path("/h"), project=Path("/p"), resume="20260101-000000-abcd")
A, B, C = Outgoing(1, "a"), Outgoing(2, "b"), Outgoing(3, "c")
PICTURE: Final = Image("image/png", "AA==")
ERROR: Final = OSError("no room")

IN: Final = {
    "opening": State(Phase.OPENING, 1, (A,)),
    "vacant": State(Phase.VACANT, 1),
    "idle": State(Phase.IDLE, 1),
    "preparing": State(Phase.PREPARING, 2, (A, B), reading=1),
    "running": State(Phase.RUNNING, 3, (B, C), ((7, "waits"),), reading=2),
    "taking": State(Phase.RUNNING, 3, (B, C), ((7, "waits"),), taking=2),
    "late": State(Phase.RUNNING, 2, (B,), ready=(PICTURE,)),
    "stopping": State(Phase.RUNNING, 2, (B,), stopping=True),
    "switching": State(Phase.CLOSING, 1, (A,), next=THERE),
    "closing": State(Phase.CLOSING, 1),
    "closed": State(Phase.CLOSED, 1),
}
"""One of each kind of state; `running` is named by what the turn does with a text that was sent meanwhile."""

CLOSE: Final[Message] = methodcaller("leave", None)
SWITCH: Final[Message] = methodcaller("leave", THERE)
AWAY: Final = (NamedWork.SHOW_NO_TURN,)


def phases(message: Message) -> dict[str, Phase]:
    return {name: message(state)[0].phase for name, state in IN.items()}


def work(message: Message) -> dict[str, tuple[Work, ...]]:
    return {name: done for name, state in IN.items() if (done := message(state)[1])}


def staying(**others: Phase) -> dict[str, Phase]:
    return {name: state.phase for name, state in IN.items()} | others


def test_a_text_is_sent_waits_or_comes_back() -> None:
    assert phases(lambda state: state.send("x")) == staying(idle=Phase.PREPARING)
    assert work(lambda state: state.send("x")) == {
        "vacant": (ReturnToPrompt(("x",)), NamedWork.TELL_NO_SESSION),
        "idle": (NamedWork.SHOW_TURN, ReadPictures(Outgoing(2, "x"))),
        "closing": (ReturnToPrompt(("x",)),),
        "closed": (ReturnToPrompt(("x",)),),
    }
    waits = {name for name, state in IN.items() if "x" in state.send("x")[0].shown}
    assert waits == {"opening", "idle", "preparing", "running", "taking", "late", "stopping", "switching"}


def test_stop_gives_back_what_was_not_said() -> None:
    assert phases(State.stop) == staying(preparing=Phase.IDLE)
    assert work(State.stop) == {
        "opening": (ReturnToPrompt(("a",)), NamedWork.TELL_CLOSING),
        "idle": (NamedWork.STOP_WRITING,),
        "preparing": (NamedWork.STOP_READING, ReturnToPrompt(("a", "b")), *AWAY),
        "running": (NamedWork.STOP_READING, NamedWork.INTERRUPT),
        "taking": (NamedWork.INTERRUPT,),
        "late": (ReturnToPrompt(("b",)), NamedWork.INTERRUPT),
        "stopping": (ReturnToPrompt(("b",)), NamedWork.INTERRUPT),
        "switching": (ReturnToPrompt(("a",)), NamedWork.TELL_CLOSING),
        "closing": (NamedWork.TELL_CLOSING,),
    }


@pytest.mark.parametrize("message", [State.stop, CLOSE, SWITCH])
def test_texts_come_back_in_the_order_they_were_sent_in(message: Message) -> None:
    """First what the turn took in, which only its end gives back."""
    for name, texts in (("running", ("b", "c")), ("taking", ("c",))):
        stopped = message(IN[name])[0]
        assert (stopped.returning, stopped.shown) == (texts, ("waits", "b", "c"))
        ended, done = stopped.turn_ended(("waits",))
        assert ReturnToPrompt(("waits", *texts)) in done
        assert ended.returning == ()
        assert replace(stopped, phase=Phase.CLOSING).closed()[1][0] == ReturnToPrompt(texts)


def test_the_newest_text_can_be_had_back() -> None:
    assert phases(State.take_back) == staying()
    assert work(State.take_back) == {
        "opening": (ReturnToPrompt(("a",)),),
        "preparing": (ReturnToPrompt(("b",)),),
        "running": (ReturnToPrompt(("c",)),),
        "taking": (ReturnToPrompt(("c",)),),
        "late": (ReturnToPrompt(("b",)),),
        "stopping": (ReturnToPrompt(("b",)),),
        "switching": (ReturnToPrompt(("a",)),),
    }
    alone = State(Phase.PREPARING, 1, (A,), reading=1)
    assert alone.take_back() == (State(Phase.IDLE, 1), (NamedWork.STOP_READING, ReturnToPrompt(("a",)), *AWAY))
    assert State(Phase.RUNNING, waiting=((3, "x"), (5, "y"))).take_back()[1] == (Withdraw(5),)
    taken = State(Phase.RUNNING, 2, (B,), ((3, "x"),), taking=2)
    wanted, nothing = taken.take_back()
    assert nothing == ()
    assert wanted.taken(2, 5)[1] == (Withdraw(5),)
    assert wanted.taken(2, 5, waits=False)[1] == ()
    assert wanted.no_turn(2)[1] == (ReturnToPrompt(("b",)),)
    assert taken.taken(2, 5)[1] == taken.no_turn(2)[1] == ()


def test_preparing_ahead_is_for_idle_moments() -> None:
    assert phases(State.prepare) == staying()
    assert work(State.prepare) == {"idle": (NamedWork.PREPARE_AHEAD,)}


@pytest.mark.parametrize("message", [CLOSE, SWITCH])
def test_leaving_closes_once(message: Message) -> None:
    left = {name: Phase.CLOSING for name in IN if name != "closed"}
    assert phases(message) == staying(**left)
    expected: dict[str, tuple[Work, ...]] = {
        "opening": (ReturnToPrompt(("a",)), NamedWork.CLOSE_SESSION),
        "vacant": (NamedWork.CLOSE_SESSION,),
        "idle": (NamedWork.CLOSE_SESSION,),
        "preparing": (NamedWork.STOP_READING, ReturnToPrompt(("a", "b")), *AWAY, NamedWork.CLOSE_SESSION),
        "running": (NamedWork.STOP_READING, NamedWork.CLOSE_SESSION),
        "taking": (NamedWork.CLOSE_SESSION,),
        "late": (ReturnToPrompt(("b",)), NamedWork.CLOSE_SESSION),
        "stopping": (ReturnToPrompt(("b",)), NamedWork.CLOSE_SESSION),
        "switching": (ReturnToPrompt(("a",)),),
    }
    if message is SWITCH:
        del expected["switching"]
    assert work(message) == expected
    goes_on = {name for name, state in IN.items() if message(state)[0].next is not None}
    assert goes_on == (set(IN) - {"closing", "closed"} if message is SWITCH else set())


def test_what_is_opened_begins_with_what_was_sent() -> None:
    assert phases(State.opened) == staying(opening=Phase.PREPARING)
    assert work(State.opened) == {"opening": (NamedWork.SHOW_TURN, ReadPictures(A))}
    assert State().opened() == (State(Phase.IDLE), ())


def test_what_cannot_be_opened_gives_everything_back() -> None:
    assert phases(State.not_opened) == staying(opening=Phase.VACANT)
    assert work(State.not_opened) == {"opening": (ReturnToPrompt(("a",)),)}


def test_pictures_that_were_read_go_with_their_text() -> None:
    assert work(lambda state: state.read(1, (PICTURE,))) == {"preparing": (RunTurn(A, (PICTURE,)), ReadPictures(B))}
    assert work(lambda state: state.read(2, (PICTURE,))) == {"running": (DeliverToTurn(B, (PICTURE,)),)}
    assert phases(lambda state: state.read(1)) == staying(preparing=Phase.RUNNING)
    assert work(lambda state: state.read(9)) == {}


def test_a_text_that_cannot_be_sent_comes_back_and_the_next_one_goes() -> None:
    assert work(lambda state: state.not_sent(1)) == {
        "opening": (ReturnToPrompt(("a",)),),
        "preparing": (ReturnToPrompt(("a",)), ReadPictures(B)),
        "switching": (ReturnToPrompt(("a",)),),
    }
    assert work(lambda state: state.not_sent(2))["running"] == (ReturnToPrompt(("b",)), ReadPictures(C))
    alone = State(Phase.PREPARING, 1, (A,), reading=1)
    assert alone.not_sent(1) == (State(Phase.IDLE, 1), (ReturnToPrompt(("a",)), *AWAY))


def test_a_slash_command_is_shown_and_given_back_as_it_was_typed() -> None:
    state = IN["idle"].send("look at all of it", "/review")[0]
    assert (state.shown, state.stop()[1][:2]) == (("/review",), (NamedWork.STOP_READING, ReturnToPrompt(("/review",))))
    state, done = state.read(state.reading)
    assert done == (RunTurn(Outgoing(state.sent, "look at all of it", "/review"), ()),)


def test_what_the_turn_took_in_waits_for_its_step() -> None:
    state, done = IN["taking"].taken(2, 9)
    assert (state.waiting, state.shown, done) == (((7, "waits"), (9, "b")), ("waits", "b", "c"), (ReadPictures(C),))
    assert IN["taking"].taken(2, 9, waits=False)[0].shown == ("waits", "c")
    assert work(lambda state: state.taken(9, 9)) == {}


def test_a_text_that_came_too_late_for_the_turn_begins_the_next() -> None:
    late, done = IN["taking"].no_turn(2, (PICTURE,))
    assert done == ()
    state, done = late.turn_ended()
    assert done == (*AWAY, NamedWork.SHOW_TURN, RunTurn(B, (PICTURE,)), ReadPictures(C))
    assert (state.phase, state.outbox) == (Phase.RUNNING, (C,))
    stopping = replace(IN["taking"], stopping=True)
    assert stopping.no_turn(2)[1] == (ReturnToPrompt(("b",)),)


def test_the_end_of_a_turn_begins_the_next_one_where_something_was_sent() -> None:
    assert phases(State.turn_ended) == staying(
        running=Phase.PREPARING, taking=Phase.PREPARING, stopping=Phase.PREPARING
    )
    ended = work(lambda state: state.turn_ended(("u",)))
    assert ended["stopping"] == (*AWAY, ReturnToPrompt(("u",)), NamedWork.SHOW_TURN, ReadPictures(B))
    assert ended["closing"] == ended["switching"] == (ReturnToPrompt(("u",)), *AWAY)
    assert set(ended) == {"running", "taking", "late", "stopping", "switching", "closing"}


def test_waiting_texts_come_and_go() -> None:
    assert IN["idle"].waits(4, "w")[0].shown == ("w",)
    assert IN["running"].waits_no_more(7)[0].waiting == ()
    assert work(lambda state: state.moved(frozenset())) == {
        "running": (ReturnToPrompt(("waits",)),),
        "taking": (ReturnToPrompt(("waits",)),),
    }
    assert work(lambda state: state.moved(frozenset(), gives_back=False)) == {}
    assert work(lambda state: state.moved(frozenset((7,)))) == {}
    assert work(lambda state: state.waits(4, "w")) == {}
    assert work(lambda state: state.waits_no_more(7)) == {}


def test_once_closed_the_next_session_opens_with_what_was_sent_meanwhile() -> None:
    assert phases(State.closed) == staying(switching=Phase.OPENING, closing=Phase.CLOSED)
    assert work(State.closed) == {"switching": (OpenSession(THERE),), "closing": (EndWith(None),)}
    assert IN["switching"].closed()[0] == State(Phase.OPENING, 1, (A,))
    assert work(lambda state: state.closed(ERROR)) == {
        "switching": (OpenSession(THERE), Report(ERROR)),
        "closing": (EndWith(ERROR),),
    }


def outcomes(done: Work) -> list[Message]:
    """What can follow a piece of work."""
    match done:
        case OpenSession():
            return [State.opened, State.not_opened]
        case ReadPictures(outgoing):
            return [lambda state: state.read(outgoing.number), lambda state: state.not_sent(outgoing.number)]
        case DeliverToTurn(outgoing, images):
            return [
                lambda state: state.taken(outgoing.number, 100 + outgoing.number, waits=False),
                lambda state: state.no_turn(outgoing.number, images),
            ]
        case RunTurn():
            return [State.turn_ended]
        case NamedWork.CLOSE_SESSION:
            return [State.closed, lambda state: state.closed(ERROR)]
        case _:
            return []


@given(st.randoms(use_true_random=False), st.integers(0, 40))
def test_nothing_typed_is_lost_whatever_comes_when(chance: Random, steps: int) -> None:
    """Every text is answered by a turn, taken into one, given back, or still shown: exactly once."""
    state, pending = State(), list[Work]([OpenSession(HERE)])
    where: Counter[str] = Counter()
    sent: list[str] = []
    for number in range(steps):
        # A turn ends only when it has taken in what it was asked to, and a session closes only when its turn is over.
        turns = any(isinstance(each, RunTurn) for each in pending)
        open_ends = [
            each
            for each in pending
            if not (isinstance(each, RunTurn) and state.taking) and not (each is NamedWork.CLOSE_SESSION and turns)
        ]
        if open_ends and chance.random() < 0.5:
            ended = chance.choice(open_ends)
            pending.remove(ended)
            out = outcomes(ended)
            message = chance.choice(out)
            if isinstance(ended, DeliverToTurn) and message is out[0] and ended.outgoing.number == state.taking:
                where[ended.outgoing.text] += 1
        else:
            text = f"text {number}"
            asked: list[Message] = [methodcaller("send", text), State.stop, State.take_back, SWITCH, State.prepare]
            message = chance.choice([*asked, CLOSE] if number > 20 else asked[:4])
            if message is asked[0]:
                sent.append(text)
        state, done = message(state)
        for each in done:
            if isinstance(each, ReturnToPrompt):
                where.update(each.texts)
            elif isinstance(each, RunTurn):
                where[each.outgoing.text] += 1
            elif each is NamedWork.STOP_READING:
                pending = [other for other in pending if not isinstance(other, ReadPictures)]
            if outcomes(each):
                pending.append(each)
        held = Counter([*state.returning, *(each.text for each in state.outbox)])
        assert where + held == Counter(sent)
        assert sum(isinstance(each, RunTurn) for each in pending) <= 1
