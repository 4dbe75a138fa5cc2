"""Effects: what the engine asks of its caller, and a way to carry them out.

The engine decides and reads; it writes nothing and calls no model. Its methods that change something are generators:
they yield effects, are sent the outcome of each, and return a result. So the same engine serves an agent with sqlite
and a provider, a replay that only counts, and a program with its own message list.
"""

from collections.abc import Awaitable, Callable, Generator, Iterable
from hashlib import sha256
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias, TypeVar

import msgspec

from tui_agent.conversation.blocks import Block, Image, Text, ToolCall, ToolResult
from tui_agent.conversation.entries import (
    AnyContextEntry,
    AnyEntry,
    Artifact,
    Checkpointed,
    Cleared,
    Digested,
    Pinned,
    Restored,
    Shortened,
    Summarized,
    Undone,
    Usage,
    WordsEdited,
)

if TYPE_CHECKING:
    from tui_agent.conversation.request import ModelRequest
    from tui_agent.conversation.view import View

T = TypeVar("T")
Kind = TypeVar("Kind")

StepName: TypeAlias = Literal[
    "cleared",
    "digest",
    "summary",
    "checkpoint",
    "pinned",
    "unpinned",
    "restored",
    "shortened",
    "folded",
    "words",
    "undone",
]


class Refusal(msgspec.Struct, frozen=True):
    """Nothing was done; `reason`: why, a sentence for people. `final`: no other way is worth trying."""

    reason: str
    final: bool = False


class NotYet(msgspec.Struct, frozen=True):
    """A layer's answer: nothing that it could do pays before all tool results together take so many tokens."""

    results: float


class Append(msgspec.Struct, frozen=True):
    """Commit these entries together and apply them to the engine's view. Outcome: the number of the last one."""

    entries: tuple[AnyEntry, ...]


class AskModel(msgspec.Struct, frozen=True):
    """Ask a model for a text. Outcome: an `Answer`, or a `Refusal` if it failed.

    who: the conversation's own model, or the cheaper one. tokens: the size of the request. cached: its prefix is
    probably in the provider's cache.
    """

    who: Literal["session", "small"]
    request: "ModelRequest"
    purpose: Literal["summary", "digest"]
    tokens: int
    cached: bool = False


class AskWriter(msgspec.Struct, frozen=True):
    """Have the caller's own `Compactor` or `Checkpointer` write a text. Outcome: as of `AskModel`.

    parts: the transcript of what leaves the view, oldest first. instruction: what to write. subject: the user's focus
    or note.
    """

    step: Literal["summary", "checkpoint"]
    parts: tuple[str, ...]
    instruction: str
    subject: str


class SaveText(msgspec.Struct, frozen=True):
    """Save a text where ``read_file`` can read it. Outcome: its `Artifact`."""

    name: str
    text: str


class ArchiveTurns(msgspec.Struct, frozen=True):
    """Append turns that leave the view to the history of this name. Outcome: None."""

    thread: str
    text: str


class ShrinkImages(msgspec.Struct, frozen=True):
    """Halve each side of these pictures. Outcome: as many pictures in the same order, or None if that is impossible."""

    images: tuple[Image, ...]


class WriteInBackground(msgspec.Struct, frozen=True):
    """Carry out `steps`, which write a summary, in the background while the conversation goes on. Outcome: None.

    A caller without concurrency may carry them out before it answers.
    """

    steps: "Steps[None]"


class AwaitWriting(msgspec.Struct, frozen=True):
    """Wait until the steps of the newest `WriteInBackground` have ended or were stopped. Outcome: None."""


class BeforeSummary(msgspec.Struct, frozen=True):
    """A summary is about to be written. Outcome: a `Refusal` if it must not be, what it is asked to keep, or None.

    focus: what the user asks to keep above all. asked: they asked for the summary.
    """

    reason: str
    focus: str
    asked: bool


class StepStarted(msgspec.Struct, frozen=True):
    """A step that asks a model begins. Outcome: None.

    tokens: the size of the next request. first, last: the entries that the summary or record will replace, in about
    `writes` tokens. in_background: the conversation goes on meanwhile.
    """

    step: StepName
    tokens: int
    reason: str
    first: int = 0
    last: int = 0
    writes: int = 0
    in_background: bool = False


class StepDone(msgspec.Struct, frozen=True):
    """A step has changed the view, or failed (`error`). Outcome: None.

    before, after: tokens of the next request. entry: the entry to undo; None: nothing was entered. items: how many
    messages or results it covers. text: what is shown in their place. saved_usd, saving_usd: as in the entry. details:
    for the trace only.
    """

    step: StepName
    before: int
    after: int
    reason: str
    entry: AnyContextEntry | None = None
    items: int = 0
    text: str = ""
    error: str = ""
    cost_usd: float | None = None
    saved_usd: float = 0.0
    saving_usd: float = 0.0
    details: tuple[tuple[str, object], ...] = ()

    @property
    def seq(self) -> int:
        """The number of its entry; 0: none."""
        return self.entry.seq if self.entry is not None else 0


def step_of(entry: AnyContextEntry) -> StepDone:
    step: StepName
    items, text, cost = 1, "", None
    match entry:
        case Cleared():
            step, items, text = "cleared", len(entry.results), entry.texts[0] if entry.texts else ""
        case Digested():
            step, items, text = "digest", len(entry.results), entry.text
        case Summarized() | Checkpointed():
            step, items, text, cost = entry.compaction, 0, entry.text, entry.cost_usd
        case Pinned():
            step, items = "pinned" if entry.pinned else "unpinned", len(entry.items)
        case Restored():
            step, items = "restored", len(entry.items)
        case Shortened(episodes=folded):
            step, items = ("folded", len(folded)) if folded else ("shortened", len(entry.items))
            text = _shown_of(entry)
        case WordsEdited():
            step, items = "words", len(entry.edits)
        case Undone():
            step = "undone"
    return StepDone(
        step,
        entry.before,
        entry.after,
        entry.reason,
        entry=entry,
        items=items,
        text=text,
        cost_usd=cost,
        saved_usd=entry.saved_usd,
        saving_usd=entry.saving_usd,
    )


