"""Events brought to the screen."""

from collections.abc import AsyncIterator

import msgspec
import pytest
from msgspec import structs
from textual.app import App, ComposeResult
from typing_extensions import override

from tui_agent.agent import events
from tui_agent.agent.events import AgentEvent
from tui_agent.agent.history.as_events import replay
from tui_agent.conversation.blocks import Image
from tui_agent.conversation.entries import Usage, queued_of, user_shell
from tui_agent.tui.cards.blocks import (
    Block,
    BoundaryBlock,
    Level,
    NoticeBlock,
    ProseBlock,
    ReasoningBlock,
    ToolBlock,
    ToolState,
    UserBlock,
)
from tui_agent.tui.pane.status_bar import StatusBar
from tui_agent.tui.pane.transcript import Transcript
from tui_agent.tui.session.turns import MAX_PROMPT_SHOWN, TurnView


class Screen(App[None]):
    """A status bar, a transcript and a list of waiting texts, as the view needs them."""

    def __init__(self) -> None:
        super().__init__()
        self.status = StatusBar()
        self.transcript = Transcript()
        self.waiting: dict[int, str] = {}
        self.turns = TurnView(self.transcript, self.status, self)

    @override
    def compose(self) -> ComposeResult:
        yield self.status

    def add(self, seq: int, text: str) -> None:
        self.waiting[seq] = text

    def remove(self, seq: int) -> None:
        self.waiting.pop(seq, None)

    def show(self, *shown: AgentEvent) -> list[Block]:
        for event in shown:
            self.turns.show(event)
        return self.transcript.blocks


@pytest.fixture
async def screen() -> AsyncIterator[Screen]:
    screen = Screen()
    async with screen.run_test():
        screen.turns.begin()
        yield screen
        screen.turns.end()


def answer(text: str = "", reasoning: str = "", stop_reason: str = "end_turn") -> events.AssistantMessage:
    return events.AssistantMessage(
        seq=2,
        model="m",
        text=text,
        reasoning=reasoning,
        usage=Usage(input_tokens=10, output_tokens=5, reasoning_tokens=7),
        cost_usd=None,
        stop_reason=stop_reason,
        duration_ms=5,
    )


def finished(stop_reason: str = "end_turn") -> events.TurnFinished:
    return events.TurnFinished(stop_reason=stop_reason, text="", steps=1, usage=Usage(), cost_usd=None, duration_ms=1)


def result(call_id: str, text: str = "done\n", status: str = "ok") -> events.ToolFinished:
    return events.ToolFinished(call_id=call_id, name="run_command", status=status, text=text, size=len(text), tokens=2)


def started(call_id: str) -> events.ToolStarted:
    return events.ToolStarted(call_id=call_id, name="run_command", arguments='{"command": "ls"}')


CALL = events.ModelCallStarted(model="m", tokens=10)


async def test_streamed_reasoning_and_text_become_one_block_each(screen: Screen) -> None:
    blocks = screen.show(
        events.UserMessage(seq=1, text="hi"),
        CALL,
        events.ReasoningDelta(text="let me "),
        events.ReasoningDelta(text="see"),
        events.TextDelta(text="\n"),
        events.TextDelta(text="yes "),
        events.TextDelta(text="indeed"),
        answer("\nyes indeed", "let me see"),
    )
    user, reasoning, prose = blocks
    assert isinstance(user, UserBlock)
    assert isinstance(reasoning, ReasoningBlock)
    assert isinstance(prose, ProseBlock)
    assert (user.text, reasoning.plain_text, prose.plain_text) == ("hi", "let me see", "yes indeed")
    assert reasoning.tokens == 7
    assert reasoning.seconds is not None
    assert not reasoning.streaming
    assert not prose.streaming


async def test_a_retry_takes_back_what_had_streamed(screen: Screen) -> None:
    before = screen.transcript.add_user("do it")
    blocks = screen.show(
        CALL,
        events.ReasoningDelta(text="first"),
        events.TextDelta(text="half an ans"),
        events.Retrying(attempt=1, delay_s=2.0, kind="overloaded", message="The provider is overloaded."),
        events.TextDelta(text="whole answer"),
        answer("whole answer"),
    )
    first, notice, prose = blocks
    assert first is before
    assert isinstance(notice, NoticeBlock)
    assert "overloaded; trying again in 2 s" in notice.title
    assert isinstance(prose, ProseBlock)
    assert prose.plain_text == "whole answer"


