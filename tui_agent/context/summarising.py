"""The ways to get a summary written, from the best to the one that cannot fail.

First the way that price chose, then a separate model on the whole transcript, then the same in parts small enough for
it, whose summaries it puts together, then the extract. Each failure, overflow or rejected text leads to the next way;
none repeats what failed, and no error text enters a request.
"""

from collections.abc import Callable, Sequence
from typing import Final, Literal, NamedTuple, TypeAlias

from tui_agent.context.compaction import CompactionPlan
from tui_agent.context.summary.rendering import cut, material
from tui_agent.conversation.sizes import Size, size_of_text

Way: TypeAlias = Literal["same_prefix", "whole", "parts", "extract"]

MOST_PARTS: Final = 16
_SHORTEST_PART: Final = 400


class Attempt(NamedTuple):
    """One way to a summary.

    ``same_prefix``: `instruction` is sent as one more user message at the end of the running request, with its tools
    unchanged; calls in the answer are ignored. ``whole`` and ``parts``: each of `materials` is one request of a system
    prompt, `instruction`, and one user message; several answers are put together by `merged`. ``extract``: `text` is
    the summary.
    """

    way: Way
    instruction: str = ""
    materials: tuple[str, ...] = ()
    text: str = ""


def attempts(
    plan: CompactionPlan, *, same_prefix: bool, room: int, tokens_of: Callable[[Size], int]
) -> tuple[Attempt, ...]:
    """The ways to `plan`'s summary, in order.

    `room`: the tokens that the separate model's window leaves for one request, its answer taken off; 0: there is no
    such model. `tokens_of` counts as that model does.
    """
    found: list[Attempt] = []
    if same_prefix:
        found.append(Attempt("same_prefix", plan.questions.same_prefix))
    instruction = plan.questions.separate
    left = room - tokens_of(size_of_text(instruction))
    if left > 0:
        whole = material(plan.parts)
        size = tokens_of(size_of_text(whole))
        if size <= left:
            found.append(Attempt("whole", instruction, (whole,)))
            left = size // 2
        pieces = chunks(plan.parts, limit=left, tokens_of=tokens_of)
        if len(pieces) > 1:
            found.append(Attempt("parts", instruction, pieces))
    found.append(Attempt("extract", text=plan.extract))
    return tuple(found)


def chunks(parts: Sequence[str], *, limit: int, tokens_of: Callable[[Size], int]) -> tuple[str, ...]:
    """The parts in order, as few materials as each of at most `limit` tokens can hold, at most 16.

    A part that is too large alone is cut in its middle; where 16 are not enough, all parts are cut alike. Empty where
    even a shortened part would not fit.
    """
    total = sum(tokens_of(size_of_text(part)) + 1 for part in parts)
    frame = tokens_of(size_of_text(material(())))
    room = limit - frame
    if room <= 0 or not parts:
        return ()
    longest = max(map(len, parts))
    while longest >= _SHORTEST_PART or total <= room:
        packed = _packed([cut(part, longest) for part in parts], room, tokens_of)
        if packed is not None and len(packed) <= MOST_PARTS:
            return tuple(material(group) for group in packed)
        if longest < _SHORTEST_PART:
            break
        longest //= 2
    return ()


def merged(plan: CompactionPlan, summaries: Sequence[str]) -> Attempt:
    """How the summaries of all parts, in order, become one."""
    told = [f"[part {number} of {len(summaries)}]\n{text.strip()}" for number, text in enumerate(summaries, 1)]
    return Attempt("whole", plan.questions.merging, (material(told),))


def joined(plan: CompactionPlan, summaries: Sequence[str]) -> str:
    """The summaries of all parts one after the other, for when putting them together fails as well."""
    return "\n\n".join(text.strip() for text in summaries) or plan.extract


class Backoff(NamedTuple):
    """The pause after compactions that failed: 2, 4, … turns, up to `longest`. It starts over with a success."""

    longest: int = 32
    failures: int = 0
    turns: int = 0

    @property
    def resting(self) -> bool:
        """Whether automatic compaction waits; a compaction the user asks for never does."""
        return self.turns > 0

    def failed(self) -> "Backoff":
        """After a compaction that did not come about."""
        failures = min(self.failures + 1, 16)
        return self._replace(failures=failures, turns=min(2**failures, self.longest))

    def succeeded(self) -> "Backoff":
        """After a compaction."""
        return self._replace(failures=0, turns=0)

    def turn_ended(self) -> "Backoff":
        """After each turn."""
        return self._replace(turns=max(0, self.turns - 1))


def _packed(parts: Sequence[str], room: int, tokens_of: Callable[[Size], int]) -> list[list[str]] | None:
    """The parts in groups of at most `room` tokens; None where one alone is larger."""
    groups: list[list[str]] = []
    used = room + 1
    for part in parts:
        tokens = tokens_of(size_of_text(part)) + 1
        if tokens > room:
            return None
        if used + tokens > room:
            groups.append([])
            used = 0
        groups[-1].append(part)
        used += tokens
    return groups
