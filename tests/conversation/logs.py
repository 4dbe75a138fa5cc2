"""Random logs, as an agent, a user and a crash might leave them."""

import json
from typing import Literal

from hypothesis import strategies as st

from tui_agent.conversation.blocks import Block, Image, Reasoning, Text, ToolCall, ToolDefinition, ToolResult
from tui_agent.conversation.entries import (
    AnyEntry,
    Artifact,
    CeilingReached,
    CeilingReset,
    Checkpointed,
    Cleared,
    Delivered,
    Digested,
    HeadMoved,
    Message,
    ModelSwitched,
    Partial,
    Pinned,
    Prefix,
    Queued,
    Restored,
    Shortened,
    Summarized,
    UnattributedCall,
    Undone,
    Usage,
    Withdrawn,
    notice,
    tool_result,
    user_message,
)
from tui_agent.conversation.request import ReasoningPolicy, RequestMessage
from tui_agent.conversation.view import View

MODELS = ("anthropic:claude-opus-5-5", "gemini:gemini-3.8-flash")
REASONS: tuple[Literal["", "rewind", "fork", "switch"], ...] = ("", "rewind", "fork", "switch")
SPENT = UnattributedCall(model=MODELS[0], usage=Usage(9, output_tokens=1), purpose="unfinished")
texts = st.text(alphabet=st.sampled_from("ab \n\té漢😀[]"), max_size=12)


class Writer:
    """Appends what hypothesis draws, reading the view in between so that every increment is exercised."""

    def __init__(self, draw: st.DrawFn, view: View | None = None) -> None:
        self.draw = draw
        self.view = view or View()
        self.calls = 0

    def append(self, entry: AnyEntry) -> None:
        self.view.apply(self.view.log.stamp(entry, float(len(self.view.log))))

    def step(self) -> None:
        draw, view = self.draw, self.view
        seqs = st.integers(0, len(view.log) + 1)
        many = st.lists(seqs, max_size=4, unique=True).map(tuple)
        match draw(st.integers(0, 21)):
            case 0 | 1 | 2:
                self.append(user_message(draw(texts)))
            case 3 | 4 | 5 | 6:
                self.append(self.answer())
            case 7 | 8 | 9 | 10:
                for call in draw(st.permutations(view.unanswered()))[: draw(st.integers(0, 4))]:
                    evicted = Artifact("large_tool_results/x", 9, "0", evicted=True)
                    result = ToolResult(call.id, draw(texts), is_error=draw(st.booleans()))
                    self.append(tool_result(result, artifact=draw(st.sampled_from([None, evicted]))))
            case 11:
                self.append(Queued(blocks=(Text(draw(texts)),)))
            case 12:
                queued = draw(seqs)
                self.append(Delivered(queued=queued) if draw(st.booleans()) else Withdrawn(queued=queued))
            case 13:
                others: list[AnyEntry] = [
                    Partial(text="p"),
                    notice("n"),
                    ModelSwitched(model=MODELS[1]),
                    SPENT,
                    CeilingReached(bound="turn", message="It is met.", limit_usd=1.0),
                    CeilingReset(session_usd=draw(st.sampled_from([None, 2.0]))),
                ]
                self.append(draw(st.sampled_from(others)))
            case 14:
                self.append(Prefix(system=draw(texts), tools=(ToolDefinition("t", draw(texts), "{}"),)))
            case 15:
                first, last = sorted((draw(seqs), draw(seqs)))
                text = draw(texts)
                summary = Summarized(first=first, last=last, text=text)
                self.append(summary if draw(st.booleans()) else Checkpointed(first=first, last=last, text=text))
            case 16:
                items = draw(many)
                kinds: list[AnyEntry] = [
                    Cleared(results=items, texts=("[cleared]",) * len(items)),
                    Digested(results=items, placeholder="[archived: see digest]", text=draw(texts)),
                    Restored(
                        items=items, texts=draw(st.lists(texts, min_size=len(items), max_size=len(items)).map(tuple))
                    ),
                ]
                self.append(draw(st.sampled_from(kinds)))
            case 17:
                self.append(Pinned(items=draw(many), pinned=draw(st.booleans())))
            case 18:
                self.append(Undone(target=draw(seqs)))
            case 19:
                self.append(HeadMoved(to=draw(st.integers(0, len(view.log))), reason=draw(st.sampled_from(REASONS))))
            case _:
                items = tuple(item.seq for item in view.items() if draw(st.integers(0, 2)) == 0)
                self.append(Shortened(items=items, blocks=tuple(map(self.shortened, items))))

    def shortened(self, seq: int) -> tuple[Block, ...]:
        """A message or result as a recovery may show it: other texts, fewer calls, no pictures."""
        draw, entry = self.draw, self.view.log[seq]
        blocks = entry.blocks if isinstance(entry, Message) else ()
        if isinstance(entry, Message) and entry.kind == "tool_result":
            (result,) = blocks
            assert isinstance(result, ToolResult)
            return (ToolResult(result.call_id, draw(texts), is_error=result.is_error),)
        calls = [block for block in blocks if isinstance(block, ToolCall)]
        kept = [ToolCall(call.id, call.name, "{}") for call in calls if draw(st.booleans())]
        return (Text(draw(texts)), *kept)

    def answer(self) -> Message:
        draw = self.draw
        blocks: list[Block] = []
        if draw(st.booleans()):
            blocks.append(Reasoning("hm", "signature"))
        if draw(st.booleans()):
            blocks.append(Text(draw(texts)))
        for _ in range(draw(st.integers(0, 3))):
            self.calls += draw(st.sampled_from([0, 1, 1, 1, 1]))
            blocks.append(ToolCall(f"c{self.calls}", "t", json.dumps({"n": self.calls})))
        if draw(st.integers(0, 9)) == 0:
            blocks.append(Image("image/png", "AAAA"))
        prefix = draw(st.sampled_from([self.view.prefix_hash(), "another"]))
        model = draw(st.sampled_from(MODELS))
        return Message(role="assistant", blocks=tuple(blocks), model=model, prefix_hash=prefix, usage=Usage(1, 0, 0, 1))


