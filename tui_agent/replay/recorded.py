"""Replaying a recording's own requests: the policy "as recorded", and the sizes that its usage tells."""

from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from typing import Final

from tui_agent.context.layers.clearing import protected_tokens
from tui_agent.conversation import entries
from tui_agent.conversation.blocks import Block, Reasoning
from tui_agent.conversation.request import RequestMessage
from tui_agent.conversation.sizes import NOTHING, size_of_block, total_size
from tui_agent.conversation.view import View
from tui_agent.replay.billing import PromptPart, RequestParts, common
from tui_agent.replay.policies import INSTRUCTION_TOKENS, PolicySetup
from tui_agent.replay.script import MeasuredSizes, RecordedCall, text_tokens, tokens_of
from tui_agent.replay.showing import ShownBlocks
from tui_agent.settings import Settings
from tui_agent.storage.recordings.recording import Recording

AS_RECORDED: Final = "as recorded"
"""The name of the policy that repeats the recorded requests."""

_LEAST_GROWTH = 0.2
"""If a request grew by less than this share of its new content, something else was removed from it."""
_LEAST_FACTOR, _LARGEST_FACTOR = 1 / 3, 3.0
"""Outside this range, the usage of a recording does not match its messages."""
_NOT_MESSAGES = ("system", "tools", "reasoning")


class AsRecorded:
    """Repeats the recorded requests: the view of the recorded log at each call, with every recorded edit.

    `protected` is the size in tokens of the protected tail, before which this program marks the end of a prefix; 0 for
    recordings of other systems.
    """

    def __init__(self, setup: PolicySetup, recording: Recording, protected: int) -> None:
        self._script, self._ledger = setup[:2]
        self._log = recording.log
        self._protected = protected
        self._tells_summaries = any(isinstance(entry, entries.UnattributedCall) for entry in recording.log)
        self._view = View()
        self._shown = ShownBlocks(setup.script)
        # Tokens of system prompt and tools that the first call read from the cache, written by another session.
        first = setup.script.calls[0].answer.message.usage if setup.script.calls else None
        read = min(first.cache_read_tokens, setup.script.fixed) if first is not None else 0
        self._shared = read if read >= self._ledger.profile.cache_minimum else 0
        self._head = (PromptPart("fixed", setup.script.fixed - self._shared),) if self._shared else ()
        self._edge = -1, 0
        self._sent = 0
        self.prompt = RequestParts(self._shared or setup.script.fixed)
        self.compactions = 0
        self.clearings = 0

    def before(self, call: RecordedCall) -> None:
        if call.number == 1 and self._shared:
            self._ledger.cache.seed(1, call.time)
            self.prompt.unchanged = 1
        for message in call.arrived:
            if message.is_result:
                self._shown.arrived(message, message.message.seq)
        while len(self._view.log) + 1 < call.answer.message.seq:
            self._take(self._log[len(self._view.log)], call.time)
        self._request()

    def after(self, call: RecordedCall, used: entries.Usage) -> None:
        """Add the answer, which is the next entry of the log."""

    def _take(self, entry: entries.AnyEntry, now: float) -> None:
        match entry:
            case entries.Summarized() | entries.Checkpointed():
                self._show()
                self._shown.will_cover(self._view, entry.first, entry.last)
                if not self._tells_summaries:
                    written = text_tokens(entry.text, factor=self._script.factor)
                    # If its usage is not recorded, assume that the prompt was in the cache.
                    self._bill(entry.usage or entries.Usage(cache_read_tokens=1, output_tokens=written), "", now)
                self.compactions += 1
            case entries.UnattributedCall(purpose="summary" | "digest"):
                self._show()
                self._bill(entry.usage, entry.model, now)
            case entries.Digested():
                self._shown.digests.append(entry.text)
                self.clearings += 1
            case entries.Cleared():
                self.clearings += 1
        self._view.apply(entry)

    def _bill(self, usage: entries.Usage, model: str, now: float) -> None:
        """Bill a summary: as a continuation of the running request if it read the cache, else as a separate request."""
        ledger = self._ledger
        if usage.cache_read_tokens:
            self.prompt.edges = (len(self.prompt),)
            self.prompt.append(PromptPart("instruction", INSTRUCTION_TOKENS))
            ledger.summary(self.prompt, usage.output_tokens, now)
            self.prompt.splice(len(self.prompt) - 1, len(self.prompt), ())
        else:
            small = ledger.small if ledger.small is not None and ledger.small.name == model else None
            ledger.separate(small or ledger.profile, usage.input_tokens, usage.output_tokens)

    def _request(self) -> None:
        """Set the prompt to the next request, with this program's cache marks, or with one where the last one ended."""
        messages = self._view.messages()
        if self._protected:
            edges = {self._protected_edge(len(messages)), self._sent - 1}
            self._show(sorted(edge for edge in edges if 0 <= edge < len(messages) - 1))
            self._sent = len(messages)
        else:
            self._show()
            self.prompt.edges = (1 + len(self._head), min(self.prompt.sent, self.prompt.unchanged))

    def _show(self, edges: Sequence[int] = ()) -> None:
        self._shown.show(self.prompt, self._view, self._view.messages(), edges, head=self._head)

    def _protected_edge(self, messages: int) -> int:
        """The message before the protected tail at the time of the last edit (`ContextEngine.request`); -1 for none."""
        edited = self._view.edits
        if self._edge[0] != edited or self._edge[1] >= messages:
            factor = self._script.factor
            before = self._view.before_tail(lambda size: tokens_of(size, factor) <= self._protected)
            self._edge = edited, before.messages - 1
        return self._edge[1]


