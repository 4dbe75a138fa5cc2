"""Policies of other systems, as their code and documentation set them, for comparison.

Each is modelled where that favours it: its summariser reads the prompt from the cache, nothing it keeps is cut, and its
summaries are as long and as dense as ours.
"""

from typing_extensions import override

from tui_agent.replay.policy import PREVIEW_TOKENS, Keeping, Moment
from tui_agent.replay.prompt import Piece
from tui_agent.replay.script import Said

CLEAR_TRIGGER, CLEAR_KEEP = 100_000, 3
"""langchain's ContextEditing and Anthropic's clear_tool_uses: above so many tokens, all but the newest results go."""


class SummaryOnly(Keeping):
    """Compacts at 85% of the window and keeps the newest 20k tokens."""

    @override
    def prepare(self, moment: Moment) -> None:
        if self.prompt.tokens >= 0.85 * self.window:
            self.compact(moment, 20_000)


class Codex(Keeping):
    """codex: at 90% of the window, a summary and the newest 20k tokens of the user's own messages."""

    @override
    def prepare(self, moment: Moment) -> None:
        if self.prompt.tokens < 0.9 * self.window:
            return
        kept: list[Piece] = []
        room = 20_000
        for piece in reversed(self.prompt.pieces[:-1]):
            if piece.kind == "user":
                if piece.tokens > room:
                    break
                room -= piece.tokens
                kept.insert(0, piece)
        self.compact(moment, 0, kept_first=kept)


class Pi(Keeping):
    """pi: 16,384 tokens below the window, keeps 20k."""

    @override
    def prepare(self, moment: Moment) -> None:
        if self.prompt.tokens >= self.window - 16_384:
            self.compact(moment, 20_000)


class OpenCode(Keeping):
    """opencode: after a turn, results beyond the newest 40k tokens go if they are 20k or more, two turns excepted."""

    @override
    def prepare(self, moment: Moment) -> None:
        if moment.starts_turn:
            self._prune()
        if self.prompt.tokens >= self.window - 20_000:
            self.compact(moment, 8_000)

    def _prune(self) -> None:
        turns = [place for place, piece in enumerate(self.prompt.pieces) if piece.kind == "user"]
        if len(turns) < 3:
            return
        protected, places, freed = 0, [], 0
        for place in reversed(self.results()):
            if place >= turns[-3]:
                continue
            tokens = self.prompt.pieces[place].tokens
            protected += tokens
            if protected > 40_000:
                places.append(place)
                freed += tokens
        if freed >= 20_000:
            self.clear(places)


class GeminiCli(Keeping):
    """gemini-cli: results beyond the newest 50k tokens go in batches of 30k; at 50%, two passes, 30% kept."""

    @override
    def prepare(self, moment: Moment) -> None:
        protected, places, freed = 0, [], 0
        for place in reversed(self.results()):
            tokens = self.prompt.pieces[place].tokens
            protected += tokens
            if protected > 50_000:
                places.append(place)
                freed += tokens
        if freed >= 30_000:
            self.clear(places)
        if self.prompt.tokens >= 0.5 * self.window:
            self.compact(moment, int(0.3 * self.prompt.tokens), passes=2)


class KeepThree(Keeping):
    """Clears all but the newest results where what is shown is above the trigger.

    Both systems decide anew at every call from the uncleared conversation, and so clear one result more each time;
    here a batch stays cleared, which costs less.
    """

    @override
    def prepare(self, moment: Moment) -> None:
        if self.prompt.tokens > CLEAR_TRIGGER:
            self.clear(self.results()[:-CLEAR_KEEP])


class DeepAgents(KeepThree):
    """langchain's ContextEditing with deepagents: results above 20k tokens go to a file; 85%, 10% kept."""

    @override
    def add(self, said: Said) -> None:
        if said.is_result and said.tokens > 20_000:
            self.prompt.append(Piece("preview", PREVIEW_TOKENS, leads=(said,), said=said))
        else:
            super().add(said)

    @override
    def prepare(self, moment: Moment) -> None:
        super().prepare(moment)
        if self.prompt.tokens >= 0.85 * self.window:
            self.compact(moment, int(0.1 * self.window), leads=True)


class ClaudeApi(KeepThree):
    """Anthropic's server-side edits at their defaults: clearing from 100k, compaction at 150k."""

    @override
    def prepare(self, moment: Moment) -> None:
        super().prepare(moment)
        if self.prompt.tokens >= min(150_000, 0.9 * self.window):
            self.compact(moment, 0)


COMPARED = {
    "summary-85": SummaryOnly,
    "langchain": DeepAgents,
    "opencode": OpenCode,
    "gemini-cli": GeminiCli,
    "codex": Codex,
    "pi": Pi,
    "claude-api": ClaudeApi,
}
"""The compared policies by name."""
