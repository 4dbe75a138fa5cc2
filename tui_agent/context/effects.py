"""What the engine asks of its caller, and how a caller carries it out.

The engine decides and reads; it writes nothing and asks no model. Its methods that change something are generators:
each yields one effect after the other, is sent what came of it, and returns its result at the end. So the same engine
serves an agent over sqlite and a provider, a replay that only counts, and a program with a list of its own.
"""

from collections.abc import Callable, Generator, Iterable
from hashlib import sha256
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol, TypeAlias, TypeVar

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
    "cleared", "digest", "summary", "checkpoint", "pinned", "unpinned", "restored", "shortened", "words", "undone"
]


class Refusal(NamedTuple):
    """Nothing is done, and `reason` is one sentence that tells people why. `final`: no other way is worth trying."""

    reason: str
    final: bool = False


class Append(NamedTuple):
    """Commit these entries together and apply them to the engine's view; answered by the number of the last one."""

    entries: tuple[AnyEntry, ...]


class AskModel(NamedTuple):
    """Ask a model for a text; answered by an `Answer`, or by a `Refusal` where it failed.

    `who`: the conversation's own model, or the cheaper one beside it. `tokens` is the size of the request, of which the
    provider's cache probably holds the prefix where `cached`.
    """

    who: Literal["session", "small"]
    request: "ModelRequest"
    purpose: Literal["summary", "digest"]
    tokens: int
    cached: bool = False


class AskWriter(NamedTuple):
    """Have the caller's own writer (a `Compactor`, a `Checkpointer`) write a text; answered as `AskModel` is.

    `parts` is the transcript of what leaves the view, oldest first; `instruction` says what is asked for, `subject` is
    the user's focus or note.
    """

    step: Literal["summary", "checkpoint"]
    parts: tuple[str, ...]
    instruction: str
    subject: str


class SaveText(NamedTuple):
    """Keep a text where ``read_file`` finds it; answered by its `Artifact`."""

    name: str
    text: str


class ArchiveTurns(NamedTuple):
    """Add turns that leave the view to the history of this name; answered by None."""

    thread: str
    text: str


class ShrinkImages(NamedTuple):
    """Make these pictures smaller, each side halved; answered by `Shrunk`, or by None where that cannot be."""

    images: tuple[Image, ...]


class Shrunk(NamedTuple):
    """The answer to `ShrinkImages`: as many pictures, in the same order."""

    images: tuple[Image, ...]


class WriteBeside(NamedTuple):
    """Carry `steps` out beside all else, while the conversation goes on: they have a summary written. Answered by None.

    A caller that does one thing at a time may carry them out before it answers.
    """

    steps: "Steps[None]"


class AwaitWriting(NamedTuple):
    """Wait until the steps of the newest `WriteBeside` are over, or were stopped. Answered by None."""


class StepStarted(NamedTuple):
    """A step that asks a model begins; `tokens` is the size of the next request. Answered by None.

    A summary or record is to replace the entries from `first` to `last`, in about `writes` tokens; `beside`: the
    conversation goes on meanwhile.
    """

    step: StepName
    tokens: int
    reason: str
    first: int = 0
    last: int = 0
    writes: int = 0
    beside: bool = False


class StepDone(NamedTuple):
    """A step has changed the view, or (`error`) came to nothing. Sizes in tokens of the next request; answered by None.

    `entry` is the entry to undo (None: nothing was entered), `items` how many messages or results it covers, `text`
    what is shown in their place, `details` what only a record of the session keeps.
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
    details: tuple[tuple[str, object], ...] = ()


def step_of(entry: AnyContextEntry) -> StepDone:
    """What an entered decision has done."""
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
        case Shortened():
            step, items, text = "shortened", len(entry.items), _shown_of(entry)
        case WordsEdited():
            step, items = "words", len(entry.edits)
        case Undone():
            step = "undone"
    return StepDone(step, entry.before, entry.after, entry.reason, entry=entry, items=items, text=text, cost_usd=cost)


def _shown_of(entry: Shortened) -> str:
    """What is shown in place of each message and result, by its number."""
    return "\n\n".join(
        f"Message {seq}:\n" + "\n".join(filter(None, map(_shown_block, blocks)))
        for seq, blocks in zip(entry.items, entry.blocks, strict=True)
    )


def _shown_block(block: Block) -> str:
    match block:
        case Text() | ToolResult():
            return block.text
        case ToolCall():
            return f"{block.name} {block.arguments}"
        case Image():
            return "[a smaller picture]"
        case _:
            return ""


class Answer(NamedTuple):
    """What a model wrote, which one, and what that took; `cost_usd` None: its prices are not known."""

    text: str
    model: str
    usage: Usage
    cost_usd: float | None


Effect: TypeAlias = (
    Append
    | AskModel
    | AskWriter
    | SaveText
    | ArchiveTurns
    | ShrinkImages
    | WriteBeside
    | AwaitWriting
    | StepStarted
    | StepDone
)
Outcome: TypeAlias = int | Answer | Refusal | Artifact | Shrunk | None
Steps: TypeAlias = Generator[Effect, Outcome, T]


class WrongOutcome(TypeError):
    """A caller answered an effect with something that is no answer to it."""


def expect(kind: type[Kind], outcome: Outcome) -> Kind:
    """`outcome`, which is of this kind. Raises `WrongOutcome`."""
    if not isinstance(outcome, kind):
        raise WrongOutcome(f"expected {kind.__name__}, got {type(outcome).__name__}")
    return outcome


class Extendable(Protocol):
    """What keeps the entries of a conversation: the engine."""

    view: "View"

    def extend(self, entries: Iterable[AnyEntry]) -> None:
        """Stamp entries and take them in."""
        ...


class MemoryHost:
    """Carries effects out for a conversation that is kept in memory alone.

    `ask` answers questions to a model; by default none is asked, and summaries are extracts. `texts` are what was kept
    by path, `done` the steps so far.
    """

    def __init__(self, engine: Extendable, ask: Callable[[AskModel], Answer | Refusal] | None = None) -> None:
        self.texts: dict[str, str] = {}
        self.done: list[StepDone] = []
        self._engine = engine
        self._ask = ask

    def run(self, steps: Steps[T]) -> T:
        """Carry out every effect of `steps`; what they return at the end."""
        return carry_out(steps, self)

    def __call__(self, effect: Effect) -> Outcome:
        """Carry one effect out."""
        match effect:
            case Append():
                self._engine.extend(effect.entries)
                return len(self._engine.view.log)
            case AskModel():
                return self._ask(effect) if self._ask is not None else Refusal("there is no model to ask")
            case AskWriter():
                return Refusal("there is no writer")
            case SaveText():
                data = effect.text.encode()
                path = f"large_tool_results/{effect.name}"
                self.texts[path] = effect.text
                return Artifact(path, len(data), sha256(data).hexdigest(), evicted=True)
            case ArchiveTurns():
                path = f"conversation_history/{effect.thread}.md"
                self.texts[path] = self.texts.get(path, "") + effect.text
                return None
            case StepDone():
                self.done.append(effect)
                return None
            case WriteBeside():
                return self.run(effect.steps)
            case ShrinkImages() | AwaitWriting() | StepStarted():
                return None


def carry_out(steps: Steps[T], perform: Callable[[Effect], Outcome]) -> T:
    """Carry out every effect of `steps`, in order; what they return at the end."""
    outcome: Outcome = None
    try:
        while True:
            outcome = perform(steps.send(outcome))
    except StopIteration as done:
        result: T = done.value
        return result
    finally:
        steps.close()
