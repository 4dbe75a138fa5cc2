"""A recording under the rules it was recorded under: its requests, the sizes they tell, and how far off a replay is.

What is predicted is checked against what the provider counted. Each call is predicted from what was recorded before
it: what an earlier call sent is as large as that call's usage says, what is new has the characters to a token that are
usual in the recording, and what is read and written is simulated. Given are the requests and their times, the lengths
of the answers, the size of system prompt and tools, and how much of these the first call found in the cache, where
another session had written it.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Final, NamedTuple

import msgspec

from tui_agent.context.layers.clearing import protected_tokens
from tui_agent.conversation.blocks import Block, Reasoning
from tui_agent.conversation.entries import (
    AnyEntry,
    Checkpointed,
    Cleared,
    Digested,
    Summarized,
    UnattributedCall,
    Usage,
)
from tui_agent.conversation.request import RequestMessage
from tui_agent.conversation.sizes import NOTHING, size_of_block
from tui_agent.conversation.view import View
from tui_agent.models.base import ModelProfile
from tui_agent.models.usage import cost_usd
from tui_agent.replay.billing import Prompt, PromptPart, common
from tui_agent.replay.policies import INSTRUCTION_TOKENS, Setup
from tui_agent.replay.script import Measured, RecordedCall, Script, text_tokens, tokens_of
from tui_agent.replay.showing import ShownBlocks
from tui_agent.settings import Settings
from tui_agent.storage.recordings.recording import Recording, is_metered

AS_RECORDED: Final = "as recorded"
"""The name of the policy under which a session was recorded."""
CLOSE_READ: Final = 0.05
"""A predicted cache read is close within this share of the recorded one."""

_LEAST_GROWTH = 0.2
"""A request that grew by less than this share of what is new in it had lost something else."""
_LEAST_FACTOR, _LARGEST_FACTOR = 1 / 3, 3.0
"""Beyond these the usage of a recording does not go with what its messages say."""
_NOT_MESSAGES = ("system", "tools", "reasoning")


class AsRecorded:
    """Sends what was sent: the view of the recorded log at each call, every recorded edit at its place.

    `protected` are the tokens before which a session of ours marks the end of a prefix; 0 for other systems.
    """

    def __init__(self, setup: Setup, recording: Recording, protected: int) -> None:
        self._script, self._ledger, _ = setup
        self._log = recording.log
        self._protected = protected
        self._tells_summaries = any(isinstance(entry, UnattributedCall) for entry in recording.log)
        self._view = View()
        self._shown = ShownBlocks(setup.script)
        self._shared = _read_first(setup.script, self._ledger.profile.cache_minimum)
        self._head: tuple[PromptPart, ...] = ()
        if self._shared:
            self._head = (PromptPart("fixed", setup.script.fixed - self._shared),)
        self._edge = -1, 0
        self._sent = 0
        self.prompt = Prompt(self._shared or setup.script.fixed)
        self.compactions = 0
        self.clearings = 0

    def before(self, call: RecordedCall) -> None:
        """Take in all that was recorded before this call."""
        if call.number == 1 and self._shared:
            self._ledger.cache.seed(1, call.time)
            self.prompt.unchanged = 1
        for message in call.arrived:
            if message.is_result:
                self._shown.arrived(message, message.message.seq)
        while len(self._view.log) + 1 < call.answer.message.seq:
            self._take(self._log[len(self._view.log)], call.time)
        self._request()

    def after(self, call: RecordedCall, used: Usage) -> None:
        """The answer is the next entry of the log."""

    def _take(self, entry: AnyEntry, now: float) -> None:
        match entry:
            case Summarized() | Checkpointed():
                self._show()
                self._shown.will_cover(self._view, entry.first, entry.last)
                if not self._tells_summaries:
                    written = text_tokens(entry.text, factor=self._script.factor)
                    # Where its usage is not recorded, it is taken to have been asked for with the prompt in the cache.
                    self._bill(entry.usage or Usage(cache_read_tokens=1, output_tokens=written), "", now)
                self.compactions += 1
            case UnattributedCall(purpose="summary" | "digest"):
                self._show()
                self._bill(entry.usage, entry.model, now)
            case Digested():
                self._shown.digests.append(entry.text)
                self.clearings += 1
            case Cleared():
                self.clearings += 1
            case _:
                pass
        self._view.apply(entry)

    def _bill(self, usage: Usage, model: str, now: float) -> None:
        """Bill a summary: at the end of the running request where that was read, else on a request of its own."""
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
        """Make the prompt the next request: with the marks of a session of ours, else with one where the last ended."""
        messages = self._view.messages()
        if self._protected:
            edges = {self._protected_edge(len(messages)), self._sent - 1}
            self._show(sorted(edge for edge in edges if 0 <= edge < len(messages) - 1))
            self._sent = len(messages)
        else:
            self._show()
            self.prompt.edges = (1 + len(self._head), min(self.prompt.sent, self.prompt.unchanged))

    def _show(self, edges: Sequence[int] = ()) -> None:
        """Make the prompt the view."""
        self._shown.show(self.prompt, self._view, self._view.messages(), edges, head=self._head)

    def _protected_edge(self, messages: int) -> int:
        """The message before the protected tail as the last edit left it (`ContextEngine.request`); -1: none."""
        edited = self._view.edits
        if self._edge[0] != edited or self._edge[1] >= messages:
            factor = self._script.factor
            before = self._view.before_tail(lambda size: tokens_of(size, factor) <= self._protected)
            self._edge = edited, before.messages - 1
        return self._edge[1]


def as_recorded(recording: Recording, settings: Settings) -> Callable[[Setup], AsRecorded]:
    """The policy under which a session was recorded; of a session of ours, under these settings."""

    def make(setup: Setup) -> AsRecorded:
        ours = recording.format == "session"
        return AsRecorded(setup, recording, protected_tokens(settings.clearing, setup.window) if ours else 0)

    return make


def _read_first(script: Script, minimum: int) -> int:
    """What the first call read of system prompt and tools: another session has written it."""
    usage = script.calls[0].answer.message.usage if script.calls else None
    read = min(usage.cache_read_tokens, script.fixed) if usage is not None else 0
    return read if read >= minimum else 0


# Sizes


def measure(recording: Recording) -> Measured | None:
    """The sizes that the recorded usage tells; None where no usage is recorded.

    What is new in a request is as large as the request has grown; system prompt and tools are what is left of the first
    one. Where a request shrank and no edit is recorded, what is new in it counts as usual.
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
    return Measured(fixed, factor, sizes, surprises)


