"""A caller of the context engine that keeps all in memory and answers for the models, and a conversation over it."""

import json
from collections.abc import Callable
from hashlib import sha256
from typing import TypeVar

from msgspec import structs

from tests.profiles import model_named
from tui_agent.context.effects import (
    Answer,
    Append,
    ArchiveTurns,
    AskModel,
    AskWriter,
    AwaitWriting,
    BeforeSummary,
    Effect,
    Outcome,
    Refusal,
    SaveText,
    ShrinkImages,
    StepDone,
    Steps,
    StepStarted,
    WriteInBackground,
    carry_out,
)
from tui_agent.context.engine import ContextEngine
from tui_agent.conversation.blocks import Image, Text, ToolCall, ToolResult
from tui_agent.conversation.entries import (
    Artifact,
    Message,
    ModelSwitched,
    Prefix,
    UnattributedCall,
    Usage,
    tool_result,
    user_message,
)
from tui_agent.conversation.profile import ModelProfile, Rates
from tui_agent.conversation.view import View
from tui_agent.settings import ClearingSettings, CompactionSettings, ContextSettings, Settings

T = TypeVar("T")
Writing = Callable[[AskModel | AskWriter], Answer | Refusal]

NAME = "anthropic:claude-opus-5-5"
SMALL = "anthropic:claude-haiku-5-5"
RATES = Rates(read=0.05, write=1.25, output=5.0, input_usd=4.0)
SUMMARY = "# Current state\nThe files are read one after the other.\n\n# Exact next steps\n1. Go on."
LINE = "a line of output that says little and is long enough\n"
SUMMARIES = Settings(context=ContextSettings(preset="summary-only"), compaction=CompactionSettings(thrift=0))
UNPRICED = Settings(
    clearing=ClearingSettings(by_price=False, protect_tokens=2_000), compaction=CompactionSettings(thrift=0)
)

USED = Usage(input_tokens=9_000, output_tokens=400)
COST_USD = 0.02


def written(text: str) -> Writing:
    """Every question is answered by this text."""
    return lambda asked: Answer(text, "anthropic:claude-haiku-5-5", USED, COST_USD)


def failing(asked: AskModel | AskWriter) -> Refusal:
    return Refusal("The model is overloaded.")


class Performer:
    """Carries out the steps of `engine`; `asked` has the questions, `done` the steps, `texts` what was kept by path."""

    def __init__(self, engine: ContextEngine, writing: Writing = failing, *, shrinks: bool = True) -> None:
        self.engine = engine
        self.writing = writing
        self.effects: list[Effect] = []
        self.texts: dict[str, str] = {}
        self.history = ""
        self._shrinks = shrinks

    def run(self, steps: Steps[T]) -> T:
        return carry_out(steps, self)

    @property
    def done(self) -> list[StepDone]:
        return [effect for effect in self.effects if isinstance(effect, StepDone)]

    @property
    def asked(self) -> list[AskModel | AskWriter]:
        return [effect for effect in self.effects if isinstance(effect, AskModel | AskWriter)]

    def __call__(self, effect: Effect) -> Outcome:
        self.effects.append(effect)
        match effect:
            case Append():
                self.engine.extend(effect.entries)
                return len(self.engine.view.log)
            case AskModel():
                answer = self.writing(effect)
                if isinstance(answer, Answer):
                    self.engine.extend([UnattributedCall(model=answer.model, usage=USED, purpose=effect.purpose)])
                return answer
            case AskWriter():
                return self.writing(effect)
            case SaveText():
                path = f"large_tool_results/{effect.name}"
                self.texts[path] = effect.text
                data = effect.text.encode()
                return Artifact(path, len(data), sha256(data).hexdigest(), evicted=True)
            case ArchiveTurns():
                self.history += effect.text
                return None
            case ShrinkImages():
                return tuple(map(_halved, effect.images)) if self._shrinks else None
            case WriteInBackground():
                return carry_out(effect.steps, self)
            case AwaitWriting() | BeforeSummary() | StepStarted() | StepDone():
                return None


def _halved(image: Image) -> Image:
    return structs.replace(image, data=image.data[: len(image.data) // 4], weight=image.weight / 4)


class Chat:
    """A conversation over an engine whose model counts exactly as the engine estimates."""

    def __init__(
        self,
        window: int = 40_000,
        settings: Settings = UNPRICED,
        *,
        writing: Writing = failing,
        priced: bool = False,
        small: ModelProfile | None = None,
        model: ModelProfile | None = None,
        engine: ContextEngine | None = None,
    ) -> None:
        rates = RATES if priced else None
        self.now = 1_000.0
        self.model = model or model_named(
            NAME, window=window, source="provider", tier="frontier", rates=rates, small=small
        )
        self.engine = engine or ContextEngine(settings, clock=lambda: self.now)
        self.engine.use(self.model)
        self.caller = Performer(self.engine, writing)
        self.engine.extend([ModelSwitched(model=self.model.name), Prefix(system="rules " * 100)])
        self.calls = 0

    def ask(self, text: str) -> int:
        self.engine.extend([user_message(text)])
        return len(self.engine.view.log)

    def say(self, text: str) -> None:
        self.answer(Text(text))

    def answer(self, block: Text | ToolCall) -> None:
        used = Usage(input_tokens=self.engine.tokens, output_tokens=self.engine.meter.counter.block(block))
        self.engine.extend([Message(role="assistant", blocks=(block,), model=self.model.name, usage=used)])

    def read(self, lines: int = 60, name: str = "read_file", **more: str) -> int:
        self.calls += 1
        call = ToolCall(f"c{self.calls}", name, json.dumps({"path": f"src/part_{self.calls}.py", **more}))
        self.answer(call)
        self.engine.extend([tool_result(ToolResult(call.id, LINE * lines + f"value_{self.calls} = 1"))])
        return len(self.engine.view.log)

    def turn(self, steps: int, *, pause: float = 1_000.0) -> None:
        """A turn as the agent does it, after a pause: what is due between turns, the user's words, step after step."""
        self.now += pause
        self.engine.turn_ended()
        self.run(self.engine.prepare(between_turns=True))
        self.ask("Read on.")
        for _ in range(steps - 1):
            self.run(self.engine.prepare())
            self.read(120)
        self.run(self.engine.prepare())
        self.say("That is all.")

    def grow(self, reads: int = 12, lines: int = 60) -> "Chat":
        """So many turns of a question, a read and an answer."""
        for number in range(reads):
            self.ask(f"Look at part {number}, please.")
            self.read(lines)
            self.say(f"Part {number} is fine.")
        return self

    def talk(self, turns: int = 14) -> "Chat":
        """So many turns of a long question and a long answer."""
        for number in range(turns):
            self.ask(f"Question {number}. " + LINE * 30)
            self.say(f"Answer {number}. " + LINE * 30)
        return self

    def run(self, steps: Steps[T]) -> T:
        return self.caller.run(steps)

    @property
    def tokens(self) -> int:
        return self.engine.tokens

    @property
    def shown(self) -> str:
        return "\n".join(
            block.text
            for message in self.engine.view.messages()
            for block in message.blocks
            if isinstance(block, Text | ToolResult)
        )

    def results(self) -> list[int]:
        return [item.seq for item in self.engine.view.items() if item.category == "results"]

    def changed_since(self, then: View) -> set[int]:
        """The items that are shown otherwise than they were."""
        before = {item.seq: (item.state, item.size) for item in then.items()}
        now = {item.seq: (item.state, item.size) for item in self.engine.view.items()}
        return {seq for seq, shown in before.items() if now[seq] != shown}
