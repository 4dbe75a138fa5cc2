"""A replay is what the agent does: one recorded session, played by both, makes the same requests.

The agent plays it over the real SDK against a protocol server that answers as recorded, at the recorded times, and
counts tokens as a replay does; what both caches hold is each one's own reckoning.
"""

import asyncio
import dataclasses
import json
from collections.abc import AsyncGenerator, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest
from typing_extensions import override

from tests.agent.summaries import asks_for_summary
from tests.replay.sessions import Session
from tests.servers.anthropic import Answering, AnthropicServer, parse
from tests.servers.anthropic_rules import Checked, check
from tests.servers.cache import PromptCache
from tests.servers.recording import RecordedRequest
from tests.servers.running import in_thread
from tests.servers.script import Call, Fault, ParsedRequest, Step
from tests.servers.server import Reply, compact
from tests.servers.wire import Exchange, Request
from tui_agent.agent import events
from tui_agent.agent.agent import Agent, SessionParts
from tui_agent.agent.turn.guards import Limits
from tui_agent.context.effects import Answer, AskModel
from tui_agent.context.engine import ContextEngine
from tui_agent.conversation.blocks import Text, ToolCall, ToolDefinition
from tui_agent.conversation.entries import (
    AnyContextEntry,
    AnyEntry,
    Checkpointed,
    Cleared,
    Delivered,
    Digested,
    Message,
    Prefix,
    Restored,
    Shortened,
    Summarized,
    UnattributedCall,
    Undone,
    Usage,
)
from tui_agent.conversation.profile import ModelProfile
from tui_agent.conversation.request import ModelRequest
from tui_agent.models.base import Model, StreamEvent
from tui_agent.models.catalogue import CATALOGUE
from tui_agent.replay.engine_policy import EnginePolicy
from tui_agent.replay.forecast import compare, error_of
from tui_agent.replay.policies import PolicySetup
from tui_agent.replay.recorded import as_recorded, measure
from tui_agent.replay.script import RecordedCall, RecordedMessage, Script, make_script, text_tokens
from tui_agent.replay.simulation import ReplayOutcome, simulate
from tui_agent.settings import ClearingSettings, CompactionSettings, Settings
from tui_agent.settings.schema import Preset
from tui_agent.storage.log import LogStore
from tui_agent.storage.recordings.reading import read_file, read_recording
from tui_agent.storage.sessions import create_session
from tui_agent.tools.base import Access, Preview, Tool, ToolContext, ToolOutput, WorkspaceView

MODEL, SMALL = "claude-opus-5-5", "claude-haiku-5-5"
WINDOW = 60_000
SYSTEM = "You work on a project of many files. Read before you edit, and run the tests."
TOOLS = ("edit_file", "glob", "grep", "read_file", "run_command")


@dataclass
class Clock:
    """The time of the recording."""

    now: float = 0.0

    def __call__(self) -> float:
        return self.now

    def pass_to(self, time: float) -> None:
        self.now = max(self.now, time)


# The recording


def recorded_script(folder: Path) -> Script:
    """A session of 110 calls in 10 turns, in the neutral format: results of every size, pauses, a large paste."""
    lines = list(Session(seed=37, calls=100, size=1.6).lines())
    _pause(lines)
    results = [line for line in lines if line["role"] == "tool"]
    results[40]["text"] = "\n".join(f"src/core/generated_{number}.py: note_{number}" for number in range(4_000))
    prompts = [line for line in lines if line["role"] == "user"]
    prompts[0]["text"] = "Look at this log:\n" + "\n".join(f"{number} step_{number} done" for number in range(5_000))
    path = folder / "session.jsonl"
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    recording = read_file(path)
    prefix = Prefix(system=SYSTEM, tools=tuple(RecordedTool(name, Clock(), {}).definition for name in TOOLS))
    return make_script(msgspec.structs.replace(recording, prefix=prefix))


def _pause(lines: list[dict[str, Any]]) -> None:
    """Before every third prompt, a pause that a cache outlives by its last answer's end, but not by its beginning."""
    prompts = [index for index, line in enumerate(lines) if line["role"] == "user"]
    for index in prompts[1::3]:
        later = lines[index - 1]["time"] + 295 - lines[index]["time"]
        for line in lines[index:]:
            line["time"] += later