@st.composite
def logs(draw: st.DrawFn, steps: int = 25) -> View:
    """A view that was read now and then while its log grew."""
    writer = Writer(draw)
    for _ in range(draw(st.integers(0, steps))):
        writer.step()
        if draw(st.booleans()):
            writer.view.messages(ReasoningPolicy(draw(st.sampled_from(MODELS)), draw(st.booleans())))
    return writer.view


def broken_rules(messages: list[RequestMessage]) -> list[str]:
    """Which of every provider's rules a request breaks."""
    broken: list[str] = []
    if messages and messages[0].role != "user":
        broken.append("the first message is not the user's")
    expected: list[str] = []
    for index, message in enumerate(messages):
        role, blocks = message.role, message.blocks
        if not blocks:
            broken.append(f"message {index} is empty")
        if index and messages[index - 1].role == role:
            broken.append(f"message {index} repeats the role {role}")
        answered = [block.call_id for block in blocks if isinstance(block, ToolResult)]
        if answered != expected:
            broken.append(f"message {index} answers {answered}, not {expected}")
        if any(isinstance(block, ToolResult) for block in blocks[len(answered) :]):
            broken.append(f"message {index} has a result after other blocks")
        expected = [block.id for block in blocks if isinstance(block, ToolCall)]
        if len(set(expected)) != len(expected):
            broken.append(f"message {index} has one call twice")
        if role == "assistant" and all(isinstance(block, Reasoning) for block in blocks):
            broken.append(f"message {index} is reasoning alone")
        shown = (block for block in blocks if not (isinstance(block, ToolResult) and block.images))
        if any(isinstance(block, Text | ToolResult) and not block.text.strip() for block in shown):
            broken.append(f"message {index} has an empty block")
    if expected:
        broken.append(f"the calls {expected} are not answered")
    return broken
