"""Random walks through what can happen to a session, each in processes that can be killed at any event.

A walk is told by its seed alone: the steps of a killed process go on in the next one, over what lies on disk.
"""

import asyncio
import hashlib
import os
import random
import signal
import traceback
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Final, NamedTuple

from msgspec import structs
from msgspec.json import encode as encode_json

from tests.agent.extensions.test_hooks import hook
from tests.agent.summaries import HANDOVER, asks_for_summary
from tests.agent.talking import talking
from tests.conversation.logs import broken_rules
from tests.forked import forking, start
from tests.servers.script import Call, Fault, ParsedRequest, Step
from tests.storage.test_damage import damage
from tui_agent.agent import events
from tui_agent.agent.agent import Agent
from tui_agent.agent.branches import EarlierPrompt
from tui_agent.conversation.entries import AnyEntry, HeadMoved, ModelSwitched, encode, model_call
from tui_agent.conversation.log import because_of
from tui_agent.conversation.request import ModelRequest
from tui_agent.conversation.view import View
from tui_agent.models.anthropic.request import AnthropicEncoder, AnthropicOptions
from tui_agent.models.choice import configured_model
from tui_agent.models.gemini.request import GeminiEncoder
from tui_agent.models.openai.chat_request import ChatEncoder, ChatOptions
from tui_agent.models.openai.responses_request import ResponsesEncoder, ResponsesOptions
from tui_agent.session import Session
from tui_agent.storage.log import LOG_NAME, read_entries
from tui_agent.storage.verify import verify
from tui_agent.tools.base import PermissionAnswer, PermissionQuestion
from tui_agent.tools.gate.permissions import NobodyToAsk

MODELS: Final = {
    "anthropic": ("claude-opus-5-5", "claude-sonnet-5-5", "claude-haiku-4-5"),
    "gemini": ("gemini-3.1-pro-preview", "gemini-3.8-flash", "gemini-2.5-pro"),
    "responses": ("responses:gpt-6.1-sol", "responses:gpt-4.1"),
    "vllm": ("vllm:deepseek-v4-pro", "vllm:qwen/qwen3-coder"),
}
WINDOW: Final = 36_000
"""Tokens: so small that every layer has to work within a few steps."""
EARLY: Final = {f"compaction.threshold_by_tier.{tier}": "0.5" for tier in ("frontier", "mid", "small")}
ENDPOINTS: Final = encode_json(
    {
        "responses": {
            "url": "ADDRESS",
            "key": "OPENAI_API_KEY",
            "api": "responses",
            "models": {name: {"window": WINDOW} for name in ("gpt-6.1-sol", "gpt-4.1")},
        }
    }
).decode()
SIZES: Final = (40, 400, 4_000, 12_000, 40_000)


def answering(request: ParsedRequest) -> Step:
    """What the model of a walk answers: its prompts say what it does."""
    if asks_for_summary(request):
        # Some are written at once, some while much else happens, some fail.
        chance = random.Random(len(request.prompt))
        fails = Fault(kind="bad_request") if chance.random() < 0.15 else None
        return Step(text=HANDOVER, delay=chance.choice((0.0, 0.0, 0.05, 0.3)), chunk=200, fault=fails)
    if "compaction" in request.body:
        chance = random.Random(len(str(request.body["messages"])))
        fails = Fault(kind="bad_request") if chance.random() < 0.15 else None
        return Step(delay=chance.choice((0.0, 0.0, 0.1, 0.5)), fault=fails)
    words = request.prompt.split()
    verb, number = (words[0], int(words[1])) if len(words) > 1 and words[1].isdigit() else ("", 0)
    if verb == "plan" and request.position == 0:
        return Step(
            text="This is what I would do.", calls=(Call("submit_plan", {"plan": "Mend it.", "steps": ["one"]}),)
        )
    fault = {"overflow": "context_overflow", "refuse": "bad_request"}.get(verb)
    if request.position < number % 3 + 1 and verb in ("read", "overflow"):
        count = 1 + (number + request.position) % 3
        calls = tuple(Call("read_file", {"path": f"{(number + each) % len(SIZES)}.txt"}) for each in range(count))
        return Step(reasoning=f"I read {count}.", text="One moment.", calls=calls, chunk=40)
    struck = Fault(kind="context_overflow" if fault == "context_overflow" else "bad_request") if fault else None
    return Step(reasoning="So it is.", text=f"Done: {request.prompt[:60]}", fault=struck, chunk=40)


