"""The entries of a log: frozen, tagged structs that always encode to the same bytes.

Everything that happens to a conversation is one more entry. Messages record what was said; context entries record what
the model sees of it from then on; `HeadMoved` records from where the conversation continues.

An entry's `parent` is the entry that was the head when it was appended (0: none). Following the parents from the head
gives one conversation, so a rewind or a fork leaves the other branch as it was.
"""

import json
import os
from collections.abc import Iterable, Iterator
from typing import Final, Literal, TypeAlias, TypeVar

import msgspec

from tui_agent.conversation.blocks import Block, Image, Text, ToolCall, ToolDefinition, ToolResult, text_in, valid_text

T = TypeVar("T")

Role: TypeAlias = Literal["user", "assistant"]
Kind: TypeAlias = Literal[
    "",
    "user_shell",
    "hook",
    "resource",
    "approval",
    "plan_begun",
    "plan_over",
    "interrupted",
    "notice",
    "tool_result",
    "tool_result_archived",
    "tool_summary",
    "summary",
    "checkpoint",
    "custom",
]
"""Where a message comes from, besides its role.

Empty: said by the user or the model. ``user_shell``: a shell command that the user ran, one call and its result.
``hook``, ``resource``: what the user's hook or a server's resource added. ``approval``: the user approved a plan.
``plan_begun``, ``plan_over``: the model is told of plan mode. ``interrupted``: the user stopped the turn. ``notice``:
any other word of the program to the model. ``custom``: an entry of a host program's own.
"""
USER_SHELL: Final = "your shell"
"""The name of the user's own commands in calls and events; no tool of the model has this name."""

Compaction: TypeAlias = Literal["summary", "checkpoint"]
"""What a boundary is. Its default is a function because the encoder leaves out other defaults, and this is written."""
Purpose: TypeAlias = Literal["answer", "summary", "digest", "unfinished", "tool"]