async def test_of_tries_that_follow_each_other_the_newest_is_told(screen: Screen) -> None:
    for attempt in (1, 2, 3):
        screen.show(events.Retrying(attempt=attempt, retries=4, delay_s=1, kind="connection", message="Lost"))
    kept = [block.title for block in screen.transcript.blocks if isinstance(block, NoticeBlock)]
    assert kept == ["Lost; trying again in 1 s (3 of 4)"]


async def test_a_retry_leaves_what_others_wrote_meanwhile(screen: Screen) -> None:
    screen.show(CALL, events.TextDelta(text="half"))
    kept = screen.transcript.add_notice(Level.INFO, "from a command")
    screen.show(events.Retrying(attempt=1, delay_s=1, kind="connection", message="Lost"))
    assert kept in screen.transcript.blocks


async def test_parallel_results_land_on_their_own_cards(screen: Screen) -> None:
    blocks = screen.show(started("a"), started("b"), result("b", "from b\n"), result("a", "from a\n", "error"))
    first, second = (block for block in blocks if isinstance(block, ToolBlock))
    assert (first.call_id, first.state, first.result) == ("a", ToolState.ERROR, "from a\n")
    assert (second.call_id, second.state, second.result) == ("b", ToolState.OK, "from b\n")
    assert first.summary == "ls"


async def test_a_queued_text_waits_beside_the_conversation_until_it_is_delivered(screen: Screen) -> None:
    screen.turns.show_waiting([(9, "later")])
    assert (screen.transcript.blocks, screen.waiting) == ([], {9: "later"})
    (user,) = screen.show(events.UserMessage(seq=10, text="later", queued=9))
    assert isinstance(user, UserBlock)
    assert screen.waiting == {}


async def test_an_interruption_closes_everything(screen: Screen) -> None:
    tool, prose, notice = screen.show(started("a"), events.TextDelta(text="half"), finished("interrupted"))
    assert isinstance(tool, ToolBlock)
    assert tool.state is ToolState.INTERRUPTED
    assert isinstance(prose, ProseBlock)
    assert not prose.streaming
    assert isinstance(notice, NoticeBlock)
    assert screen.turns.interrupted
    assert screen.status._timer is None


@pytest.mark.parametrize(
    ("kind", "retryable", "hint", "shown"),
    [
        ("auth", False, "Set the key.", "Set the key. r and Enter then sends it again."),
        ("hook", False, "Look at it.", "Look at it."),
        ("connection", True, "Check the connection.", "Check the connection. r and Enter sends it again."),
        ("model_error", False, "", "Everything up to here is kept. r and Enter sends it again."),
    ],
)
async def test_a_failure_says_what_happened_and_what_to_do(
    screen: Screen, kind: str, retryable: bool, hint: str, shown: str
) -> None:
    failed = events.TurnFailed(kind=kind, message="The key is wrong.", retryable=retryable, hint=hint)
    _, notice = screen.show(events.UserMessage(seq=1, text="hi"), failed, finished("error"))
    assert isinstance(notice, NoticeBlock)
    assert (notice.level, notice.text, notice.hint) == (Level.ERROR, "The key is wrong.", shown)
    if hint:
        screen.turns.begin()
        not_entered = screen.show(failed, finished("error"))[-1]
        assert isinstance(not_entered, NoticeBlock)
        assert not_entered.hint == f"{hint} Your text is in the prompt again."


async def test_an_unusual_end_is_explained(screen: Screen) -> None:
    for stop_reason in ("max_tokens", "refusal", "context_window"):
        notice = screen.show(finished(stop_reason))[-1]
        assert isinstance(notice, NoticeBlock)
        assert notice.hint


async def test_a_huge_prompt_is_shown_in_part(screen: Screen) -> None:
    text = "line\n" * 99_999 + "what is this?"
    (user,) = screen.show(events.UserMessage(seq=1, text=text, images=(Image("image/png", "AA=="),)))
    assert isinstance(user, UserBlock)
    assert len(user.text) < MAX_PROMPT_SHOWN + 100
    assert user.text.endswith("line\nwhat is this?\n[1 image]")
    shown = user.text.count("line\n")
    assert f"… {100_000 - 1 - shown:,} more lines\n" in user.text
    assert user.lines == 100_001