def musing(request: ParsedRequest) -> Step:
    """The same, from a model that thinks so long that its thinking is worth keeping."""
    step = answering(request)
    return structs.replace(step, reasoning=step.reasoning * 200, chunk=400)


def material(folder: Path) -> None:
    """The files that are read."""
    folder.mkdir(parents=True)
    for number, size in enumerate(SIZES):
        lines = "".join(f"line {each} of {number} has item_{number}_{each}\n" for each in range(size // 28 + 1))
        (folder / f"{number}.txt").write_text(lines[:size])


@dataclass
class Walk:
    """One walk: what is told by its seed, and what is known of it so far.

    `marks` are lengths of the log that some process has seen, each with a digest of all entries up to it. `damaged`: a
    row was damaged at some time.
    """

    folder: Path
    provider: str
    seed: int
    steps: int
    name: str = ""
    damaged: bool = False
    done: int = 0
    marks: dict[int, str] = field(default_factory=dict)

    @property
    def settings(self) -> dict[str, str]:
        """Settings that let every layer work early."""
        return {
            # A session that goes on does so with the model it had.
            "model.id": "" if self.name else MODELS[self.provider][0],
            "safety.small_tier_parent": "allow",
            "compaction.keep_recent_tokens": "2000",
            "context.preset": ("layered", "digest")[self.seed % 5 == 0],
            # Early enough for a summary to be under way most of the time.
            **(EARLY if self.seed % 2 else {}),
            "models.endpoints": ENDPOINTS.replace(
                "ADDRESS", os.environ.get("OPENAI_BASE_URL", "http://127.0.0.1:1/v1")
            ),
            "watchdog.mode": "off",
        }


class Told(NamedTuple):
    """What a process of a walk tells: an event, a step that is done, the end, or what went wrong."""

    kind: str
    step: int = 0
    name: str = ""
    length: int = 0
    digest: str = ""
    text: str = ""


class Digests:
    """Digests of every beginning of a log."""

    def __init__(self) -> None:
        self._hash = hashlib.blake2b(digest_size=16)
        self.of: list[str] = [""]

    def follow(self, entries: list[AnyEntry]) -> str:
        for entry in entries[len(self.of) - 1 :]:
            self._hash.update(encode(entry))
            self.of.append(self._hash.hexdigest())
        return self.of[-1]


class Walker:
    """Does the steps of a walk in this process. Raises AssertionError where something does not hold."""

    def __init__(self, walk: Walk, tell: Callable[[Told], None]) -> None:
        self._walk = walk
        self._tell = tell
        self._digests = Digests()

    async def run(self) -> None:
        """All steps that are left, the session closed and opened again where the walk says so."""
        walk, before = self._walk, (b"", 0)
        while True:
            if walk.seed % 3 == 0 and not (walk.folder / "home/hooks.json").exists():
                hook(walk.folder / "home", "echo at $(date +%s%N)", event="UserPromptSubmit")
            async with talking(walk.folder, walk.settings, ask=person, resume=walk.name or None) as session:
                self._know(session, before)
                again = await self._steps(session)
                before = (b"", 0)
                # A summary that is written by then is entered when the session is closed.
                if session.agent.engine.writing is None:
                    before = request_bytes(walk.provider, session), session.agent.context_stats().tokens
                said = len(session.agent.engine.view.log)
            if said:
                problems = verify(session.folder).problems
                assert all(walk.damaged and "was lost" in problem for problem in problems), problems
                if again and walk.seed % 4 == 1 and random.Random(walk.seed + walk.done).random() < 0.7:
                    before = (b"", 0)
                    self._damage(session.folder, said)
            else:
                # A session in which nothing was said leaves nothing.
                assert not session.folder.exists()
                walk.name = ""
            if not again:
                return

    def _damage(self, folder: Path, length: int) -> None:
        """Damage a row, as a disk would; what is known of the others has to hold no more as a digest of all."""
        self._walk.marks.clear()
        self._walk.damaged = True
        self._digests = Digests()
        self._tell(Told("damaged"))
        chance = random.Random(self._walk.seed * 1_000 + length)
        before = list(read_entries(folder / LOG_NAME))
        # Without the model's name, the session would go on with one that has no server here.
        seq = chance.choice([entry.seq for entry in before if not isinstance(entry, ModelSwitched)])
        damage(folder / LOG_NAME, seq, chance)
        after = list(read_entries(folder / LOG_NAME))
        assert all(was == now or was.seq == seq for was, now in zip(before, after, strict=False)), seq

    async def _steps(self, session: Session) -> bool:
        """Do steps until the session is to be closed and opened again, or (False) all are done."""
        walk = self._walk
        session.agent.listen(lambda _: self._tell(Told("event")))
        while walk.done < walk.steps:
            chance = random.Random(walk.seed * 1_000 + walk.done)
            walk.done += 1
            kind = chance.choices(tuple(STEPS), [weight for weight, _ in STEPS.values()])[0]
            await STEPS[kind][1](session.agent, chance, lambda: self._tell(Told("event")))
            self._check(session, kind)
            if chance.random() < 0.15:
                return True
        return False

    def _know(self, session: Session, before: tuple[bytes, int]) -> None:
        """Nothing that any process has seen is missing; the next request, and what is told of its size, is what it was
        `before` the session was closed.
        """
        self._walk.name = session.id
        entries = list(session.agent.engine.view.log)
        self._digests.follow(entries)
        for length, digest in self._walk.marks.items():
            assert len(entries) >= length, f"{length - len(entries)} entries are lost"
            assert self._digests.of[length] == digest, f"what was said up to entry {length} is another"
        wanted, tokens = before
        if wanted:
            assert request_bytes(self._walk.provider, session) == wanted, "the request changed with the restart"
            assert session.agent.context_stats().tokens == tokens, "its size changed with the restart"

    def _check(self, session: Session, kind: str) -> None:
        agent, view = session.agent, session.agent.engine.view
        entries = list(view.log)
        assert broken_rules(view.messages()) == [], kind
        assert View(entries).messages(view.policy) == view.messages(), f"after {kind} the fold is another at once"
        costs = [call.cost_usd or 0.0 for entry in entries if (call := model_call(entry)) is not None]
        # What a summary under way has cost is counted a moment before it is on disk.
        assert abs(sum(costs) - agent.tracker.session.cost_usd) < 1e-9 or agent.engine.writing is not None, kind
        stats = agent.context_stats()
        assert sum(stats.categories.values()) == stats.tokens, kind
        path = set(view.log.path().numbers)
        for entry in entries:
            because = because_of(entry)
            assert entry.seq not in path or because in {0, *path}, f"after {kind}, {entry} stands without {because}"
        # Without a message to go back to, the step did nothing.
        moved = any(isinstance(entry, HeadMoved) for entry in entries[len(self._digests.of) - 1 :])
        if moved and kind in ("rewind", "undo turn", "fork", "switch"):
            assert agent.turns.queued() == (), "what waits on another branch would be delivered here"
            assert view.mode in ("", agent.permissions.mode), f"after {kind}, the mode is not that of the time"
        digest = self._digests.follow(entries)
        self._walk.marks[len(entries)] = digest
        self._tell(Told("step", self._walk.done, session.id, len(entries), digest))


def request_bytes(provider: str, session: Session) -> bytes:
    """The next request as its provider would get it, cache marks aside."""
    view = session.agent.engine.view
    prefix = view.prefix
    request = ModelRequest(
        system=prefix.system if prefix else "",
        tools=prefix.tools if prefix else (),
        messages=tuple(view.messages()),
        max_tokens=1,
        cache_edges=(),
    )
    name = session.agent.profile.id
    match provider:
        case "gemini":
            return GeminiEncoder(name).encode(request)
        case "responses":
            return ResponsesEncoder().encode(request, ResponsesOptions(name, reasons=True, summaries=True))
        case "vllm":
            return ChatEncoder().encode(request, ChatOptions(name, "max_tokens", "content", sees=True))
        case _:
            pass
    return AnthropicEncoder().encode(request, AnthropicOptions(name, "adaptive", bound=True))


# The steps

Do = Callable[[Agent, random.Random, Callable[[], None]], Awaitable[None]]


async def turn(agent: Agent, prompt: str, on_event: Callable[[events.AgentEvent], Awaitable[None]]) -> None:
    begun: list[str] = []
    async for event in agent.run(prompt):
        if isinstance(event, events.TurnStarted | events.ToolStarted):
            begun.append("begun")
        elif isinstance(event, events.TurnFinished | events.ToolFinished):
            begun.pop()
        await on_event(event)
    assert begun == [], "something was told to begin and not to end"


def talk(verb: str) -> Do:
    async def step(agent: Agent, chance: random.Random, tell: Callable[[], None]) -> None:
        async def on_event(_: events.AgentEvent) -> None:
            tell()

        await turn(agent, f"{verb} {chance.randrange(100)} please", on_event)

    return step


async def interrupted(agent: Agent, chance: random.Random, tell: Callable[[], None]) -> None:
    left = chance.randrange(40)

    async def on_event(_: events.AgentEvent) -> None:
        nonlocal left
        tell()
        left -= 1
        if left == 0:
            agent.interrupt()

    await turn(agent, f"read {chance.randrange(100)} please", on_event)


async def queued(agent: Agent, chance: random.Random, tell: Callable[[], None]) -> None:
    """A text is sent during the turn, and sometimes taken back, or left where the turn is stopped."""
    sent: list[int] = []
    what = chance.choice(("deliver", "withdraw", "stop"))

    async def on_event(event: events.AgentEvent) -> None:
        tell()
        if isinstance(event, events.ToolStarted) and not sent:
            sent.append(await agent.queue(f"say {chance.randrange(100)} too"))
            if what == "withdraw":
                await agent.turns.withdraw(sent[0])
            elif what == "stop":
                agent.interrupt()

    await turn(agent, f"read {chance.randrange(100)} please", on_event)


async def compact(agent: Agent, chance: random.Random, tell: Callable[[], None]) -> None:
    await agent.compact(chance.choice(("", "the items")))


async def checkpoint(agent: Agent, chance: random.Random, tell: Callable[[], None]) -> None:
    await agent.checkpoint("it is done")


async def clear(agent: Agent, chance: random.Random, tell: Callable[[], None]) -> None:
    await agent.context.clear_results()


async def clear_one(agent: Agent, chance: random.Random, tell: Callable[[], None]) -> None:
    await agent.context.clear_results(some_items(agent, chance))


async def pin(agent: Agent, chance: random.Random, tell: Callable[[], None]) -> None:
    await agent.context.pin(some_items(agent, chance), pinned=chance.random() < 0.7)


async def restore(agent: Agent, chance: random.Random, tell: Callable[[], None]) -> None:
    await agent.context.restore(some_items(agent, chance))


async def undo(agent: Agent, chance: random.Random, tell: Callable[[], None]) -> None:
    steps = [entry.seq for entry, _ in agent.engine.view.context_entries()]
    await agent.context.undo(chance.choice([None, *steps]))


async def rewind(agent: Agent, chance: random.Random, tell: Callable[[], None]) -> None:
    if said := agent.branches.prompts():
        await rewind_to(agent, chance.choice(said))


async def rewind_to(agent: Agent, prompt: EarlierPrompt) -> None:
    """Rewind: what the user typed comes back, and so does what waited and waits no more."""
    waited = agent.turns.queued()
    back = await agent.branches.rewind(prompt.seq)
    assert back.startswith(prompt.text)
    still = agent.turns.queued()
    assert all(text in back for seq, text in waited if (seq, text) not in still), "a waiting text is lost"


async def undo_turn(agent: Agent, chance: random.Random, tell: Callable[[], None]) -> None:
    if said := agent.branches.prompts():
        await rewind_to(agent, said[-1])


async def person(question: PermissionQuestion) -> PermissionAnswer:
    """Approves most plans, sends some back, and is not always there."""
    chance = random.Random(question.call_id)
    what = chance.choice(("ask", "auto", "back", "away"))
    if what == "away":
        raise NobodyToAsk(question)
    return PermissionAnswer(what != "back", choice=what, feedback="not yet" if what == "back" else "")


async def shell(agent: Agent, chance: random.Random, tell: Callable[[], None]) -> None:
    await agent.run_shell(f"seq 1 {chance.choice((3, 300, 3_000))}; exit {chance.randrange(2)}")


async def shell_meanwhile(agent: Agent, chance: random.Random, tell: Callable[[], None]) -> None:
    ran: list[str] = []

    async def on_event(event: events.AgentEvent) -> None:
        tell()
        if isinstance(event, events.ToolStarted) and not ran:
            ran.append("echo meanwhile")
            await agent.run_shell(ran[0])

    await turn(agent, f"read {chance.randrange(100)} please", on_event)


async def plan(agent: Agent, chance: random.Random, tell: Callable[[], None]) -> None:
    """Plan mode; the plan is approved, sent back, or waits for words; sometimes all of it is taken back."""

    async def on_event(_: events.AgentEvent) -> None:
        tell()

    agent.permissions.mode = "plan"
    await turn(agent, f"plan {chance.randrange(100)} please", on_event)
    if chance.random() < 0.5:
        await turn(agent, "approve", on_event)
    if chance.random() < 0.5:
        planned = [prompt for prompt in agent.branches.prompts() if prompt.text.startswith("plan ")]
        if planned:
            await rewind_to(agent, planned[-1])
            assert agent.permissions.mode == "plan", "an approval that was taken back counts"
            assert not agent.context.todo().items or any(p.text.startswith("plan ") for p in agent.branches.prompts())


async def again(agent: Agent, chance: random.Random, tell: Callable[[], None]) -> None:
    """A prompt that fails is sent again and again: it stands once. What waited comes back with it."""
    prompt, waiting = f"refuse {chance.randrange(100)} please", f"and {chance.randrange(100)} too"
    sent: list[int] = []

    async def on_event(event: events.AgentEvent) -> None:
        tell()
        if isinstance(event, events.ModelCallStarted) and not sent:
            sent.append(await agent.queue(waiting))

    for _ in range(3):
        await turn(agent, prompt, on_event)
    newest: list[str] = []
    for said in reversed(list(agent.branches.history())):
        if isinstance(said, events.AssistantMessage):
            break
        newest += [said.text] if isinstance(said, events.UserMessage) else []
    assert newest.count(prompt) <= 1, "it stands more than once"
    if chance.random() < 0.5 and (found := [each for each in agent.branches.prompts() if each.text == prompt]):
        await rewind_to(agent, found[-1])


async def stop_and_again(agent: Agent, chance: random.Random, tell: Callable[[], None]) -> None:
    """A prompt whose turn is stopped is sent again: it stands once."""
    prompt, left = f"read {chance.randrange(100, 1_000)} of {chance.random()} please", chance.randrange(3, 30)

    async def on_event(event: events.AgentEvent) -> None:
        nonlocal left
        tell()
        left -= 1
        if left == 0:
            agent.interrupt()
        # A stop may come after the whole answer.
        answered.append(isinstance(event, events.AssistantMessage) and event.stop_reason == "end_turn")

    answered: list[bool] = []
    for _ in range(3):
        if not any(answered):
            await turn(agent, prompt, on_event)
    said = [each.text for each in agent.branches.prompts()]
    assert said.count(prompt) <= 1, "it stands more than once"


async def fork(agent: Agent, chance: random.Random, tell: Callable[[], None]) -> None:
    if agent.engine.view.head:
        await agent.branches.fork(chance.choice([None, *some_items(agent, chance)]))


async def switch(agent: Agent, chance: random.Random, tell: Callable[[], None]) -> None:
    tips = [branch.tip for branch in agent.branches.all()]
    if tips:
        await agent.branches.switch(chance.choice(tips))


async def swap(agent: Agent, chance: random.Random, tell: Callable[[], None]) -> None:
    provider = agent.profile.provider
    await agent.swap_model(configured_model(agent.settings, chance.choice(MODELS[provider])))


async def type_prompt(agent: Agent, chance: random.Random, tell: Callable[[], None]) -> None:
    await agent.prepare_ahead()


async def stop_writing(agent: Agent, chance: random.Random, tell: Callable[[], None]) -> None:
    agent.context.stop_writing()


def some_items(agent: Agent, chance: random.Random) -> list[int]:
    numbers = [item.seq for item in agent.context.items()]
    return chance.sample(numbers, min(len(numbers), chance.randint(1, 3)))


STEPS: Final[Mapping[str, tuple[int, Do]]] = {
    "say": (6, talk("say")),
    "read": (12, talk("read")),
    "overflow": (2, talk("overflow")),
    "refuse": (2, talk("refuse")),
    "interrupt": (4, interrupted),
    "queue": (4, queued),
    "compact": (4, compact),
    "checkpoint": (2, checkpoint),
    "clear": (2, clear),
    "clear one": (2, clear_one),
    "pin": (2, pin),
    "restore": (2, restore),
    "undo": (3, undo),
    "rewind": (4, rewind),
    "undo turn": (2, undo_turn),
    "shell": (4, shell),
    "shell meanwhile": (3, shell_meanwhile),
    "plan": (4, plan),
    "again": (3, again),
    "stop and again": (3, stop_and_again),
    "fork": (3, fork),
    "switch": (4, switch),
    "swap": (2, swap),
    "type": (3, type_prompt),
    "stop writing": (2, stop_writing),
}


# The processes


def child(connection: Connection, walk: Walk, environment: dict[str, str]) -> None:
    """Go on with a walk, and tell of it."""
    os.environ |= environment
    try:
        asyncio.run(Walker(walk, connection.send).run())
    except BaseException:
        connection.send(Told("failed", walk.done, text=traceback.format_exc()))
    else:
        connection.send(Told("end"))


def go(walk: Walk, environment: Mapping[str, str]) -> None:
    """Do a walk to its end, killed at random events. Raises AssertionError where something does not hold."""
    processes = forking("tests.agent.walk_preload")
    chance = random.Random(walk.seed)
    while True:
        ours, theirs = processes.Pipe(duplex=False)
        process = processes.Process(target=child, args=(theirs, walk, dict(environment)))
        start(process)
        theirs.close()
        events_left = chance.randrange(10, 150) if chance.random() < 0.5 else 0
        try:
            ended = _follow(walk, ours, process.pid or 0, events_left)
        finally:
            ours.close()
            process.join()
        if ended:
            return


def _follow(walk: Walk, connection: Connection, pid: int, events_left: int) -> bool:
    """Take in what a process tells, and kill it after so many events (0: never). Whether the walk is at its end."""
    while True:
        try:
            told: Told = connection.recv()
        except EOFError:
            return False
        match told.kind:
            case "step":
                # Nothing lasts of a session in which nothing was said.
                walk.done, walk.name = told.step, told.name if told.length else ""
                walk.marks[told.length] = told.digest
            case "damaged":
                walk.marks.clear()
                walk.damaged = True
            case "end":
                return True
            case "failed":
                raise AssertionError(f"seed {walk.seed} ({walk.provider}), step {told.step}:\n{told.text}")
            case _:
                events_left -= 1
                if events_left == 0:
                    # The step it was in is not done again: what of it lies on disk is what there is.
                    walk.done += 1
                    os.kill(pid, signal.SIGKILL)