class RecordedTool:
    """A tool that answers as recorded."""

    effect: Any = "write"

    def __init__(self, name: str, clock: Clock, results: dict[str, RecordedMessage]) -> None:
        self.definition = ToolDefinition(name, f"Does what {name} does.", '{"type":"object","properties":{}}')
        self._clock = clock
        self._results = results

    def access(self, arguments: str, workspace: WorkspaceView) -> tuple[Access, ...]:
        return ()

    def preview(self, arguments: str, workspace: WorkspaceView) -> Preview:
        return Preview(self.definition.name)

    async def run(self, arguments: str, context: ToolContext) -> ToolOutput:
        recorded = self._results[context.call_id]
        self._clock.pass_to(recorded.message.time)
        return ToolOutput(recorded.text)


# The replay


class Play(NamedTuple):
    """What one of both has sent and was told, call by call, and what it has entered."""

    requests: list[ModelRequest]
    used: list[Usage]
    log: list[AnyEntry]


class Watched(EnginePolicy):
    """The policy, with what it sends and is told."""

    def __init__(self, setup: PolicySetup, settings: Settings) -> None:
        super().__init__(setup, settings)
        self.requests: list[ModelRequest] = []
        self.used: list[Usage] = []

    @override
    def after(self, call: RecordedCall, used: Usage) -> None:
        assert self.prepared is not None
        self.requests.append(self.prepared.request)
        self.used.append(used)
        super().after(call, used)

    @override
    def _ask(self, asked: AskModel) -> Answer:
        answer = super()._ask(asked)
        self.requests.append(asked.request)
        self.used.append(answer.usage)
        return answer


def replayed(
    script: Script, settings: Settings, profile: ModelProfile, small: ModelProfile
) -> tuple[Watched, ReplayOutcome]:
    """The policy after a replay, and what came of it."""
    made: list[Watched] = []

    def make(setup: PolicySetup) -> EnginePolicy:
        made.append(Watched(setup, settings))
        return made[0]

    outcome = simulate(script, "layered", make, profile, small=small)
    return made[0], outcome


# The agent, over a protocol server


class CountedAnswer(Answering):
    """An answer whose tokens are counted as a replay does."""

    @override
    def _output_tokens(self) -> int:
        calls = sum(text_tokens(call.name, compact(call.args)) for call in self._step.calls)
        return calls + (text_tokens(self._step.text) if self._step.text else 0)


class RecordedServer(AnthropicServer):
    """Answers as recorded, at the recorded times, and requests for a summary with `summaries`, in order."""

    def __init__(self, script: Script, clock: Clock) -> None:
        super().__init__(self._step_for, windows={MODEL: WINDOW, SMALL: WINDOW})
        self.summaries: Iterator[str] = iter(())
        self.cache = PromptCache(clock)
        self._clock = clock
        self._fixed = script.fixed
        self._answers = iter([call.answer for call in script.calls])
        self._answered_at = 0.0

    def _step_for(self, request: ParsedRequest) -> Step:
        if asks_for_summary(request):
            return Step(text=next(self.summaries), chunk=4_000)
        answer = next(self._answers).message
        self._answered_at = answer.time
        text = "".join(block.text for block in answer.blocks if isinstance(block, Text))
        calls = [block for block in answer.blocks if isinstance(block, ToolCall)]
        asked = tuple(Call(call.name, json.loads(call.arguments), call.id) for call in calls)
        return Step(text=text, calls=asked, chunk=4_000)

    @override
    async def _messages(self, request: Request, recorded: RecordedRequest, exchange: Exchange) -> None:
        checked = self._counted(check(request.headers, request.body, self.models))
        step, fault, attempt = self.choose(parse(checked.body))
        use = self.cache.use_marked(checked.spec.id, checked.segments, checked.spec.minimum_cached)
        reply = CountedAnswer(checked, step, use, f"{checked.prefix}|{attempt}").reply()
        await self.stream(recorded.number, reply, step, fault, exchange)

    @override
    async def stream(self, number: int, reply: Reply, step: Step, fault: Fault | None, exchange: Exchange) -> None:
        self._clock.pass_to(self._answered_at)
        await super().stream(number, reply, step, fault, exchange)

    def _counted(self, checked: Checked) -> Checked:
        """The request with the tokens of a replay: the system prompt stands for the tools as well."""
        body = checked.body
        system = "".join(block["text"] for block in body.get("system", []))
        fixed = self._fixed if body.get("tools") else text_tokens(system)
        tokens = [*(0 for _ in body.get("tools", [])), *(fixed for _ in body.get("system", [])), 0]
        tokens += [_tokens_of(block) for message in body["messages"] for block in message["content"]]
        segments = [
            dataclasses.replace(segment, tokens=counted)
            for segment, counted in zip(checked.segments, tokens, strict=True)
        ]
        return dataclasses.replace(checked, segments=segments, tokens=sum(tokens))


