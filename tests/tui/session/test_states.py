"""The session behind the screen as a state machine: every state with every message."""

from collections import Counter
from pathlib import Path
from random import Random
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tui_agent.arguments import Arguments
from tui_agent.conversation.blocks import Image
from tui_agent.tui.session.states import (
    Close,
    Closed,
    CloseSession,
    GiveBack,
    Inbound,
    Interrupt,
    Moved,
    NotOpened,
    NotSent,
    NoTurn,
    Opened,
    OpenSession,
    Outgoing,
    Phase,
    Prepare,
    PrepareAhead,
    Read,
    ReadPictures,
    Report,
    RunTurn,
    Send,
    ShowTurn,
    State,
    Stop,
    StopReading,
    StopSummary,
    StopWriting,
    Switch,
    TakeBack,
    TakeIn,
    Taken,
    TellClosing,
    TellNoSession,
    TurnEnded,
    Waits,
    WaitsNoMore,
    Withdraw,
    Work,
    step,
)

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

AWAY: Final = (ShowTurn(runs=False),)


def phases(message: Inbound) -> dict[str, Phase]:
    return {name: step(state, message)[0].phase for name, state in IN.items()}


def work(message: Inbound) -> dict[str, tuple[Work, ...]]:
    return {name: done for name, state in IN.items() if (done := step(state, message)[1])}


def staying(**others: Phase) -> dict[str, Phase]:
    return {name: state.phase for name, state in IN.items()} | others


def test_a_text_is_sent_waits_or_comes_back() -> None:
    assert phases(Send("x")) == staying(idle=Phase.PREPARING)
    assert work(Send("x")) == {
        "vacant": (GiveBack(("x",)), TellNoSession()),
        "idle": (ShowTurn(runs=True), ReadPictures(Outgoing(2, "x"))),
        "closing": (GiveBack(("x",)),),
        "closed": (GiveBack(("x",)),),
    }
    waits = {name for name, state in IN.items() if "x" in step(state, Send("x"))[0].shown}
    assert waits == {"opening", "idle", "preparing", "running", "taking", "late", "stopping", "switching"}


def test_stop_gives_back_what_was_not_said() -> None:
    assert phases(Stop()) == staying(preparing=Phase.IDLE)
    assert work(Stop()) == {
        "opening": (GiveBack(("a",)), TellClosing()),
        "idle": (StopWriting(),),
        "preparing": (StopReading(), GiveBack(("a", "b")), *AWAY),
        "running": (StopReading(), Interrupt()),
        "taking": (Interrupt(),),
        "late": (GiveBack(("b",)), Interrupt()),
        "stopping": (GiveBack(("b",)), Interrupt()),
        "switching": (GiveBack(("a",)), TellClosing()),
        "closing": (TellClosing(),),
    }


@pytest.mark.parametrize("message", [Stop(), Close(), Switch(THERE)])
def test_texts_come_back_in_the_order_they_were_sent_in(message: Stop | Close | Switch) -> None:
    """First what the turn took in, which only its end gives back."""
    for name, texts in (("running", ("b", "c")), ("taking", ("c",))):
        stopped = step(IN[name], message)[0]
        assert (stopped.returning, stopped.shown) == (texts, ("waits", "b", "c"))
        ended, done = step(stopped, TurnEnded(("waits",)))
        assert GiveBack(("waits", *texts)) in done
        assert ended.returning == ()
        assert step(replace(stopped, phase=Phase.CLOSING), Closed())[1][0] == GiveBack(texts)


def test_a_summary_can_be_stopped_everywhere() -> None:
    assert phases(StopSummary()) == staying()
    assert work(StopSummary()) == dict.fromkeys(IN, (StopWriting(),))


def test_the_newest_text_can_be_had_back() -> None:
    assert phases(TakeBack()) == staying()
    assert work(TakeBack()) == {
        "opening": (GiveBack(("a",)),),
        "preparing": (GiveBack(("b",)),),
        "running": (GiveBack(("c",)),),
        "taking": (GiveBack(("c",)),),
        "late": (GiveBack(("b",)),),
        "stopping": (GiveBack(("b",)),),
        "switching": (GiveBack(("a",)),),
    }
    alone = State(Phase.PREPARING, 1, (A,), reading=1)
    assert step(alone, TakeBack()) == (State(Phase.IDLE, 1), (StopReading(), GiveBack(("a",)), *AWAY))
    assert step(State(Phase.RUNNING, waiting=((3, "x"), (5, "y"))), TakeBack())[1] == (Withdraw(5),)
    taken = State(Phase.RUNNING, 2, (B,), ((3, "x"),), taking=2)
    assert step(taken, TakeBack()) == (taken, ())


