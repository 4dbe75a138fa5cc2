"""Large pastes: the prompt shows a short chip in place of the text, which is sent whole."""

import re
from collections.abc import Iterator
from typing import Final

from tui_agent.text import clean
from tui_agent.tui.prompt.pictures import CHIP

MAX_LINES: Final = 12
MAX_CHARACTERS: Final = 1_500
"""A paste that exceeds either is folded into a chip."""


class Pastes:
    """The folded texts of one prompt, by their chips. They are kept for the life of the process, so that a chip
    recalled from the history can still be unfolded.
    """

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}

    def fold(self, text: str) -> str:
        """What to insert for a paste: the text, or a chip if it is long or has control characters."""
        text = text.replace("\r\n", "\n").replace("\r", "\n")
        lines = text.removesuffix("\n").count("\n") + 1
        if lines <= MAX_LINES and len(text) <= MAX_CHARACTERS and clean(text) == text:
            return text
        size = f"{lines:,} lines" if lines > 1 else f"{len(text):,} characters"
        chip = f"[pasted {size}]"
        number = 2
        while self._texts.get(chip, text) != text:
            chip = f"[pasted {size} #{number}]"
            number += 1
        self._texts[chip] = text
        return chip

    def unfold(self, text: str) -> str:
        """`text` with every chip replaced by its text."""
        parts: list[str] = []
        rest = text
        while True:
            found = [(rest.find(chip), chip) for chip in self._texts if chip in rest]
            if not found:
                return "".join((*parts, rest))
            place, chip = min(found)
            parts += (rest[:place], self._texts[chip])
            rest = rest[place + len(chip) :]

    def fold_again(self, text: str) -> str:
        """The inverse of `unfold`: `text` with every folded text replaced by its chip."""
        for chip, folded in sorted(self._texts.items(), key=lambda kept: -len(kept[1])):
            text = text.replace(folded, chip)
        return text

    def chips_in(self, line: str) -> Iterator[tuple[int, int]]:
        """The ranges (start, end) of chips in a line, including those of pictures."""
        yield from (found.span() for found in CHIP.finditer(line))
        if "[pasted " in line:
            for chip in self._texts:
                yield from (found.span() for found in re.finditer(re.escape(chip), line))
