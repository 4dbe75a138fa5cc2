"""What a summary would say, without asking a model: prose, and names as densely as summaries have them.

Its size is what a summary of that much is asked to stay below. It names one exact thing per so many tokens, those most
recently and most often used; the same for every policy.
"""

from collections.abc import Sequence

from tui_agent.context.economics import expected_summary
from tui_agent.context.summary.facts import Mention, Source, collect
from tui_agent.replay.prompt import Piece
from tui_agent.replay.script import CHARS_PER_TOKEN, Said, Script, text_tokens

TOKENS_PER_NAME = 25
"""A summary names one path, identifier or number in this many tokens."""
INSTRUCTION_TOKENS = 500
"""Tokens of the request for a summary."""

_SYLLABLES = ("ba", "co", "de", "fi", "gu", "la", "me", "no", "pi", "ru", "sa", "te")
_WORDS = tuple(one + two + three for one in _SYLLABLES for two in _SYLLABLES[:6] for three in _SYLLABLES[6:10])


def written_summary(ranked: Sequence[Mention], replaced: int) -> str:
    """The text of a summary of `replaced` tokens; `ranked` is what could be named, most worth keeping first."""
    tokens = expected_summary(replaced)
    named = [mention.text for mention in ranked[: tokens // TOKENS_PER_NAME]]
    room = int(tokens * CHARS_PER_TOKEN) - sum(len(name) + 1 for name in named)
    words: list[str] = []
    while room > 0:
        word = _WORDS[len(words) % len(_WORDS)]
        words.append(word)
        room -= len(word) + 1
    return " ".join((*named, *words))


def summary_of(pieces: Sequence[Piece], script: Script, *, leads: bool) -> Piece:
    """The summary that stands in the place of these pieces; with `leads`, it says where they lie in full."""
    text = written_summary(collect([_source(piece) for piece in pieces]).mentions, sum(each.tokens for each in pieces))
    found: dict[int, Said] = {}
    if leads:
        for piece in pieces:
            for said in (piece.said, *piece.leads):
                if said is not None and said.is_result:
                    found[said.index] = said
    return Piece("summary", text_tokens(text), script.facts_in(text), tuple(found.values()), text=text)


def _source(piece: Piece) -> Source:
    if piece.kind == "summary":
        return Source("summary", piece.text)
    if piece.kind in ("cleared", "preview") or piece.said is None:
        return Source("tool", piece.text)
    speaker = "tool" if piece.said.is_result else piece.said.message.role
    return Source(speaker, piece.said.text)
