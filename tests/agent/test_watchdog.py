"""The watchdog: each signal by itself, and what follows from an alert in each mode."""

from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.agent.serving import Serve
from tests.agent.talking import Person, failures, goes_on, of, results, say, talking
from tests.conversation.logs import broken_rules
from tests.servers.anthropic import AnthropicServer
from tests.servers.script import Call, Script, Step
from tui_agent.agent import events
from tui_agent.agent.agent import nobody
from tui_agent.agent.turn.watchdog import (
    ContextGrowth,
    CostBurn,
    FilesNotTouched,
    ModelAnswered,
    Observation,
    Observer,
    RepeatedCalls,
    Signal,
    SignalWatchdog,
    ToolAnswered,
    ToolCalled,
    ToolsWithoutText,
    UserSpoke,
    Watchdog,
    WatchdogAlert,
    default_watchdog,
)
from tui_agent.conversation.blocks import ToolCall, ToolResult
from tui_agent.conversation.entries import Cleared, Message, tool_result, user_message
from tui_agent.conversation.view import View
from tui_agent.models.usage import UsageTracker
from tui_agent.settings.schema import WatchdogSettings

A = ToolCalled("read_file", '{"path":"main.go"}')
B = ToolCalled("read_file", '{"path":"util.go"}')
SAME_FILE = ToolCalled("read_file", '{"path":"/workspace/main.go"}')
WAITED = [ToolCalled("command_output", '{"process":1}')]
LOOP = ", then ".join(["read calc.py"] * 7)


def told(signal: Signal, observations: Iterable[Observation]) -> list[int]:
    """After how many facts the signal spoke."""
    return [number for number, fact in enumerate(observations, 1) if signal.observe(fact)]


@pytest.mark.parametrize(
    ("calls", "alerts"),
    [
        ([A, B, A, B, A], []),
        ([A, A, A, A, A], [5]),
        ([A, A, A, A], []),
        ([A] * 40, [5]),
        ([A, A, A, A, SAME_FILE, A, A, A, A], []),
        ([A, A, A, A, ToolCalled("grep", A.arguments)], []),
        (WAITED * 9, []),
        ([A, A, A, *WAITED, A, A], [6]),
        ([B, A, A, A, A, A, B], [6]),
        ([A] * 5 + [B] + [A] * 5, [5, 11]),
        ([A, B] * 4, []),
        ([A, B] * 20, [10]),
        ([A, B, B] * 20, [15]),
        ([A, B] * 5 + [SAME_FILE] + [A, B] * 5, [10, 21]),
        (([A, B] * 4 + [SAME_FILE]) * 4, []),
        ([*([A] * 3), SAME_FILE, *([B] * 3)] * 9, []),
    ],
)
def test_identical_calls_and_cycles_of_calls_in_a_row(calls: list[Observation], alerts: list[int]) -> None:
    assert told(RepeatedCalls(5), calls) == alerts


def test_what_comes_between_identical_calls_without_being_one_changes_nothing() -> None:
    answered: list[Observation] = [ModelAnswered(spoke=True, tokens=10), A, ToolAnswered("read_file", "read")]
    assert told(RepeatedCalls(5), answered * 5) == [14]


def test_doing_again_what_the_user_asked_for_is_no_loop() -> None:
    assert told(RepeatedCalls(5), [A, A, A, A, UserSpoke(), A, A, A, A]) == []
    assert told(RepeatedCalls(5), [*([A, B] * 4), A, UserSpoke(), B, *([A, B] * 4)]) == []


def test_calls_without_a_word() -> None:
    silent: list[Observation] = [ModelAnswered(), A]
    spoken: list[Observation] = [ModelAnswered(spoke=True), A]
    assert told(ToolsWithoutText(3), silent * 9) == [6]
    assert told(ToolsWithoutText(4), (silent * 2 + spoken) * 5) == []
    assert told(ToolsWithoutText(3), silent * 3 + spoken + silent * 3) == [6, 12]


def test_calls_without_a_change_to_a_file() -> None:
    looked: list[Observation] = [A, ToolAnswered("read_file", "read")]
    wrote: list[Observation] = [ToolCalled("edit_file", "{}"), ToolAnswered("edit_file", "write")]
    failed: list[Observation] = [ToolCalled("edit_file", "{}"), ToolAnswered("edit_file", "write", failed=True)]
    assert told(FilesNotTouched(4), looked * 9) == [8]
    assert told(FilesNotTouched(4), (looked * 3 + wrote) * 5) == []
    assert told(FilesNotTouched(4), looked * 3 + failed) == [8]
    assert told(FilesNotTouched(4), looked * 3 + [UserSpoke()] + looked * 3) == []


