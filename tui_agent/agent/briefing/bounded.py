"""A list in the system prompt with a limited size."""

from collections.abc import Callable, Sequence

from tui_agent.context.counting import estimate
from tui_agent.conversation.sizes import size_of_text


def bounded(introduction: str, lines: Sequence[str], tokens: int, rest: Callable[[int], str]) -> str:
    """An index of at most `tokens` tokens (estimated): the introduction, as many lines from the first on as fit, and
    `rest(n)` for the n lines left out. Empty if there are no lines.
    """
    if not lines:
        return ""
    room = tokens - _tokens(f"{introduction}\n\n{rest(len(lines))}\n")
    kept: list[str] = []
    for line in lines:
        room -= _tokens(f"{line}\n")
        if room < 0:
            break
        kept.append(line)
    left = len(lines) - len(kept)
    text = "\n".join([introduction, "", *kept, *([rest(left)] if left else [])])
    return text if _tokens(text) <= tokens else ""


def _tokens(text: str) -> int:
    return estimate(size_of_text(text))
