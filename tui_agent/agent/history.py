"""A log as the events that would have shown it: how a front end paints a conversation that goes on."""

from collections.abc import Iterable, Iterator

from tui_agent.agent import events
from tui_agent.context.counting import estimate
from tui_agent.conversation.blocks import Block, Image, Reasoning, Text, ToolCall, ToolResult
from tui_agent.conversation.entries import AnyEntry, Delivered, Message, ModelSwitched, Queued, Usage
from tui_agent.conversation.sizes import size_of_text


def replay(entries: Iterable[AnyEntry]) -> Iterator[events.AgentEvent]:
    """The events of these entries, oldest first."""
    queued: dict[int, Queued] = {}
    names: dict[str, str] = {}
    for entry in entries:
        match entry:
            case Queued():
                queued[entry.seq] = entry
            case Delivered():
                waiting = queued.pop(entry.queued, None)
                if waiting is not None:
                    yield said(entry.seq, waiting.blocks)
            case Message() if entry.user_visible:
                yield from _shown(entry, names)
            case ModelSwitched():
                yield events.ModelChanged(model=entry.model, window=0, tier="unknown")
            case _:
                pass


def _shown(message: Message, names: dict[str, str]) -> Iterator[events.AgentEvent]:
    if message.role == "assistant":
        yield events.AssistantMessage(
            seq=message.seq,
            model=message.model,
            text=text_of(message.blocks, Text),
            reasoning=text_of(message.blocks, Reasoning),
            usage=message.usage or Usage(),
            cost_usd=message.cost_usd,
            stop_reason=message.stop_reason,
            duration_ms=message.duration_ms,
        )
        for block in message.blocks:
            if isinstance(block, ToolCall):
                names[block.id] = block.name
                yield events.ToolStarted(call_id=block.id, name=block.name, arguments=block.arguments)
    elif message.kind == "tool_result":
        for block in message.blocks:
            if isinstance(block, ToolResult):
                yield events.ToolFinished(
                    call_id=block.call_id,
                    name=names.get(block.call_id, ""),
                    status="error" if block.is_error else "ok",
                    text=block.text,
                    size=len(block.text),
                    tokens=estimate(size_of_text(block.text)),
                    duration_ms=message.duration_ms,
                    seq=message.seq,
                )
    else:
        yield said(message.seq, message.blocks)


def said(seq: int, blocks: tuple[Block, ...], queued: int = 0) -> events.UserMessage:
    """The user's words as an event."""
    images = tuple(block for block in blocks if isinstance(block, Image))
    return events.UserMessage(seq=seq, text=text_of(blocks, Text), images=images, queued=queued)


def told(blocks: tuple[Block, ...]) -> tuple[Text | Image, ...]:
    """The blocks a user can say."""
    return tuple(block for block in blocks if isinstance(block, Text | Image))


def text_of(blocks: tuple[Block, ...], kind: type[Text] | type[Reasoning]) -> str:
    """The text of all blocks of a kind."""
    return "\n\n".join(block.text for block in blocks if isinstance(block, kind) and block.text)
