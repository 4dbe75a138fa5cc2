"""Converting a request of the context engine to the parts of a prompt: what each block shows of the recording."""

from collections.abc import Iterable, Iterator, Sequence

from tui_agent.conversation.blocks import Block, Reasoning, Text, ToolResult
from tui_agent.conversation.entries import Role, Shortened
from tui_agent.conversation.request import RequestMessage
from tui_agent.conversation.view import View
from tui_agent.replay.billing import PartKind, PromptPart, RequestParts, common
from tui_agent.replay.policies import depths_after
from tui_agent.replay.script import RecordedMessage, Script, text_of


class ShownBlocks:
    """Tracks what the view of one conversation shows, block by block. `digests` are the digests written in it.

    As everywhere in a replay, reasoning is billed as output but not kept in the prompt.
    """

    def __init__(self, script: Script) -> None:
        self._script = script
        self.digests: list[str] = []
        self._parts: dict[Block, PromptPart] = {}
        self._messages: list[RequestMessage] = []
        self._message_parts: list[tuple[PromptPart, ...]] = []
        self._result_of_call: dict[str, RecordedMessage] = {}
        self._result_of_entry: dict[int, RecordedMessage] = {}
        self._depths: dict[tuple[int, int], dict[int, int]] = {}

    def arrived(self, result: RecordedMessage, seq: int) -> None:
        """Record that a result became the entry `seq`."""
        self._result_of_entry[seq] = result
        for block in result.message.blocks:
            if isinstance(block, ToolResult):
                self._result_of_call[block.call_id] = result

    def will_cover(self, view: View, first: int, last: int) -> None:
        """Prepare for a summary of the entries from `first` to `last`: it covers the original turns, even where the
        view shows a replacement.
        """
        merging = any(first <= boundary.first <= last for boundary in view.boundaries())
        groups = view.originals(first, last) if merging else view.groups()
        within = [group for group in groups if first <= group.first <= last]
        parts = [part for group in within for segment in group.segments for part in self._parts_of(view, segment)]
        mentions = frozenset[int]().union(*(part.mentions for part in parts))
        self._depths[first, last] = depths_after(mentions, parts)

    def show(
        self,
        prompt: RequestParts,
        view: View,
        messages: Sequence[RequestMessage],
        edges: Iterable[int] = (),
        *,
        head: Sequence[PromptPart] = (),
    ) -> None:
        """Set the prompt to the parts `head` and these messages; `edges` are those of the request."""
        messages = list(messages)
        shared = common(self._messages, messages)
        del self._message_parts[shared:]
        self._message_parts += [tuple(self._parts_of(view, message)) for message in messages[shared:]]
        self._messages = messages
        parts, places = list(head), list[int]()
        for shown in self._message_parts:
            parts += shown
            places.append(1 + len(parts))
        prompt.show(parts)
        prompt.edges = tuple(places[edge] for edge in edges)

    def _parts_of(self, view: View, message: RequestMessage) -> Iterator[PromptPart]:
        for block in message.blocks:
            if isinstance(block, Reasoning):
                continue
            part = self._parts.get(block)
            if part is None:
                part = self._parts[block] = self._new_part(view, block, message.role)
            yield part

    def _new_part(self, view: View, block: Block, role: Role) -> PromptPart:
        script = self._script
        tokens = script.tokens_of(block)
        match block:
            case Text() | ToolResult() if folded := self._folded_into(view, block):
                return PromptPart("cleared", tokens, script.mentions_in(block.text), folded, text=block.text)
            case ToolResult() if (result := self._result_of_call.get(block.call_id)) is not None:
                if block.text == result.text:
                    return PromptPart("result", tokens, result.mentions, recorded=result)
                # The whole was counted by its provider, a part of it is estimated.
                tokens = min(tokens, result.tokens)
                return PromptPart("cleared", tokens, script.mentions_in(block.text), (result,), result, block.text)
            case Text() if (
                boundary := next((each for each in view.boundaries() if each.text == block.text), None)
            ) is not None:
                first, last = boundary.first, boundary.last
                results = tuple(result for seq, result in self._result_of_entry.items() if first <= seq <= last)
                mentions, below = script.mentions_in(block.text), self._depths.get((first, last), {})
                # A summary merged from partial summaries is one level deeper.
                depths = {mention: below.get(mention, 1) + boundary.depth - 1 for mention in mentions}
                return PromptPart("summary", tokens, mentions, results, text=block.text, depths=depths)
            case Text() if any(digest in block.text for digest in self.digests):
                return PromptPart("digest", tokens, script.mentions_in(block.text), text=block.text)
            case _:
                kind: PartKind = "answer" if role == "assistant" else "user"
                return PromptPart(kind, tokens, script.mentions_of(block), text=text_of((block,)))

    def _folded_into(self, view: View, block: Block) -> tuple[RecordedMessage, ...]:
        """The results of the episodes whose pointers are this block."""
        folds = (entry for entry, _ in view.context_entries() if isinstance(entry, Shortened) and entry.episodes)
        shown = next((each for each in folds if any(block in blocks for blocks in each.blocks)), None)
        hidden = [(seq, view.end_of(seq)) for seq in (shown.items if shown is not None else ())]
        return tuple(
            result
            for seq, result in self._result_of_entry.items()
            if any(first < seq <= last for first, last in hidden)
        )