def test_preparing_ahead_is_for_idle_moments() -> None:
    assert phases(Prepare()) == staying()
    assert work(Prepare()) == {"idle": (PrepareAhead(),)}


@pytest.mark.parametrize("message", [Close(), Switch(THERE)])
def test_leaving_closes_once(message: Close | Switch) -> None:
    left = {name: Phase.CLOSING for name in IN if name != "closed"}
    assert phases(message) == staying(**left)
    expected: dict[str, tuple[Work, ...]] = {
        "opening": (GiveBack(("a",)), CloseSession()),
        "vacant": (CloseSession(),),
        "idle": (CloseSession(),),
        "preparing": (StopReading(), GiveBack(("a", "b")), *AWAY, CloseSession()),
        "running": (StopReading(), CloseSession()),
        "taking": (CloseSession(),),
        "late": (GiveBack(("b",)), CloseSession()),
        "stopping": (GiveBack(("b",)), CloseSession()),
        "switching": (GiveBack(("a",)),),
    }
    if isinstance(message, Switch):
        del expected["switching"]
    assert work(message) == expected
    goes_on = {name for name, state in IN.items() if step(state, message)[0].next is not None}
    assert goes_on == (set(IN) - {"closing", "closed"} if isinstance(message, Switch) else set())


def test_what_is_opened_begins_with_what_was_sent() -> None:
    assert phases(Opened()) == staying(opening=Phase.PREPARING)
    assert work(Opened()) == {"opening": (ShowTurn(runs=True), ReadPictures(A))}
    assert step(State(), Opened()) == (State(Phase.IDLE), ())


def test_what_cannot_be_opened_gives_everything_back() -> None:
    assert phases(NotOpened()) == staying(opening=Phase.VACANT)
    assert work(NotOpened()) == {"opening": (GiveBack(("a",)),)}


def test_pictures_that_were_read_go_with_their_text() -> None:
    assert work(Read(1, (PICTURE,))) == {"preparing": (RunTurn(A, (PICTURE,)), ReadPictures(B))}
    assert work(Read(2, (PICTURE,))) == {"running": (TakeIn(B, (PICTURE,)),)}
    assert phases(Read(1)) == staying(preparing=Phase.RUNNING)
    assert work(Read(9)) == {}


def test_a_text_that_cannot_be_sent_comes_back_and_the_next_one_goes() -> None:
    assert work(NotSent(1)) == {
        "opening": (GiveBack(("a",)),),
        "preparing": (GiveBack(("a",)), ReadPictures(B)),
        "switching": (GiveBack(("a",)),),
    }
    assert work(NotSent(2))["running"] == (GiveBack(("b",)), ReadPictures(C))
    alone = State(Phase.PREPARING, 1, (A,), reading=1)
    assert step(alone, NotSent(1)) == (State(Phase.IDLE, 1), (GiveBack(("a",)), *AWAY))


def test_a_slash_command_is_shown_and_given_back_as_it_was_typed() -> None:
    state = step(IN["idle"], Send("look at all of it", "/review"))[0]
    assert (state.shown, step(state, Stop())[1][:2]) == (("/review",), (StopReading(), GiveBack(("/review",))))
    state, done = step(state, Read(state.reading))
    assert done == (RunTurn(Outgoing(state.sent, "look at all of it", "/review"), ()),)


def test_what_the_turn_took_in_waits_for_its_step() -> None:
    state, done = step(IN["taking"], Taken(2, 9))
    assert (state.waiting, state.shown, done) == (((7, "waits"), (9, "b")), ("waits", "b", "c"), (ReadPictures(C),))
    assert step(IN["taking"], Taken(2, 9, waits=False))[0].shown == ("waits", "c")
    assert work(Taken(9, 9)) == {}


