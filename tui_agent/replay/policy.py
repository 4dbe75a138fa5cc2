"""What a policy is to the simulation, and what all of those that are compared share."""

from collections.abc import Callable
from typing import NamedTuple, Protocol

from tui_agent.replay.ledger import Ledger
from tui_agent.replay.prompt import Piece, PieceKind, Prompt
from tui_agent.replay.script import Said, Script
from tui_agent.replay.summaries import INSTRUCTION_TOKENS, summary_of

CLEARED_TOKENS = 12
"""Tokens of the placeholder of a cleared result."""
PREVIEW_TOKENS = 1_500
"""Tokens of the preview of an evicted result."""


class Moment(NamedTuple):
    """When the next call is about to be made: the time in seconds, and whether the user has just spoken."""

    now: float
    starts_turn: bool


class Policy(Protocol):
    """Decides what is sent. `compactions` and `clearings` count what it did."""

    prompt: Prompt
    compactions: int
    clearings: int

    def add(self, said: Said) -> None:
        """Take in what was said next."""

    def prepare(self, moment: Moment) -> None:
        """Do what is due before the next call."""


class Setup(NamedTuple):
    """What a policy is made from. `window` is in tokens."""

    script: Script
    ledger: Ledger
    window: int


MakePolicy = Callable[[Setup], Policy]


class Keeping:
    """Keeps everything; the base of the others, which clear and compact with its two verbs."""

    def __init__(self, setup: Setup) -> None:
        self.script, self.ledger, self.window = setup
        self.prompt = Prompt(Piece("fixed", setup.script.fixed))
        self.compactions = 0
        self.clearings = 0

    def add(self, said: Said) -> None:
        """Append it as it is."""
        kind: PieceKind = "result" if said.is_result else "answer" if said.message.role == "assistant" else "user"
        self.prompt.append(Piece(kind, said.tokens, said.facts, said=said))

    def prepare(self, moment: Moment) -> None:
        """Nothing is ever due."""

    def clear(self, places: list[int]) -> None:
        """Show a placeholder for these results; their calls stay, so each can be called again."""
        changes = {}
        for place in places:
            said = self.prompt.pieces[place].said
            leads = (said,) if said is not None else ()
            changes[place] = Piece("cleared", CLEARED_TOKENS, leads=leads, said=said, text="[cleared]")
        self.prompt.replace(changes)
        self.clearings += bool(changes)

    def results(self) -> list[int]:
        """The places of the results that are shown whole, oldest first."""
        return [place for place, piece in enumerate(self.prompt.pieces) if piece.kind == "result"]

    def compact(
        self, moment: Moment, keep: int, *, passes: int = 1, leads: bool = False, kept_first: list[Piece] | None = None
    ) -> None:
        """Replace all but about the newest `keep` tokens by a summary, after the pieces of `kept_first`."""
        start = self._cut(keep)
        covered = self.prompt.pieces[1:start]
        if sum(piece.tokens for piece in covered) < 2_000:
            return
        summary = summary_of(covered, self.script, leads=leads)
        for _ in range(passes):
            self.ledger.summary(self.prompt, INSTRUCTION_TOKENS, summary.tokens, moment.now)
        self.prompt.splice(1, start, [*(kept_first or ()), summary])
        self.prompt.edge = 2 + len(kept_first or ())
        self.compactions += 1

    def _cut(self, keep: int) -> int:
        """The place from which at most `keep` tokens follow and that does not part a result from its call.

        What the model has not seen yet always stays.
        """
        pieces, start, kept = self.prompt.pieces, len(self.prompt), 0
        while start > 1 and kept + pieces[start - 1].tokens <= keep:
            start -= 1
            kept += pieces[start].tokens
        newest = max((place for place, piece in enumerate(pieces) if piece.kind == "answer"), default=1)
        start = min(start, newest if newest + 1 < len(pieces) and pieces[newest + 1].kind != "user" else newest + 1)
        while start < len(pieces) and pieces[start].kind not in ("user", "answer", "summary"):
            start += 1
        return min(start, newest) if start == len(pieces) else start
