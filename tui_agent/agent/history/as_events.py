"""Converts entries of the log back into the events that announced them, to show an earlier conversation."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import msgspec

from tui_agent.agent import events
from tui_agent.context.counting import estimate
from tui_agent.context.effects import StepDone, step_of
from tui_agent.conversation.blocks import Block, Image, Reasoning, Text, ToolCall, ToolResult, text_in
from tui_agent.conversation.entries import (
    AnyEntry,
    ContextEntry,
    Custom,
    Delivered,
    HeadMoved,
    Message,
    ModelSwitched,
    Queued,
    Undone,
    Usage,
    delivered,
)
from tui_agent.conversation.sizes import size_of_text
from tui_agent.conversation.wire import inner_call


def replay(entries: Iterable[AnyEntry]) -> Iterator[events.AgentEvent]:
    """The events that announced these entries, oldest first."""
    queued: dict[int, Queued] = {}
    calls: dict[str, ToolCall] = {}
    for entry in entries:
        match entry:
            case Queued():
                queued[entry.seq] = entry
                if entry.kind == "user_shell":
                    yield from _shown(delivered(entry, entry), calls)
            case Delivered():
                if (waiting := queued.pop(entry.queued, None)) is not None:
                    yield said(delivered(waiting, entry), entry.queued)
            case Custom() if entry.user_visible:
                yield custom_event(entry)
            case Message() if entry.user_visible:
                yield from _shown(entry, calls)
            case ModelSwitched():
                yield events.ModelChanged(model=entry.model, window=0, tier="unknown")
            case ContextEntry():
                yield step_event(step_of(entry))


def newest(entries: Sequence[AnyEntry], least: int) -> int:
    """The start of the newest `least` or more entries that can be shown without the earlier ones.

    That is at a message of the user's with no earlier text delivered after it; 0: only all entries can.
    """
    places = range(len(entries) - least, 0, -1)
    return next((start for start in places if _stands_alone(entries, start)), 0)


class Ending(msgspec.Struct, frozen=True):
    """The events of the end of a conversation, and the numbers of its first and last entry."""

    shown: list[events.AgentEvent]
    first: int
    last: int


def ending(folder: Path, least: int) -> Ending | None:
    """Read the end of the conversation in a session's `folder`, of at least `least` entries if it has as many.

    Works while another process has the session open, and reads no more of a long log than needed. None if no part can
    be shown on its own. Raises `StorageError`.
    """
    from tui_agent.storage.log import log_file, read_newest

    entries = {entry.seq: entry for entry in read_newest(log_file(folder), 2 * least)}
    last = max(entries, default=0)
    newest_entry = entries.get(last)
    seq = newest_entry.to if isinstance(newest_entry, HeadMoved) else last
    path: list[AnyEntry] = []
    while seq in entries:
        path.append(entries[seq])
        seq = path[-1].parent
    path.reverse()
    start = newest(path, least)
    if not start and seq:
        # There are earlier entries that were not read.
        start = next((place for place in range(len(path)) if _stands_alone(path, place)), len(path))
    if start == len(path):
        return None
    return Ending(list(replay(path[start:])), path[start].seq, path[-1].seq)


def _stands_alone(entries: Sequence[AnyEntry], start: int) -> bool:
    """Whether the entries from here on can be shown without the earlier ones."""
    entry = entries[start]
    if not isinstance(entry, Message) or not entry.user_visible or entry.role != "user" or entry.kind == "tool_result":
        return False
    return all(later.queued >= entry.seq for later in entries[start:] if isinstance(later, Delivered))


def _shown(message: Message, calls: dict[str, ToolCall]) -> Iterator[events.AgentEvent]:
    if message.role == "user" and message.kind not in ("tool_result", "user_shell"):
        yield said(message)
        return
    if message.role == "assistant":
        yield answered(message)
    for block in message.blocks:
        if isinstance(block, ToolCall):
            call = calls[block.id] = inner_call(block)
            yield events.ToolStarted(call_id=call.id, name=call.name, arguments=call.arguments)
        elif isinstance(block, ToolResult):
            yield finished(message, block, calls[block.call_id].name if block.call_id in calls else "")


def answered(message: Message) -> events.AssistantMessage:
    return events.AssistantMessage(
        seq=message.seq,
        model=message.model,
        text=text_in(message.blocks),
        reasoning=text_in(message.blocks, Reasoning),
        usage=message.usage or Usage(),
        cost_usd=message.cost_usd,
        stop_reason=message.stop_reason,
        duration_ms=message.duration_ms,
    )


def finished(message: Message, result: ToolResult, name: str) -> events.ToolFinished:
    """The event of a result in a message; `name`: of the tool."""
    artifact, status = message.artifact, "error" if result.is_error else "ok"
    if message.stop_reason:
        status = "denied" if message.stop_reason == "denied" else "interrupted"
    return events.ToolFinished(
        call_id=result.call_id,
        name=name,
        status=status,
        text=result.text,
        size=artifact.size if artifact else len(result.text),
        tokens=estimate(size_of_text(result.text)),
        duration_ms=message.duration_ms,
        summary=message.summary,
        diff=message.diff,
        outcome=message.outcome,
        seq=message.seq,
        artifact=artifact.path if artifact else "",
        evicted=artifact is not None and artifact.evicted,
    )


def said(message: Message, queued: int = 0) -> events.UserMessage:
    """The event of a user message; `queued`: the number of the `Queued` entry it waited as."""
    return events.UserMessage(
        seq=message.seq,
        text=text_in(message.blocks),
        typed=message.typed,
        kind=message.kind,
        images=tuple(block for block in message.blocks if isinstance(block, Image)),
        queued=queued,
    )


def custom_event(entry: Custom) -> events.CustomEntry:
    return events.CustomEntry(seq=entry.seq, name=entry.name, data=entry.data, text=text_in(entry.blocks))


def user_blocks(blocks: tuple[Block, ...]) -> tuple[Text | Image, ...]:
    """What a user message may contain of these blocks: texts and pictures."""
    return tuple(block for block in blocks if isinstance(block, Text | Image))


def step_event(done: StepDone) -> events.ContextStep:
    event = msgspec.convert(done, events.ContextStep, from_attributes=True)
    return msgspec.structs.replace(event, target=done.entry.target) if isinstance(done.entry, Undone) else event