async def test_the_gauge_follows_the_context(screen: Screen) -> None:
    screen.show(
        events.ModelChanged(model="anthropic:x", window=100, tier="mid"),
        events.ContextChanged(tokens=50, window=100, measured=True, cost_usd=1.5, turn_cost_usd=0.5),
        events.ModelChanged(model="anthropic:y", window=0, tier="mid"),
    )
    status = screen.status.status
    assert (status.model, status.tokens, status.window, status.measured, status.cost_usd) == (
        "anthropic:y",
        50,
        100,
        True,
        1.5,
    )


async def test_an_evicted_result_leaves_a_boundary_that_can_bring_it_back(screen: Screen) -> None:
    evicted = msgspec.structs.replace(
        result("c1", "head and tail"), size=130_000, tokens=4, seq=7, artifact="large_tool_results/c1", evicted=True
    )
    *_, boundary = screen.show(CALL, started("c1"), evicted)
    assert isinstance(boundary, BoundaryBlock)
    assert (boundary.kind, boundary.before, boundary.after) == ("run_command result put into a file", 40_000, 4)
    assert (boundary.seq, boundary.restores) == (7, True)
    assert "large_tool_results/c1" in boundary.text


async def test_an_undo_marks_the_step_and_an_undo_of_it_takes_the_mark_off(screen: Screen) -> None:
    def step(seq: int, name: str = "undone", target: int = 0) -> events.ContextStep:
        return events.ContextStep(step=name, seq=seq, before=10, after=5, target=target)

    marks = []
    for told in (step(1, "summary"), step(2, target=1), step(3, target=2), step(4, target=3)):
        blocks = screen.show(told)
        marks.append([block.undone for block in blocks if isinstance(block, BoundaryBlock)])
    assert marks == [[False], [True, False], [False, True, False], [True, False, True, False]]


async def test_what_changes_the_context_is_passed_on(screen: Screen) -> None:
    told: list[AgentEvent] = []
    screen.turns.changed = told.append
    screen.show(CALL, events.TextDelta(text="a"), answer("a"), started("c1"), result("c1"), finished())
    assert [type(event) for event in told] == [
        events.ModelCallStarted,
        events.AssistantMessage,
        events.ToolFinished,
        events.TurnFinished,
    ]


async def test_a_command_of_the_users_own_that_waited_has_its_card_again_and_one_only(screen: Screen) -> None:
    waits = structs.replace(queued_of(user_shell("user-1", "ls", "calc.py")), seq=4)
    screen.show(*replay([waits]))
    (card,) = screen.transcript.blocks
    assert isinstance(card, ToolBlock)
    assert (card.summary, card.result, card.said, card.seq) == ("ls", "calc.py", "!ls", 4)
    screen.show(events.UserMessage(seq=9, text="", typed="!ls", kind="user_shell", queued=4))
    assert (screen.transcript.blocks, card.seq) == ([card], 9)


async def test_what_runs_is_named_and_an_answer_ends_where_a_call_begins(screen: Screen) -> None:
    screen.turns.begin()
    screen.show(events.ReasoningDelta(text="hm"), events.TextDelta(text="Let me look."))
    thought, said = screen.transcript.blocks
    assert isinstance(thought, ReasoningBlock)
    assert isinstance(said, ProseBlock)
    assert (thought.streaming, said.streaming) == (False, True)
    screen.show(started("a"))
    assert not said.streaming
    assert screen.status.status.activity == "running a command"
    screen.show(started("b"))
    assert screen.status.status.activity == "running 2 tools"
    screen.show(result("a"))
    assert screen.status.status.activity == "running a command"
    screen.show(result("b"))
    assert screen.status.status.activity == "thinking"


async def test_a_further_turn_of_a_goal_is_shown_as_running(screen: Screen) -> None:
    ended = events.TurnFinished(stop_reason="end_turn", text="", steps=1, usage=Usage(), cost_usd=0.0, duration_ms=10)
    activity: list[str] = []
    screen.turns.begin()
    for event in (ended, events.GoalCheck(command="false"), events.TurnStarted(seq=9, text=""), ended):
        screen.show(event)
        activity.append(screen.status.status.activity)
    assert activity == ["", "checking the goal", "sending", ""]
    screen.show(events.TurnFailed(kind="goal", message="It is not reached.", retryable=False))
    assert "The goal has ended" in screen.transcript.blocks[-1].plain_text