def _shown_of(entry: Shortened) -> str:
    """The text shown in place of each shortened message and result, with its number."""
    return "\n\n".join(
        f"Message {seq}:\n" + "\n".join(filter(None, map(_shown_block, blocks)))
        for seq, blocks in zip(entry.items, entry.blocks, strict=True)
        if blocks or not entry.episodes
    )


def _shown_block(block: Block) -> str:
    if isinstance(block, ToolCall):
        return f"{block.name} {block.arguments}"
    if isinstance(block, Image):
        return "[a smaller picture]"
    return block.text if isinstance(block, Text | ToolResult) else ""


class Answer(msgspec.Struct, frozen=True):
    """A model's text, its name, and the usage; `cost_usd`: None if prices are unknown. `signed`: the text as a summary
    that the provider signed, in its adapter's opaque form.
    """

    text: str
    model: str
    usage: Usage
    cost_usd: float | None
    signed: str = ""


Effect: TypeAlias = (
    Append
    | AskModel
    | AskWriter
    | SaveText
    | ArchiveTurns
    | ShrinkImages
    | WriteInBackground
    | AwaitWriting
    | BeforeSummary
    | StepStarted
    | StepDone
)
Outcome: TypeAlias = int | Answer | Refusal | Artifact | tuple[Image, ...] | str | None
Steps: TypeAlias = Generator[Effect, Outcome, T]


class WrongOutcome(TypeError):
    """A caller answered an effect with an outcome of the wrong type."""


def expect(kind: type[Kind], outcome: Outcome) -> Kind:
    """Check that `outcome` is of this kind, and return it. Raises `WrongOutcome`."""
    if not isinstance(outcome, kind):
        raise WrongOutcome(f"expected {kind.__name__}, got {type(outcome).__name__}")
    return outcome


class Extendable(Protocol):
    """The part of the engine that `MemoryHost` uses."""

    view: "View"

    def extend(self, entries: Iterable[AnyEntry], /) -> None: ...


class MemoryHost:
    """Carries out effects for a conversation that is kept in memory only.

    `ask` calls a model; by default none is called, and summaries are extracts. `texts`: the saved texts by path.
    `done`: the steps so far.
    """

    def __init__(self, engine: "Extendable", ask: Callable[[AskModel], Answer | Refusal] | None = None) -> None:
        self.texts: dict[str, str] = {}
        self.done: list[StepDone] = []
        self._engine = engine
        self._ask = ask

    def run(self, steps: Steps[T]) -> T:
        """Carry out every effect of `steps`, and return their result."""
        return carry_out(steps, self)

    def save(self, name: str, text: str, *, evicted: bool = True) -> Artifact:
        """Save a text; equal texts are saved once, whatever their names."""
        path = next((path for path, kept in self.texts.items() if kept == text), f"large_tool_results/{name}")
        self.texts[path] = text
        data = text.encode()
        return Artifact(path, len(data), sha256(data).hexdigest(), evicted)

    def __call__(self, effect: Effect) -> Outcome:
        match effect:
            case Append():
                self._engine.extend(effect.entries)
                return len(self._engine.view.log)
            case AskModel():
                return self._ask(effect) if self._ask is not None else Refusal("there is no model to ask")
            case AskWriter():
                return Refusal("there is no writer")
            case SaveText():
                return self.save(effect.name, effect.text)
            case ArchiveTurns():
                path = f"conversation_history/{effect.thread}.md"
                self.texts[path] = self.texts.get(path, "") + effect.text
                return None
            case StepDone():
                self.done.append(effect)
                return None
            case WriteInBackground():
                return self.run(effect.steps)
            case ShrinkImages() | AwaitWriting() | BeforeSummary() | StepStarted():
                return None


def carry_out(steps: Steps[T], perform: Callable[[Effect], Outcome]) -> T:
    """Carry out every effect of `steps` in order, and return their result."""
    outcome: Outcome = None
    try:
        while True:
            outcome = perform(steps.send(outcome))
    except StopIteration as done:
        result: T = done.value
        return result
    finally:
        steps.close()


class AsyncMemoryHost(MemoryHost):
    """As `MemoryHost`, for a program with an event loop: `asking` awaits a model.

    A summary that is written in the background is written before the steps go on.
    """

    def __init__(
        self, engine: "Extendable", asking: Callable[[AskModel], Awaitable[Answer | Refusal]] | None = None
    ) -> None:
        super().__init__(engine)
        self._asking = asking

    async def carry_out(self, steps: Steps[T]) -> T:
        """Carry out every effect of `steps`, and return their result."""
        return await carry_out_async(steps, self._perform)

    async def _perform(self, effect: Effect) -> Outcome:
        if isinstance(effect, AskModel) and self._asking is not None:
            return await self._asking(effect)
        return await self.carry_out(effect.steps) if isinstance(effect, WriteInBackground) else self(effect)


async def carry_out_async(steps: Steps[T], perform: Callable[[Effect], Awaitable[Outcome]]) -> T:
    """As `carry_out`, with a function that is awaited for each effect."""
    outcome: Outcome = None
    try:
        while True:
            outcome = await perform(steps.send(outcome))
    except StopIteration as done:
        result: T = done.value
        return result
    finally:
        steps.close()