def as_recorded(recording: Recording, settings: Settings) -> Callable[[PolicySetup], AsRecorded]:
    """The policy that repeats a recording's requests; `settings` give the protected tail of this program's sessions."""
    ours = recording.format == "session"
    return lambda setup: AsRecorded(setup, recording, protected_tokens(settings.clearing, setup.window) if ours else 0)


# Sizes


def measure(recording: Recording) -> MeasuredSizes | None:
    """The sizes derived from the recorded usage; None if no usage is recorded.

    New content of a request is as large as the request has grown; system prompt and tools are the rest of the first
    one. If a request shrank without a recorded edit, its new content is given the usual size.
    """
    metered = {message.seq: message.usage for message in recording.metered if message.usage is not None}
    if not metered:
        return None
    factor = _usual_factor(recording, metered)
    sizes: dict[Block, int] = {}
    surprises: dict[int, int] = {}
    fixed, lost, edits = -1, 0, 0
    earlier: list[RequestMessage] = []
    ends = [0]
    view = View()
    for entry in recording.log:
        usage = metered.get(entry.seq)
        if usage is not None:
            messages = view.messages()
            shared = common(earlier, messages)
            del ends[shared + 1 :]
            blocks = [block for message in messages[shared:] for block in message.blocks]
            shown = [block for block in blocks if not isinstance(block, Reasoning)]
            known = ends[-1] + sum(sizes.get(block, 0) for block in shown)
            new = [(block, tokens_of(size_of_block(block), factor)) for block in shown if block not in sizes]
            expected = sum(tokens for _, tokens in new)
            if fixed < 0:
                fixed = max(0, usage.input_tokens - expected)
            if view.edits != edits:
                edits, lost = view.edits, 0
            grown = usage.input_tokens + lost - fixed - known
            if expected and grown >= _LEAST_GROWTH * expected:
                sizes.update((block, round(tokens * grown / expected)) for block, tokens in new)
                surprises[entry.seq] = sum(sizes[block] for block, _ in new) - expected
            else:
                lost += expected - grown
                sizes.update(new)
            ends += accumulate(
                (sum(sizes.get(block, 0) for block in said.blocks) for said in messages[shared:]), initial=ends.pop()
            )
            earlier = messages
        view.apply(entry)
    return MeasuredSizes(fixed, factor, sizes, surprises)


def _usual_factor(recording: Recording, metered: Mapping[int, entries.Usage]) -> float:
    """`Script.factor`: the median over what each request added; 1 if that is implausible."""
    grown: list[tuple[float, int]] = []
    view, earlier, edits, tokens = View(), NOTHING, 0, 0
    for entry in recording.log:
        usage = metered.get(entry.seq)
        if usage is not None:
            said = total_size(size for category, size in view.sizes().items() if category not in _NOT_MESSAGES)
            added = tokens_of(said) - tokens_of(earlier)
            if tokens and added > 0 and edits == view.edits:
                grown.append(((usage.input_tokens - tokens) / added, added))
            earlier, edits, tokens = said, view.edits, usage.input_tokens
        view.apply(entry)
    half = sum(added for _, added in grown) / 2
    for factor, added in sorted(grown):
        half -= added
        if half <= 0:
            return factor if _LEAST_FACTOR <= factor <= _LARGEST_FACTOR else 1.0
    return 1.0
