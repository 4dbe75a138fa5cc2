"""What a policy for the context is, and those of other systems, as their code and documentation set them.

Each is modelled where that favours it: its summariser reads the prompt from the cache, nothing it keeps is cut, and its
summaries are as long and as dense as ours. All summaries are written by rule: prose, and names as densely as summaries
have them, those most recently and most often used.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple, Protocol

from typing_extensions import override

from tui_agent.context.economics import expected_summary
from tui_agent.context.summary.facts import Source, collect
from tui_agent.conversation.entries import Usage
from tui_agent.replay.billing import Ledger, PartKind, Prompt, PromptPart
from tui_agent.replay.script import CHARS_PER_TOKEN, RecordedCall, RecordedMessage, Script, text_tokens

CLEARED_TOKENS = 12
"""Tokens of the placeholder of a cleared result."""
PREVIEW_TOKENS = 1_500
"""Tokens of the preview of an evicted result."""
TOKENS_PER_NAME = 25
"""A summary names one path, identifier or number in this many tokens."""
INSTRUCTION_TOKENS = 500
"""Tokens of the request for a summary."""
SHORTEST_COMPACTION = 2_000
"""Tokens that a compaction replaces at least."""

_SYLLABLES = ("ba", "co", "de", "fi", "gu", "la", "me", "no", "pi", "ru", "sa", "te")
_WORDS = tuple(one + two + three for one in _SYLLABLES for two in _SYLLABLES[:6] for three in _SYLLABLES[6:10])


class Policy(Protocol):
    """Decides what is sent. `compactions` and `clearings` count what it did to the prompt."""

    @property
    def prompt(self) -> Prompt: ...

    @property
    def compactions(self) -> int: ...

    @property
    def clearings(self) -> int: ...

    def before(self, call: RecordedCall) -> None:
        """Take in what arrived before this call and do what is due; then `prompt` is what the call sends."""

    def after(self, call: RecordedCall, used: Usage) -> None:
        """Take in the answer, and what the call used."""


class Setup(NamedTuple):
    """What a policy is made from. `window` is in tokens."""

    script: Script
    ledger: Ledger
    window: int


MakePolicy = Callable[[Setup], Policy]


def written_by_rule(sources: Sequence[Source], tokens: int, factor: float = 1.0) -> str:
    """A summary of these sources in about so many tokens; `factor` is the script's."""
    names = [mention.text for mention in collect(sources).mentions[: tokens // TOKENS_PER_NAME]]
    room = int(tokens * CHARS_PER_TOKEN / factor) - sum(len(name) + 1 for name in names)
    words: list[str] = []
    while room > 0:
        word = _WORDS[len(words) % len(_WORDS)]
        words.append(word)
        room -= len(word) + 1
    return " ".join((*names, *words))


class Keeping:
    """Keeps everything; the base of the others, which clear and compact with its two verbs.

    `edge` is the place where the policy marks the end of a prefix for the cache; 0: none.
    """

    def __init__(self, setup: Setup) -> None:
        self.script, self.ledger, self.window = setup
        self.prompt = Prompt(setup.script.fixed)
        self.edge = 0
        self.compactions = 0
        self.clearings = 0

    def before(self, call: RecordedCall) -> None:
        """Append what arrived, and make the prompt smaller where that is due."""
        for message in call.arrived:
            self.add(message)
        self.shrink(call)
        self._mark_edges()

    def after(self, call: RecordedCall, used: Usage) -> None:
        """Append the answer."""
        self.add(call.answer)

    def add(self, message: RecordedMessage) -> None:
        """Append a message as it is."""
        kind: PartKind = "result" if message.is_result else "answer" if message.message.role == "assistant" else "user"
        self.prompt.append(PromptPart(kind, message.tokens, message.mentions, recorded=message))

    def shrink(self, call: RecordedCall) -> None:
        """Nothing is ever due."""

    def clear(self, places: list[int]) -> None:
        """Show a placeholder for these results; their calls stay, so each can be called again."""
        changes = {}
        for place in places:
            result = self.prompt.parts[place].recorded
            fetchable = (result,) if result is not None else ()
            changes[place] = PromptPart("cleared", CLEARED_TOKENS, frozenset(), fetchable, result, "[cleared]")
        self.prompt.replace(changes)
        self.clearings += bool(changes)

    def results(self) -> list[int]:
        """The places of the results that are shown whole, oldest first."""
        return [place for place, part in enumerate(self.prompt.parts) if part.kind == "result"]

    def results_beyond(self, newest: int, before: int | None = None) -> list[int]:
        """The places of the results that follow the newest `newest` tokens of them; only those `before` a place."""
        passed, places = 0, []
        for place in reversed(self.results()):
            if before is None or place < before:
                passed += self.prompt.parts[place].tokens
                if passed > newest:
                    places.append(place)
        return places

    def freed_by(self, places: Sequence[int]) -> int:
        """The tokens of the parts at these places."""
        return sum(self.prompt.parts[place].tokens for place in places)

    def compact(
        self,
        call: RecordedCall,
        keep: int,
        *,
        passes: int = 1,
        fetchable: bool = False,
        kept_first: Sequence[PromptPart] = (),
    ) -> None:
        """Replace all but about the newest `keep` tokens by a summary, after the parts of `kept_first`.

        `fetchable`: the summary says where the results it replaces lie in full.
        """
        start = self._cut(keep)
        covered = self.prompt.parts[1:start]
        if sum(part.tokens for part in covered) < SHORTEST_COMPACTION:
            return
        summary = self._summary_of(covered, fetchable=fetchable)
        for _ in range(passes):
            self.prompt.append(PromptPart("instruction", INSTRUCTION_TOKENS))
            self._mark_edges()
            self.ledger.summary(self.prompt, summary.tokens, call.time)
            self.prompt.splice(len(self.prompt) - 1, len(self.prompt), ())
        self.prompt.splice(1, start, [*kept_first, summary])
        self.edge = 2 + len(kept_first)
        self.compactions += 1

    def _mark_edges(self) -> None:
        """Mark the edge of the last edit, and what the last request had that this one has too."""
        self.prompt.edges = (self.edge, min(self.prompt.sent, self.prompt.unchanged))

    def _cut(self, keep: int) -> int:
        """The place from which at most `keep` tokens follow and that does not part a result from its call.

        What the model has not seen yet always stays.
        """
        parts, start, kept = self.prompt.parts, len(self.prompt), 0
        while start > 1 and kept + parts[start - 1].tokens <= keep:
            start -= 1
            kept += parts[start].tokens
        newest = max((place for place, part in enumerate(parts) if part.kind == "answer"), default=1)
        start = min(start, newest if newest + 1 < len(parts) and parts[newest + 1].kind != "user" else newest + 1)
        while start < len(parts) and parts[start].kind not in ("user", "answer", "summary"):
            start += 1
        return min(start, newest) if start == len(parts) else start

    def _summary_of(self, parts: Sequence[PromptPart], *, fetchable: bool) -> PromptPart:
        """The summary that stands in the place of these parts."""
        tokens = expected_summary(sum(part.tokens for part in parts))
        text = written_by_rule([_source(part) for part in parts], tokens, self.script.factor)
        results: dict[int, RecordedMessage] = {}
        if fetchable:
            for part in parts:
                for message in (part.recorded, *part.fetchable):
                    if message is not None and message.is_result:
                        results[message.index] = message
        mentions = self.script.mentions_in(text)
        size = text_tokens(text, factor=self.script.factor)
        depths = depths_after(mentions, parts)
        return PromptPart("summary", size, mentions, tuple(results.values()), text=text, depths=depths)


def depths_after(mentions: Iterable[int], covered: Sequence[PromptPart]) -> dict[int, int]:
    """Through how many summaries each mention has passed in a summary of these parts."""
    found: dict[int, int] = {}
    for mention in mentions:
        found[mention] = 1 + min((part.depth(mention) for part in covered if mention in part.mentions), default=0)
    return found


def _source(part: PromptPart) -> Source:
    if part.kind == "summary":
        return Source("assistant", part.text)
    if part.kind in ("cleared", "preview") or part.recorded is None:
        return Source("tool", part.text)
    return Source("tool" if part.recorded.is_result else part.recorded.message.role, part.recorded.text)


# Other systems


class SummaryOnly(Keeping):
    """Compacts at 85% of the window and keeps the newest 20k tokens."""

    @override
    def shrink(self, call: RecordedCall) -> None:
        if self.prompt.tokens >= 0.85 * self.window:
            self.compact(call, 20_000)


class Codex(Keeping):
    """codex: at 90% of the window, a summary and the newest 20k tokens of the user's own messages."""

    @override
    def shrink(self, call: RecordedCall) -> None:
        if self.prompt.tokens < 0.9 * self.window:
            return
        kept: list[PromptPart] = []
        room = 20_000
        for part in reversed(self.prompt.parts[:-1]):
            if part.kind == "user":
                if part.tokens > room:
                    break
                room -= part.tokens
                kept.insert(0, part)
        self.compact(call, 0, kept_first=kept)


class Pi(Keeping):
    """pi: 16,384 tokens below the window, keeps 20k."""

    @override
    def shrink(self, call: RecordedCall) -> None:
        if self.prompt.tokens >= self.window - 16_384:
            self.compact(call, 20_000)


class OpenCode(Keeping):
    """opencode: after a turn, results beyond the newest 40k tokens go if they are 20k or more, two turns excepted."""

    @override
    def shrink(self, call: RecordedCall) -> None:
        turns = [place for place, part in enumerate(self.prompt.parts) if part.kind == "user"]
        if call.starts_turn and len(turns) >= 3:
            places = self.results_beyond(40_000, before=turns[-3])
            if self.freed_by(places) >= 20_000:
                self.clear(places)
        if self.prompt.tokens >= self.window - 20_000:
            self.compact(call, 8_000)


class GeminiCli(Keeping):
    """gemini-cli: results beyond the newest 50k tokens go in batches of 30k; at 50%, two passes, 30% kept."""

    @override
    def shrink(self, call: RecordedCall) -> None:
        places = self.results_beyond(50_000)
        if self.freed_by(places) >= 30_000:
            self.clear(places)
        if self.prompt.tokens >= 0.5 * self.window:
            self.compact(call, int(0.3 * self.prompt.tokens), passes=2)


class KeepThree(Keeping):
    """Clears all but the newest results where what is shown is above the trigger.

    Both systems decide anew at every call from the uncleared conversation, and so clear one result more each time;
    here a batch stays cleared, which costs less.
    """

    TRIGGER: Final = 100_000
    """Tokens; langchain's ContextEditing and Anthropic's clear_tool_uses."""
    KEPT_RESULTS: Final = 3

    @override
    def shrink(self, call: RecordedCall) -> None:
        if self.prompt.tokens > self.TRIGGER:
            self.clear(self.results()[: -self.KEPT_RESULTS])


class DeepAgents(KeepThree):
    """langchain's ContextEditing with deepagents: results above 20k tokens go to a file; 85%, 10% kept."""

    @override
    def add(self, message: RecordedMessage) -> None:
        if message.is_result and message.tokens > 20_000:
            self.prompt.append(PromptPart("preview", PREVIEW_TOKENS, fetchable=(message,), recorded=message))
        else:
            super().add(message)

    @override
    def shrink(self, call: RecordedCall) -> None:
        super().shrink(call)
        if self.prompt.tokens >= 0.85 * self.window:
            self.compact(call, int(0.1 * self.window), fetchable=True)


class ClaudeApi(KeepThree):
    """Anthropic's server-side edits at their defaults: clearing from 100k, compaction at 150k."""

    @override
    def shrink(self, call: RecordedCall) -> None:
        super().shrink(call)
        if self.prompt.tokens >= min(150_000, 0.9 * self.window):
            self.compact(call, 0)


COMPARED: Mapping[str, MakePolicy] = {
    "summary-85": SummaryOnly,
    "langchain": DeepAgents,
    "opencode": OpenCode,
    "gemini-cli": GeminiCli,
    "codex": Codex,
    "pi": Pi,
    "claude-api": ClaudeApi,
}
"""The compared policies by name."""