def test_a_text_that_came_too_late_for_the_turn_begins_the_next() -> None:
    late, done = step(IN["taking"], NoTurn(2, (PICTURE,)))
    assert done == ()
    state, done = step(late, TurnEnded())
    assert done == (*AWAY, ShowTurn(runs=True), RunTurn(B, (PICTURE,)), ReadPictures(C))
    assert (state.phase, state.outbox) == (Phase.RUNNING, (C,))
    stopping = replace(IN["taking"], stopping=True)
    assert step(stopping, NoTurn(2))[1] == (GiveBack(("b",)),)


def test_the_end_of_a_turn_begins_the_next_one_where_something_was_sent() -> None:
    assert phases(TurnEnded()) == staying(running=Phase.PREPARING, taking=Phase.PREPARING, stopping=Phase.PREPARING)
    ended = work(TurnEnded(("u",)))
    assert ended["stopping"] == (*AWAY, GiveBack(("u",)), ShowTurn(runs=True), ReadPictures(B))
    assert ended["closing"] == ended["switching"] == (GiveBack(("u",)), *AWAY)
    assert set(ended) == {"running", "taking", "late", "stopping", "switching", "closing"}


def test_waiting_texts_come_and_go() -> None:
    assert step(IN["idle"], Waits(4, "w"))[0].shown == ("w",)
    assert step(IN["running"], WaitsNoMore(7))[0].waiting == ()
    assert work(Moved(frozenset())) == {"running": (GiveBack(("waits",)),), "taking": (GiveBack(("waits",)),)}
    assert work(Moved(frozenset(), gives_back=False)) == {}
    assert work(Moved(frozenset((7,)))) == work(Waits(4, "w")) == work(WaitsNoMore(7)) == {}


def test_once_closed_the_next_session_opens_with_what_was_sent_meanwhile() -> None:
    assert phases(Closed()) == staying(switching=Phase.OPENING, closing=Phase.CLOSED)
    assert work(Closed()) == {"switching": (OpenSession(THERE),)}
    assert step(IN["switching"], Closed())[0] == State(Phase.OPENING, 1, (A,))
    assert work(Closed(ERROR)) == {"switching": (OpenSession(THERE), Report(ERROR))}


def outcomes(done: Work) -> list[Inbound]:
    """What can follow a piece of work."""
    match done:
        case OpenSession():
            return [Opened(), NotOpened()]
        case ReadPictures(outgoing):
            return [Read(outgoing.number), NotSent(outgoing.number)]
        case TakeIn(outgoing, images):
            return [Taken(outgoing.number, 100 + outgoing.number, waits=False), NoTurn(outgoing.number, images)]
        case RunTurn():
            return [TurnEnded()]
        case CloseSession():
            return [Closed(), Closed(ERROR)]
        case _:
            return []


@given(st.randoms(use_true_random=False), st.integers(0, 40))
def test_nothing_typed_is_lost_whatever_comes_when(chance: Random, steps: int) -> None:
    """Every text is answered by a turn, taken into one, given back, or still shown: exactly once."""
    state, pending = State(), [[*outcomes(OpenSession(HERE))]]
    where: Counter[str] = Counter()
    sent: list[str] = []
    for number in range(steps):
        asked: list[Inbound] = [Send(f"text {number}"), Stop(), TakeBack(), Switch(THERE), Prepare(), Close()]
        # A turn ends only when it has taken in what it was asked to.
        open_ends = [each for each in pending if not (state.taking and isinstance(each[0], TurnEnded))]
        if open_ends and chance.random() < 0.5:
            choice = chance.choice(open_ends)
            pending.remove(choice)
            message = chance.choice(choice)
        else:
            message = chance.choice(asked[: 6 if number > 20 else 4])
        if isinstance(message, Closed) and any(isinstance(each[0], TurnEnded) for each in pending):
            # A session is closed only when its turn is over.
            pending.append([message])
            continue
        if isinstance(message, Send):
            sent.append(message.text)
        if isinstance(message, Taken) and message.number == state.taking:
            where[state.outbox[0].text] += 1
        state, done = step(state, message)
        for each in done:
            if isinstance(each, GiveBack):
                where.update(each.texts)
            elif isinstance(each, RunTurn):
                where[each.outgoing.text] += 1
            if isinstance(each, StopReading):
                pending = [other for other in pending if not isinstance(other[0], Read)]
            if follows := outcomes(each):
                pending.append(follows)
        held = Counter([*state.returning, *(each.text for each in state.outbox)])
        assert where + held == Counter(sent)
        assert sum(isinstance(each[0], TurnEnded) for each in pending) <= 1