def _tokens_of(block: dict[str, Any]) -> int:
    match block["type"]:
        case "tool_use":
            return text_tokens(block["name"], compact(block["input"]))
        case "tool_result":
            return text_tokens(block["content"])
        case _:
            return text_tokens(block["text"])


@dataclass
class Heard:
    """A model, with what it is asked; `requests` is shared by several."""

    model: Model
    requests: list[ModelRequest] = field(default_factory=list)

    @property
    def profile(self) -> ModelProfile:
        return self.model.profile

    async def stream(self, request: ModelRequest) -> AsyncGenerator[StreamEvent, None]:
        # By which id the provider knows the answer before is no part of the prompt.
        self.requests.append(msgspec.structs.replace(request, follows=None))
        async for event in self.model.stream(request):
            yield event

    async def describe(self) -> ModelProfile:
        return await self.model.describe()

    async def close(self) -> None:
        await self.model.close()


async def described(model: Heard) -> ModelProfile:
    """What the server says of a model. On a busy machine its answer may come too late, and the window is the
    catalogue's: a replay with that one would plan other steps than the agent, which asks again.
    """
    for _ in range(5):
        profile = await model.describe()
        if profile.window == WINDOW:
            return profile
    raise AssertionError(f"the server was asked five times, and {profile.name} has {profile.window} tokens")


async def played(script: Script, settings: Settings, model: Heard, small: Heard, clock: Clock) -> Play:
    """The session, as the agent plays it."""
    results = {each.call.id: each for call in script.calls for each in call.arrived if each.call is not None}
    tools: list[Tool] = [RecordedTool(name, clock, results) for name in TOOLS]
    engine = ContextEngine(settings, clock=clock)
    agent = Agent(
        model,
        tools=tools,
        system=SYSTEM,
        context=engine,
        permissions="allow",
        limits=Limits(None, None, None),
        session=SessionParts(small=lambda _: small),
    )
    for call in script.calls:
        if call.starts_turn:
            (words,) = call.arrived
            clock.pass_to(words.message.time)
            told = [event async for event in agent.run(words.text)]
            assert [event for event in told if isinstance(event, events.TurnFailed)] == []
    log = list(engine.view.log)
    await agent.close()
    calls = [entry for entry in log if isinstance(entry, UnattributedCall | Message)]
    return Play(model.requests, [entry.usage for entry in calls if entry.usage is not None], log)


def _is_answer(entry: AnyEntry) -> bool:
    return isinstance(entry, Message) and entry.role == "assistant"


# What both have entered


class Entered(NamedTuple):
    """A context entry: after how many calls, its kind, the messages it covers (by their order), and its figures."""

    calls: int
    kind: str
    covers: tuple[int, ...]
    reason: str
    before: int
    after: int
    text: str


def entered(log: list[AnyEntry]) -> list[Entered]:
    """The context entries of a log. Messages are numbered in their order, whatever else was entered between them."""
    order: dict[int, int] = {}
    found: list[Entered] = []
    calls = 0
    for entry in log:
        calls += _is_answer(entry)
        if isinstance(entry, Message | Delivered):
            order[entry.seq] = len(order)
        elif isinstance(entry, AnyContextEntry):
            covers = tuple(order[seq] for seq in covered(entry) if seq in order)
            text = getattr(entry, "text", "") or "\n".join(getattr(entry, "texts", ()))
            found.append(Entered(calls, type(entry).__name__, covers, entry.reason, entry.before, entry.after, text))
    return found