def test_growth_of_the_context_within_a_turn() -> None:
    sizes = [10, 30, 61, 90, 95]
    grown: list[Observation] = [ModelAnswered(tokens=tokens, window=100) for tokens in sizes]
    assert told(ContextGrowth(0.5), [UserSpoke(), *grown]) == [4]
    slow: list[Observation] = [fact for one in grown for fact in (UserSpoke(), one)]
    assert told(ContextGrowth(0.5), slow) == []
    compacted: list[Observation] = [ModelAnswered(tokens=tokens, window=100) for tokens in (10, 40, 15, 45)]
    assert told(ContextGrowth(0.5), compacted) == [4]
    assert told(ContextGrowth(0.5), [ModelAnswered(tokens=tokens) for tokens in sizes]) == []


def test_dollars_a_minute() -> None:
    def spent(*calls: tuple[float, float]) -> list[Observation]:
        return [UserSpoke(1000.0), *(ModelAnswered(cost_usd=cost, time=1000.0 + at) for at, cost in calls)]

    assert told(CostBurn(5), spent((2, 6.0), (3, 6.0))) == [2]
    assert told(CostBurn(5), spent((2, 4.9))) == []
    assert told(CostBurn(5), spent((60, 4.0), (120, 4.0), (180, 4.0))) == []
    assert told(CostBurn(5), spent((60, 4.0), (61, 4.0))) == [3]
    assert told(CostBurn(5), [*spent((2, 4.0)), *spent((2, 4.0))]) == []


def test_a_limit_of_zero_turns_a_signal_off() -> None:
    off = WatchdogSettings(
        repeated_calls=0, tools_without_text=0, files_not_touched=0, context_growth_share=0, cost_burn_usd_per_minute=0
    )
    silent = default_watchdog(off)
    assert [alert for _ in range(200) for alert in silent.observe(A)] == []
    usual = default_watchdog(WatchdogSettings())
    assert [alert.signal for _ in range(5) for alert in usual.observe(A)] == ["repeated-tool-call"]


def test_a_signal_of_ones_own() -> None:
    class Swears:
        name = "swears"

        def observe(self, observation: Observation) -> str:
            return "It swears." if isinstance(observation, ToolCalled) and "damn" in observation.arguments else ""

    watchdog: Watchdog = SignalWatchdog([RepeatedCalls(5), Swears()])
    assert watchdog.observe(ToolCalled("run_command", "damn")) == (WatchdogAlert("swears", "It swears."),)
    with_built_in = default_watchdog(WatchdogSettings(), Swears())
    names = [alert.signal for _ in range(5) for alert in with_built_in.observe(ToolCalled("x", "damn"))]
    assert names.count("repeated-tool-call") == 1
    assert names.count("swears") == 5


def test_the_log_is_read_once() -> None:
    view, tracker = View(), UsageTracker()
    observer = Observer(view, tracker, lambda name: "read")

    def append(entry: Message | Cleared) -> None:
        view.apply(view.log.stamp(entry, 5.0))

    append(user_message("read it"))
    append(Message(role="assistant", blocks=(ToolCall("1", "read_file", A.arguments),)))
    append(tool_result(ToolResult("1", "text")))
    append(Cleared(results=(3,), texts=("[cleared]",)))
    assert list(observer.observe(100)) == [UserSpoke(5.0), A, ToolAnswered("read_file", "read")]
    assert list(observer.observe(100)) == []


async def test_an_alert_is_told_once_and_the_turn_goes_on(tmp_path: Path) -> None:
    async with talking(tmp_path) as session:
        seen = await goes_on(session, LOOP)
    alerts = of(events.Alert, seen)
    assert [(alert.signal, alert.action) for alert in alerts] == [("repeated-tool-call", "warn")]
    assert "calc.py" in alerts[0].text
    assert alerts[0].hint
    assert len(of(events.ToolFinished, seen)) == 7


async def test_reading_again_and_again_is_a_loop_even_if_the_results_were_cleared(tmp_path: Path) -> None:
    async with talking(tmp_path) as session:
        names = ["one.txt", "two.txt", "three.txt", "four.txt", *["big.txt"] * 7]
        for name in names:
            (tmp_path / "project" / name).write_text("".join(f"line {n} of {name}\n" for n in range(1_500)))
        seen = await say(session, ", then ".join(f"read {name}" for name in names))
    assert len([event for event in seen if isinstance(event, events.ContextStep) and event.step == "cleared"]) > 2
    assert len(of(events.ToolFinished, seen)) == len(names)
    assert [event.signal for event in of(events.Alert, seen)].count("repeated-tool-call") == 1