def _usual_factor(recording: Recording, metered: Mapping[int, Usage]) -> float:
    """`Script.factor`: the median over all that was added, request by request; 1 where that makes no sense."""
    grown: list[tuple[float, int]] = []
    view, earlier, edits, tokens = View(), NOTHING, 0, 0
    for entry in recording.log:
        usage = metered.get(entry.seq)
        if usage is not None:
            said = NOTHING
            for category, size in view.sizes().items():
                said = said.plus(size) if category not in _NOT_MESSAGES else said
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


# Predicted against recorded


class ComparedCall(NamedTuple):
    """One call as it was predicted and as it was recorded; costs in USD, None where the price is not known."""

    number: int
    predicted: Usage
    recorded: Usage
    predicted_cost: float
    recorded_cost: float

    @property
    def is_close(self) -> bool:
        """Whether the predicted cache read is within 5% of the recorded one."""
        recorded = self.recorded.cache_read_tokens
        return abs(self.predicted.cache_read_tokens - recorded) <= CLOSE_READ * recorded


@dataclass(frozen=True, slots=True)
class Accuracy:
    """How a replay of a recording's own requests compares with what was recorded of them, call by call."""

    model: str
    calls: tuple[ComparedCall, ...]

    @property
    def predicted(self) -> Usage:
        """The sum of what was predicted."""
        return sum((call.predicted for call in self.calls), Usage())

    @property
    def recorded(self) -> Usage:
        """The sum of what was recorded."""
        return sum((call.recorded for call in self.calls), Usage())

    @property
    def costs(self) -> tuple[float, float]:
        """What all calls cost, predicted and recorded, in USD."""
        return sum(call.predicted_cost for call in self.calls), sum(call.recorded_cost for call in self.calls)

    @property
    def far(self) -> tuple[ComparedCall, ...]:
        """The calls whose cache read was predicted wrongly."""
        return tuple(call for call in self.calls if not call.is_close)

    @property
    def close_share(self) -> float:
        """The share of the calls whose cache read is close."""
        return 1 - len(self.far) / len(self.calls)


def error_of(predicted: float, recorded: float) -> float:
    """How much too high a prediction is, as a share of what was recorded; infinite where nothing was."""
    if predicted == recorded:
        return 0.0
    return (predicted - recorded) / recorded if recorded else float("inf")


def compare(
    recording: Recording, measured: Measured, script: Script, used: Sequence[Usage], profile: ModelProfile
) -> Accuracy | None:
    """What was predicted of the recorded calls of one model against their usage; None where none is recorded."""
    found: list[ComparedCall] = []
    for call, predicted in zip(script.calls, used, strict=True):
        message = call.answer.message
        if message.usage is not None and is_metered(message, recording.model):
            predicted = _without_surprise(predicted, measured.surprises.get(message.seq, 0))
            cost, recorded_cost = (cost_usd(usage, profile.prices) or 0.0 for usage in (predicted, message.usage))
            found.append(ComparedCall(call.number, predicted, message.usage, cost, recorded_cost))
    return Accuracy(profile.id, tuple(found)) if found else None


def _without_surprise(used: Usage, surprise: int) -> Usage:
    """What was used, had what was new in the request been as large as usual.

    Nothing new is read, unless a call in between, whose usage is not recorded, has sent it.
    """
    total = used.input_tokens - surprise
    read = min(used.cache_read_tokens, total)
    written = min(max(0, used.cache_write_tokens - surprise), total - read) if used.cache_write_tokens else 0
    return msgspec.structs.replace(used, input_tokens=total, cache_read_tokens=read, cache_write_tokens=written)