def covered(entry: AnyContextEntry) -> tuple[int, ...]:
    match entry:
        case Summarized() | Checkpointed():
            return tuple(range(entry.first, entry.last + 1))
        case Cleared() | Digested():
            return entry.results
        case Restored() | Shortened():
            return entry.items
        case Undone():
            return ()
        case _:
            raise AssertionError(entry)


def evicted(log: list[AnyEntry]) -> int:
    return sum(isinstance(entry, Message) and entry.artifact is not None for entry in log)


@pytest.mark.parametrize(
    "preset", ["layered", *(pytest.param(each, marks=pytest.mark.soak) for each in ("summary-only", "digest"))]
)
async def test_a_replay_sends_what_the_agent_sends(
    preset: Preset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Nothing but the rule may count: a tokenizer that lies on this machine would count for the agent alone.
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", "")
    script, clock = recorded_script(tmp_path), Clock()
    # A turn waits for its summaries: how long one takes that is written beside it is guessed by the replay alone.
    # Results are cleared or digested, in many small batches, only if no summary is written before its threshold.
    settings = Settings(
        compaction=CompactionSettings(background=False, thrift=4 if preset == "summary-only" else 0),
        clearing=ClearingSettings(protect_tokens=4_000, min_batch_share=0.02),
    )
    settings = msgspec.structs.replace(settings, context=msgspec.structs.replace(settings.context, preset=preset))
    with in_thread(RecordedServer(script, clock)) as server:
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        model = Heard(CATALOGUE.create_model(MODEL))
        small = Heard(CATALOGUE.create_model(SMALL), model.requests)
        policy, outcome = replayed(script, settings, await described(model), await described(small))
        server.summaries = iter(policy.summaries)
        play = await played(script, settings, model, small, clock)
    assert server.violations == []
    assert entered(play.log) == entered(list(policy.engine.view.log))
    assert play.requests == policy.requests
    assert play.used == policy.used
    # It is worth comparing only where every layer had to work, on a warm cache and on a cold one.
    kinds = {each.kind for each in entered(play.log)}
    assert kinds >= {"layered": {"Summarized", "Cleared"}, "digest": {"Summarized", "Digested"}}.get(preset, set())
    assert outcome.compactions >= 2
    assert outcome.bill.cold_calls >= 2
    assert evicted(play.log) == evicted(list(policy.engine.view.log)) >= 2
    await check_prediction(play.log, tmp_path, model.profile, small.profile)


async def check_prediction(log: list[AnyEntry], home: Path, profile: ModelProfile, small: ModelProfile) -> None:
    """What the agent has recorded is a recording whose own calls are predicted."""
    folder = create_session(home)
    store = await LogStore.open(folder)
    await store.append(log)
    await store.close()
    recording = await asyncio.to_thread(read_recording, str(folder), home)
    measured = measure(recording)
    assert measured is not None
    script = make_script(recording, measured)
    outcome = simulate(script, "as recorded", as_recorded(recording, Settings()), profile, small=small, window=WINDOW)
    accuracy = compare(recording, measured, script, outcome.used, profile)
    assert accuracy is not None
    assert len(accuracy.calls) == len(script.calls) == 110
    assert abs(error_of(accuracy.predicted.input_tokens, accuracy.recorded.input_tokens)) < 0.01
    assert abs(error_of(accuracy.predicted.cache_read_tokens, accuracy.recorded.cache_read_tokens)) < 0.01
    assert abs(error_of(*accuracy.costs)) < 0.01
    assert accuracy.close_share >= 0.95
    entries = [type(entry) for entry in log]
    assert outcome.compactions == entries.count(Summarized)
    assert outcome.clearings == entries.count(Cleared) + entries.count(Digested)
    assert outcome.bill.waited == sum(entry.usage.output_tokens for entry in log if isinstance(entry, UnattributedCall))
    assert abs(error_of(accuracy.predicted.cache_write_tokens, accuracy.recorded.cache_write_tokens)) < 0.02
