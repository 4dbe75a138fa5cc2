"""What the conversation pane shows: blocks of data, no widget.

A block belongs to one `Transcript`, which alone changes it. All text in a block is clean (see `safe_text`).
"""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

from typing_extensions import override

from tui_agent.text import StreamCleaner

if TYPE_CHECKING:
    from tui_agent.conversation.todo import TodoItem


class ToolState(StrEnum):
    """Where a tool call is between being asked for by the model and its result."""

    PENDING = "pending"
    ASKING = "asking"
    RUNNING = "running"
    OK = "ok"
    ERROR = "error"
    DENIED = "denied"
    INTERRUPTED = "interrupted"

    @property
    def finished(self) -> bool:
        """Whether the state will not change any more."""
        return self not in (ToolState.PENDING, ToolState.ASKING, ToolState.RUNNING)


class Level(StrEnum):
    """How much a notice asks for attention."""

    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class StreamedText:
    """Text that arrives in pieces, cleaned as it comes. Reading it joins the pieces once."""

    __slots__ = ("_cleaner", "_pieces")

    def __init__(self, text: str = "") -> None:
        self._pieces: list[str] = []
        self._cleaner: StreamCleaner | None = StreamCleaner()
        if text:
            self.append(text)

    def append(self, piece: str) -> None:
        """Add a piece at the end."""
        if self._cleaner is None:
            self._cleaner = StreamCleaner()
        cleaned = self._cleaner.feed(piece)
        if cleaned:
            self._pieces.append(cleaned)

    def finish(self) -> None:
        """Nothing more will come."""
        if self._cleaner is not None:
            rest = self._cleaner.finish()
            if rest:
                self._pieces.append(rest)
            self._cleaner = None

    @override
    def __str__(self) -> str:
        if len(self._pieces) > 1:
            self._pieces = ["".join(self._pieces)]
        return self._pieces[0] if self._pieces else ""


@dataclass(slots=True)
class Folding:
    """Whether the cards of a transcript stand open; `round` counts how often all of them were opened or closed."""

    open: bool = False
    round: int = 0


@dataclass(slots=True, eq=False, kw_only=True)
class Block:
    """What every block has.

    id: stable and unique in its transcript, counted up from 1.
    index: its place in the transcript, from 0.
    changes: counts every change of what it says.
    """

    id: int
    index: int
    changes: int = 0

    @property
    def version(self) -> int:
        """Counts every change of what it shows."""
        return self.changes

    @property
    def collapsed(self) -> bool:
        """Whether it shows its summary only."""
        return False


@dataclass(slots=True, eq=False, kw_only=True)
class Card(Block):
    """A block that can be opened. It stands as all cards do, until it is opened or closed by itself.

    folding: shared by all cards of a transcript, so that opening all of them touches none.
    own: where it was opened or closed by itself, in which round, and whether it was closed.
    """

    folding: Folding
    own: tuple[int, bool] | None = None

    @property
    @override
    def version(self) -> int:
        return self.changes + self.folding.round

    @property
    @override
    def collapsed(self) -> bool:
        if self.own is not None and self.own[0] == self.folding.round:
            return self.own[1]
        return not self.folding.open

    def toggle(self) -> None:
        """Open it, or close it."""
        self.own = (self.folding.round, not self.collapsed)


@dataclass(slots=True, eq=False, kw_only=True)
class UserBlock(Block):
    """What the user asked; `seq` is the number of that message, 0 where it is not known."""

    text: str
    seq: int = 0


@dataclass(slots=True, eq=False, kw_only=True)
class ProseBlock(Block):
    """The model's answer, Markdown; `streaming` until it is whole."""

    content: StreamedText
    streaming: bool = False

    @property
    def text(self) -> str:
        """The Markdown source so far."""
        return str(self.content)


@dataclass(slots=True, eq=False, kw_only=True)
class ReasoningBlock(Card):
    """The model's reasoning; `seconds` and `tokens` are known when it is over."""

    content: StreamedText
    streaming: bool = False
    seconds: float | None = None
    tokens: int | None = None

    @property
    def text(self) -> str:
        """The reasoning so far; a provider may send none."""
        return str(self.content)


@dataclass(frozen=True, slots=True)
class ResultSize:
    """How large a tool result is. `tokens` may be an estimate."""

    lines: int = 0
    tokens: int | None = None
    bytes: int | None = None


@dataclass(slots=True, eq=False, kw_only=True)
class ToolBlock(Card):
    """One tool call and, later, its result.

    summary: the arguments on one line. arguments: the whole of them.
    tail: the last lines printed while it runs. result: what the model was given.
    steps: of a subtask, where it stands and what it calls, a line each; kept when it is over.
    todo: the items of a task list. diff: a unified diff, for edits. note: one line on why it was denied or failed.
    seconds: how long it ran. seq: of a command of the user's own, the number of the message it became; else 0.
    """

    call_id: str
    name: str
    summary: str = ""
    arguments: str = ""
    state: ToolState = ToolState.PENDING
    tail: str = ""
    steps: str = ""
    todo: "tuple[TodoItem, ...]" = ()
    result: str = ""
    size: ResultSize = field(default_factory=ResultSize)
    diff: str = ""
    note: str = ""
    seconds: float | None = None
    depth: int = 0
    seq: int = 0


@dataclass(slots=True, eq=False, kw_only=True)
class NoticeBlock(Block):
    """Something the user should know: what happened, what was kept, what to do next (`hint`)."""

    level: Level
    title: str
    text: str = ""
    hint: str = ""


@dataclass(slots=True, eq=False, kw_only=True)
class BoundaryBlock(Card):
    """A step of the context manager: tokens before and after it, and why it was taken.

    seq: what undoes it: the step's entry, or, where `restores`, the result to show whole again; 0: nothing does.
    """

    kind: str
    seq: int = 0
    restores: bool = False
    undone: bool = False
    before: int | None = None
    after: int | None = None
    reason: str = ""
    text: str = ""