async def test_a_watchdog_of_ones_own_watches_a_session(tmp_path: Path) -> None:
    class TooManyReads:
        def observe(self, observation: Observation) -> tuple[WatchdogAlert, ...]:
            return (WatchdogAlert("reads", "It reads."),) if isinstance(observation, ToolCalled) else ()

    async with talking(tmp_path, watchdog=TooManyReads()) as session:
        seen = await say(session, "read calc.py, then read calc.py")
    assert [event.signal for event in of(events.Alert, seen)] == ["reads", "reads"]


async def test_it_is_silent_where_it_is_off_and_needs_an_approval_where_nobody_is(tmp_path: Path) -> None:
    for given in ({"watchdog.mode": "off"}, {"safety.notices": "false"}):
        async with talking(tmp_path, given) as session:
            assert of(events.Alert, await goes_on(session, LOOP)) == []
    async with talking(tmp_path, {"watchdog.mode": "prompt"}, ask=nobody) as session:
        assert failures(await say(session, LOOP)) == ["needs_approval"]


async def test_asked_and_allowed_the_turn_goes_on(tmp_path: Path) -> None:
    person = Person()
    async with talking(tmp_path, {"watchdog.mode": "prompt"}, ask=person) as session:
        seen = await say(session, LOOP)
    assert person.tools == ["watchdog"]
    assert "5 times in a row" in person.asked[0].preview.text
    assert len(of(events.ToolFinished, seen)) == 7


async def test_asked_and_refused_the_turn_ends_with_everything_kept(tmp_path: Path) -> None:
    stop = Person(allowed=False, feedback="look at test_calc.py")
    async with talking(tmp_path, {"watchdog.mode": "prompt"}, ask=stop) as session:
        seen = await say(session, LOOP)
        view = session.agent.engine.view
        assert view.unanswered() == ()
        assert broken_rules(view.messages()) == []
        answers = [result.text for result in results(session)]
        assert len(answers) == 5
        assert "stopped the turn" in answers[-1]
        assert "they said: look at test_calc.py" in answers[-1]
        again = await say(session, "read test_calc.py")
    failed = of(events.TurnFailed, seen)
    assert [(event.kind, event.retryable) for event in failed] == [("watchdog", False)]
    assert "look at test_calc.py" in failed[0].message
    assert len(of(events.ToolFinished, seen)) == 4
    assert not of(events.TurnFailed, again)


async def test_it_escalates_to_the_frontier_model_by_itself(tmp_path: Path, serve: Serve) -> None:
    reading = Step(text="", calls=(Call("read_file", {"path": "calc.py"}),))
    server = serve(AnthropicServer(Script.of(*[reading] * 12, Step(text="Done."))))
    given = {"model.id": "claude-haiku-4-5", "watchdog.mode": "auto", "permissions.mode": "allow"}
    async with talking(tmp_path, given) as session:
        seen = await goes_on(session, "read calc.py")
        assert session.agent.profile.id == "claude-opus-5-5"
    asked = [request.json["model"] for request in server.model_requests if request.json]
    alerts = of(events.Alert, seen)
    assert [alert.action for alert in alerts] == ["escalate"]
    assert [event.model for event in of(events.ModelChanged, seen)] == ["anthropic:claude-opus-5-5"]
    assert asked == ["claude-haiku-4-5"] * 5 + ["claude-opus-5-5"] * 8


async def test_it_can_be_escalated_by_hand_also_while_a_turn_runs(tmp_path: Path, serve: Serve) -> None:
    reading = Step(calls=(Call("read_file", {"path": "calc.py"}),))
    server = serve(AnthropicServer(Script.of(reading, reading, Step(text="Done."))))
    async with talking(tmp_path, {"model.id": "claude-sonnet-5-5"}) as session:
        async for event in session.agent.run("read calc.py"):
            if isinstance(event, events.ModelCallStarted) and event.model.endswith("sonnet-5-5"):
                assert await session.agent.escalate() == "anthropic:claude-opus-5-5"
        assert await session.agent.escalate() == ""
    async with talking(tmp_path, {"model.id": "claude-sonnet-5-5"}) as session:
        assert await session.agent.escalate() == "anthropic:claude-opus-5-5"
        assert session.agent.profile.id == "claude-opus-5-5"
    asked = [request.json["model"] for request in server.model_requests if request.json]
    assert asked == ["claude-sonnet-5-5", "claude-opus-5-5", "claude-opus-5-5"]