class Usage(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """Token counts of one model call. `input_tokens` is the whole prompt, including cache reads and writes;
    `cache_write_hour_tokens`: the part of the writes that the provider keeps for an hour. `searches`: how often it
    searched the web for the answer.
    """

    input_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    output_tokens: int = 0
    reasoning_tokens: int = 0
    cache_write_hour_tokens: int = 0
    searches: int = 0

    def __add__(self, other: "Usage") -> "Usage":
        mine, more = msgspec.structs.astuple(self), msgspec.structs.astuple(other)
        return Usage(*(one + another for one, another in zip(mine, more, strict=True)))


class Artifact(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """The file with the full text of a shortened one: path in the session's folder, size in bytes, SHA-256.

    `evicted`: the shortened text is a preview by the layer "eviction", not a text cut at a tool's output limit.
    """

    path: str
    size: int
    sha256: str
    evicted: bool = False


class Hit(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A line that a search found: its file, its number and the beginning of its text. Untrusted text.

    For a page of the web: its title, 0, its address.
    """

    file: str
    number: int
    text: str


class Outcome(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """Facts about a tool's result, for the program; the model reads the result's text.

    `exit_code`: of a command that has ended; minus the signal's number if a signal ended it. `timed_out`: it was ended
    for taking too long. `left_running`: the id of the process that goes on in the background; 0: none. `line_count`:
    lines of the whole result, also if it was cut. `notes`: how many lines at the end of the text are the program's own.
    `steps`: of the plan that the user approved. `hits`: the first lines or pages that a search found, and `hit_count`
    all in its text.
    """

    exit_code: int | None = None
    timed_out: bool = False
    left_running: int = 0
    line_count: int = 0
    notes: int = 0
    steps: tuple[str, ...] = ()
    hits: tuple[Hit, ...] = ()
    hit_count: int = 0

    def with_notes(self, more: int) -> "Outcome":
        """The same, with this many more lines of notes at the end of the text."""
        return msgspec.structs.replace(self, notes=self.notes + more) if more else self


NO_OUTCOME: Final = Outcome()


class Entry(msgspec.Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True, tag_field="entry"):
    """The header of every entry: its number in the log (from 1), its parent's (0: none), seconds since the epoch."""

    seq: int = 0
    parent: int = 0
    time: float = 0.0


class Prefix(Entry, frozen=True, kw_only=True, omit_defaults=True, tag="prefix"):
    """The system prompt and tool definitions at the front of every request from here on."""

    system: str
    tools: tuple[ToolDefinition, ...] = ()


class CallElsewhere(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """A call that another program made: the model as that program named it, and what it noted of the usage."""

    model: str
    usage: Usage


class Message(Entry, frozen=True, kw_only=True, omit_defaults=True, tag="message"):
    """A message of the user or the model, or the result of one tool call (role user, kind ``tool_result``).

    `agent_visible` false: not sent and not counted; `user_visible` false: not shown in the conversation. For an
    assistant's message, `model` is who wrote it, `prefix_hash` is `View.prefix_hash` of the request it answers, `usage`
    is what that call used, and `stop_reason` says why it ended (``interrupted``: the user or a crash stopped it). For a
    tool's result, `summary` is the line shown to people, `diff` is what it changed in a file, `outcome` are facts about
    it, and `stop_reason` says why the call was not carried out (``denied``, ``interrupted``, ``unanswered``: nobody was
    there to answer its question).

    `because` is the number of the user's message that it came because of, which may follow it; 0: none. Taking that
    message back takes this one back too. `typed` is what the user typed, if that is not the text: a slash command.
    `about` is the section of the system prompt that a notice brings up to date. `elsewhere` is the call of another
    program that gave this answer, if it is recorded; it was paid there, so it counts in no total.
    """

    role: Role
    blocks: tuple[Block, ...]
    kind: Kind = ""
    agent_visible: bool = True
    user_visible: bool = True
    model: str = ""
    prefix_hash: str = ""
    usage: Usage | None = None
    cost_usd: float | None = None
    stop_reason: str = ""
    duration_ms: int = 0
    artifact: Artifact | None = None
    summary: str = ""
    diff: str = ""
    outcome: Outcome = NO_OUTCOME
    because: int = 0
    typed: str = ""
    about: str = ""
    elsewhere: CallElsewhere | None = None


class Custom(Message, frozen=True, kw_only=True, omit_defaults=True, tag="custom"):
    """An entry of a host program's own: a name, and data as JSON text. Make one with `custom`.

    The program reads it back from the log; people see its name and text. With `blocks`, the model sees these, as any
    other word of the program.
    """

    name: str
    data: str = "null"
    role: Role = "user"
    blocks: tuple[Block, ...] = ()
    kind: Kind = "custom"
    agent_visible: bool = False

    def value(self, kind: type[T]) -> T:
        """The data as a value of this type. Raises ValueError if it is not one."""
        return msgspec.json.decode(self.data, type=kind)


class UnattributedCall(Entry, frozen=True, kw_only=True, omit_defaults=True, tag="spent"):
    """A model call that is not a message of the conversation: its usage counts, and the view stays as it is.

    `purpose`: it wrote a summary or a digest, or it was stopped or broke off (``unfinished``: as far as the provider
    reported it), or a tool's service was paid (``tool``: `model` is the tool's name). `cost_usd` is None if the price
    is unknown, `duration_ms` 0 if it is not known how long it took.
    """

    model: str
    usage: Usage
    purpose: Literal["summary", "digest", "unfinished", "tool"]
    cost_usd: float | None = None
    duration_ms: int = 0


class Partial(Entry, frozen=True, kw_only=True, omit_defaults=True, tag="partial"):
    """The next part of a reply that is still streaming; superseded by the reply's message.

    `restart`: the reply started again (a retry), so earlier parts no longer count.
    """

    text: str
    model: str = ""
    restart: bool = False


class Queued(Entry, frozen=True, kw_only=True, omit_defaults=True, tag="queued"):
    """A message that the user sent, or a command that they ran, while a turn was running. The fields are those of the
    `Message` that it becomes.
    """

    blocks: tuple[Block, ...]
    kind: Literal["", "user_shell"] = ""
    typed: str = ""
    summary: str = ""
    outcome: Outcome = NO_OUTCOME
    artifact: Artifact | None = None
    duration_ms: int = 0
    stop_reason: str = ""


class Delivered(Entry, frozen=True, kw_only=True, omit_defaults=True, tag="delivered"):
    """The queued entry becomes a message of the user here."""

    queued: int


class Withdrawn(Entry, frozen=True, kw_only=True, omit_defaults=True, tag="withdrawn"):
    """The user took back a queued entry before it was delivered."""

    queued: int


class ModelSwitched(Entry, frozen=True, kw_only=True, omit_defaults=True, tag="model_switched"):
    """From here on, this model is used; `model` is ``provider:id``."""

    model: str


class ModeChanged(Entry, frozen=True, kw_only=True, omit_defaults=True, tag="mode_changed"):
    """From here on, the permission mode is `mode`; before, it was `before`. `because`: see `Message`."""

    mode: str
    before: str
    because: int = 0


class HeadMoved(Entry, frozen=True, kw_only=True, omit_defaults=True, tag="head_moved"):
    """The conversation continues after entry `to` (0: from the beginning). Nothing is removed.

    `reason`: the user took back what was said after it (``rewind``), started another branch there (``fork``), or
    returned to a branch they had left (``switch``).
    """

    to: int
    reason: Literal["", "rewind", "fork", "switch"] = ""


class FileState(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """A file at a point in time: its kind, permission bits, size in bytes and the SHA-256 of its content.

    The content of a link is the path it points to. Kind ``other`` is never restored: a folder, a device, or a file that
    could not be read.
    """

    kind: Literal["absent", "file", "link", "other"] = "absent"
    mode: int = 0
    size: int = 0
    sha256: str = ""


class FileChange(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """The file at the absolute `path`, before and after a change. Make one with `file_change`.

    `unkept` says why the earlier content was not saved (empty: it was saved, under its SHA-256). `made` is how many of
    the folders above a new file were created with it, the nearest ones. `raw`: the bytes of a path that is no valid
    text, in hex; `path` has them escaped then, like ``\\xff``.
    """

    path: str
    before: FileState
    after: FileState
    unkept: str = ""
    made: int = 0
    raw: str = ""

    @property
    def place(self) -> str:
        try:
            return os.fsdecode(bytes.fromhex(self.raw)) or self.path
        except ValueError:
            return self.path


def file_change(place: str, before: FileState, after: FileState, unkept: str = "", made: int = 0) -> FileChange:
    """The change of the file at the path `place`, whatever bytes are in it."""
    data = os.fsencode(place)
    path = data.decode(errors="backslashreplace")
    return FileChange(path, before, after, unkept, made, data.hex() if path != place else "")


class FilesKept(Entry, frozen=True, kw_only=True, omit_defaults=True, tag="files_kept"):
    """Files are about to be changed: by the tool call `call` or, if it is empty, by restoring them to their state
    before entry `since`.

    `files` are those known in advance, as they will be if that is known too, else as they are; with `tree`, a command
    may change anything in the project. What was changed is in the `FilesChanged` that follows; without one, the program
    was ended in between.
    """

    call: str = ""
    since: int = 0
    files: tuple[FileChange, ...] = ()
    tree: bool = False


class FilesChanged(Entry, frozen=True, kw_only=True, omit_defaults=True, tag="files_changed"):
    """What was changed since the `FilesKept` of number `kept`; `gaps` are sentences about what is unknown."""

    kept: int
    files: tuple[FileChange, ...] = ()
    gaps: tuple[str, ...] = ()


class CeilingReached(Entry, frozen=True, kw_only=True, omit_defaults=True, tag="ceiling_reached"):
    """The cost ceiling of a turn or of the session, in USD, was reached: no model is called until a `CeilingReset`."""

    bound: Literal["turn", "session"]
    message: str
    limit_usd: float


class CeilingReset(Entry, frozen=True, kw_only=True, omit_defaults=True, tag="ceiling_reset"):
    """The user let the session continue; it may now cost `session_usd` in all (None: as the settings say)."""

    session_usd: float | None = None


class Recorded(Entry, frozen=True, kw_only=True, omit_defaults=True, tag="recorded"):
    """Something that is no part of the conversation, for the trace: a start of the program, a permission, an error.

    `kind` is that of the event, `body` the text of a JSON object.
    """

    kind: str
    body: str


class Lost(Entry, frozen=True, kw_only=True, omit_defaults=True, tag="lost"):
    """Stands in for an entry that was damaged and could not be read any more."""


class ContextEntry(Entry, frozen=True, kw_only=True, omit_defaults=True):
    """A decision on what the model sees.

    `reason` is one sentence for people; `before` and `after` are the view's size in tokens around the whole step.
    `saved_usd` is what the step saved on the next call (negative: what it cost there), `saving_usd` what it saves on
    each one after that; both 0 if prices are unknown.
    """

    reason: str = ""
    before: int = 0
    after: int = 0
    saved_usd: float = 0.0
    saving_usd: float = 0.0


class Cleared(ContextEntry, frozen=True, kw_only=True, omit_defaults=True, tag="cleared"):
    """The results in `results` (entry numbers) are shown as `texts`, one for each."""

    results: tuple[int, ...]
    texts: tuple[str, ...]


class Digested(ContextEntry, frozen=True, kw_only=True, omit_defaults=True, tag="digested"):
    """The results in `results` are shown as `placeholder`; the digest `text` is shown at this entry's place."""

    results: tuple[int, ...]
    placeholder: str
    text: str


class Words(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """The user's own words of message `seq`, as the model sees them once a boundary covers the message.

    `time`: when they were said, in seconds since the epoch; 0: not noted, as the log's entry tells it.
    """

    seq: int
    text: str
    time: float = 0.0


class _Boundary(ContextEntry, frozen=True, kw_only=True, omit_defaults=True):
    first: int
    last: int
    text: str
    path: str = ""
    model: str = ""
    usage: Usage | None = None
    cost_usd: float | None = None
    words: tuple[Words, ...] = ()
    state: str = ""
    depth: int = 1
    waited_s: float = 0.0
    signed: str = ""
    through: str = ""
    facts: str = ""
    left_out: int = 0
    carried: tuple[int, ...] = ()


class Summarized(_Boundary, frozen=True, kw_only=True, omit_defaults=True, tag="summarized"):
    """Everything from entry `first` to entry `last` is shown as one user message, `text`.

    `path` is the file with the turns it covers, relative to the session's folder. `words` are the user's own messages
    in everything covered so far; they follow the newest boundary, and after them comes `state`, how things stood then.
    `depth` is the number of summaries that the content of `text` has passed through. A turn waited `waited_s` seconds
    for it.

    `signed` is the summary as a provider wrote and signed it, in its adapter's opaque form; the provider takes it for
    the very messages it summarises, which ended with the prefix hash `through`. So nothing may stand between it and the
    kept messages: the words (less `left_out` older messages), `state` and `facts` stand at this entry's own place, and
    so do, written out, the groups that begin with the entries `carried`: pinned ones, a newest request with pictures.
    """

    focus: str = ""
    compaction: Compaction = msgspec.field(default_factory=lambda: "summary")


class Checkpointed(_Boundary, frozen=True, kw_only=True, omit_defaults=True, tag="checkpointed"):
    """A finished task, from entry `first` to entry `last`, is shown as its completion record, `text`; the other fields
    are those of `Summarized`.
    """

    note: str = ""
    compaction: Compaction = msgspec.field(default_factory=lambda: "checkpoint")


class Pinned(ContextEntry, frozen=True, kw_only=True, omit_defaults=True, tag="pinned"):
    """The items in `items`, each with its whole group, are kept by every layer (or, with `pinned` false, no longer
    are).
    """

    items: tuple[int, ...]
    pinned: bool = True


class Restored(ContextEntry, frozen=True, kw_only=True, omit_defaults=True, tag="restored"):
    """The items in `items` are shown in full again: as in `texts` or, if the text is empty, as in the log."""

    items: tuple[int, ...]
    texts: tuple[str, ...]


class Shortened(ContextEntry, frozen=True, kw_only=True, omit_defaults=True, tag="shortened"):
    """The messages and results in `items` were too large to send and are shown as `blocks`, one tuple for each.

    A call that is missing from its message's blocks is not shown, and neither is its result. `episodes`: it folds those
    that were closed by the calls in these entries, instead.
    """

    items: tuple[int, ...]
    blocks: tuple[tuple[Block, ...], ...]
    episodes: tuple[int, ...] = ()


class WordsEdited(ContextEntry, frozen=True, kw_only=True, omit_defaults=True, tag="words_edited"):
    """The user changed what is kept of their own messages: `edits` are the messages with their new texts (empty:
    nothing is kept), `words` everything that is shown from here on.
    """

    edits: tuple[Words, ...]
    words: tuple[Words, ...]


class Undone(ContextEntry, frozen=True, kw_only=True, omit_defaults=True, tag="undone"):
    """The context entry `target` is no longer in force. Undoing an undo reinstates it."""

    target: int


Boundary: TypeAlias = Summarized | Checkpointed
AnyContextEntry: TypeAlias = (
    Cleared | Digested | Summarized | Checkpointed | Pinned | Restored | Shortened | WordsEdited | Undone
)
AnyEntry: TypeAlias = (
    Prefix
    | Message
    | Custom
    | UnattributedCall
    | Partial
    | Queued
    | Delivered
    | Withdrawn
    | ModelSwitched
    | ModeChanged
    | HeadMoved
    | FilesKept
    | FilesChanged
    | CeilingReached
    | CeilingReset
    | Recorded
    | Lost
    | AnyContextEntry
)

_encoder = msgspec.json.Encoder(order="deterministic")
_decoder: msgspec.json.Decoder[AnyEntry] = msgspec.json.Decoder(AnyEntry)


class UnknownEntry(Exception):
    """This version cannot read an entry: it is damaged, or a newer version wrote it."""


def encode(entry: AnyEntry) -> bytes:
    """Encode an entry as JSON; equal entries have equal bytes."""
    return _encoder.encode(entry)


def decode(data: bytes | str) -> AnyEntry:
    """Decode an entry. Raises `UnknownEntry`."""
    try:
        return _decoder.decode(data)
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        raise UnknownEntry(str(error)) from error


def valid_entry(entry: AnyEntry) -> AnyEntry:
    """`entry`, with every lone surrogate in its texts replaced by U+FFFD, so that it can be encoded.

    Raises `UnknownEntry` for one that could not be read again, as with a number for a text.
    """
    try:
        decode(encode(entry))
    except UnicodeEncodeError:
        return decode(valid_text(json.dumps(msgspec.to_builtins(entry), ensure_ascii=False)))
    return entry


class ModelCall(msgspec.Struct, frozen=True):
    """The usage and cost of one model call; `cost_usd` is None if the price is unknown."""

    model: str
    usage: Usage
    cost_usd: float | None
    purpose: Purpose


def model_call(entry: AnyEntry) -> ModelCall | None:
    """The model call that an entry records, if any. Every total of usage and cost is a sum of these.

    The entries of summaries and checkpoints do not count: each of the calls that wrote them has its own entry.
    """
    match entry:
        case Message() if entry.usage is not None:
            return ModelCall(entry.model, entry.usage, entry.cost_usd, "answer")
        case UnattributedCall():
            return ModelCall(entry.model, entry.usage, entry.cost_usd, entry.purpose)
        case _:
            return None


def custom(name: str, data: object = None, *blocks: Text | Image) -> Custom:
    """An entry of a program's own; `data` is anything msgspec can encode, and the model is shown the `blocks`.

    Raises TypeError for data that JSON cannot express.
    """
    text = valid_text(msgspec.json.encode(data).decode())
    return Custom(name=valid_text(name), data=text, blocks=blocks, agent_visible=bool(blocks))


def user_message(text: str, *images: Image, typed: str = "") -> Message:
    """A message of the user; `typed`: what they typed, if that is not the text."""
    blocks: tuple[Block, ...] = (Text(text), *images) if text.strip() else images
    return Message(role="user", blocks=blocks, typed=typed if typed != text else "")


def typed_in(message: Message) -> str | None:
    """What the user typed in a message of theirs; None if it is none."""
    if message.role != "user" or message.kind not in ("", "user_shell"):
        return None
    return message.typed or text_in(message.blocks)


def user_shell(call_id: str, command: str, text: str, *, is_error: bool = False) -> Message:
    """A shell command that the user ran, and its output."""
    call = ToolCall(call_id, USER_SHELL, msgspec.json.encode({"command": command}).decode())
    result = ToolResult(call_id, text, is_error=is_error)
    return Message(role="user", kind="user_shell", blocks=(call, result), typed=f"!{command}")


def notice(text: str, kind: Kind = "notice") -> Message:
    """A message from the program to the model: role user, not shown to the user."""
    return Message(role="user", kind=kind, blocks=(Text(text),), user_visible=False)


def queued_of(message: Message) -> Queued:
    """A message of the user's as it waits for the next step."""
    spoken = msgspec.structs.replace(message, kind="user_shell" if message.kind == "user_shell" else "")
    return msgspec.convert(spoken, Queued, from_attributes=True)


def delivered(queued: Queued, entry: Entry) -> Message:
    """The message that a queued entry becomes, with the header of `entry`, which delivers it."""
    header = {"seq": entry.seq, "parent": entry.parent, "time": entry.time}
    fields = {name: getattr(queued, name) for name in Queued.__struct_fields__}
    return Message(role="user", **{**fields, **header})


def as_delivered(entries: Iterable[AnyEntry]) -> Iterator[AnyEntry]:
    """The entries of a log, oldest first, with the messages that deliveries of queued texts are in place of these."""
    queued: dict[int, Queued] = {}
    for entry in entries:
        if isinstance(entry, Queued):
            queued[entry.seq] = entry
        waiting = queued.get(entry.queued) if isinstance(entry, Delivered) else None
        yield delivered(waiting, entry) if waiting is not None else entry


def tool_result(
    result: ToolResult,
    *,
    artifact: Artifact | None = None,
    duration_ms: int = 0,
    summary: str = "",
    diff: str = "",
    stop_reason: str = "",
    outcome: Outcome = NO_OUTCOME,
) -> Message:
    return Message(
        role="user",
        kind="tool_result",
        blocks=(result,),
        artifact=artifact,
        duration_ms=duration_ms,
        summary=summary,
        diff=diff,
        stop_reason=stop_reason,
        outcome=outcome,
    )
